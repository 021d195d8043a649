#!/usr/bin/env bash
# Both ways between this project and the reference implementation, dataset-rt 0.4.8 from PyPI: caches
# that we pack are read by it, caches that it writes are verified and mounted by us, and the same
# samples give the same index and shards.
#
# usage: scripts/interop.sh      (DATASETRT_VENV: where the Python environment is kept)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh
. scripts/reference.sh

target=${CARGO_TARGET_DIR:-target}
venv=${DATASETRT_VENV:-$target/interop-venv}

python_with_reference "$venv"

say "building"
build_programs

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$venv/bin/python" scripts/interop.py "$target/debug" "$work"
