#!/usr/bin/env bash
# Reads a mount in every way from 16 processes while its caches are cut, replaced and flipped bit by bit,
# its memory is squeezed, a migration runs, readers are killed, and the daemon is unmounted, killed and
# started again: no wrong byte may be seen, nothing may hang, nothing may be left. The seed is printed.
#
# usage: scripts/chaos.sh SECONDS [--seed N] [--self-test]
#   DATASETRT_BIN  folder of the programs (default: those of a debug build, made when missing)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

[[ ${1:-} =~ ^[1-9][0-9]*$ ]] || { echo 'usage: scripts/chaos.sh SECONDS [--seed N] [--self-test]' >&2; exit 2; }
need python3 python3
need fusermount3 fuse3
open_fuse_device
if [ -z "${DATASETRT_BIN:-}" ]; then
    build_programs
    DATASETRT_BIN=${CARGO_TARGET_DIR:-target}/debug
fi
exec python3 scripts/chaos/main.py --bin "$DATASETRT_BIN" "$@"
