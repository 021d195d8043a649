#!/usr/bin/env bash
# Compares two builds of the mount, in pairs, in one run: warm and hot reads, one reader and eight.
#
# usage: scripts/bench-builds.sh OLD NEW [ROUNDS]
#   OLD, NEW   folders with datasetrt-mount and datasetrt, such as target/release of two checkouts
#   ROUNDS     pairs of each case [default: 7]
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -lt 2 ] || [ $# -gt 3 ]; then
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
old=$(cd "$1" && pwd)
new=$(cd "$2" && pwd)
cargo build --quiet --locked --release --example bench-reader
PYTHONDONTWRITEBYTECODE=1 python3 scripts/bench/builds.py \
    "${CARGO_TARGET_DIR:-target}/release/examples/bench-reader" "$old" "$new" "${3:-7}"
