#!/usr/bin/env bash
# Compares views with /samples on one release mount: listing, listing with attributes, and opening and reading,
# measured in turns within each round. Says how long a view takes to build and what memory it takes. Exit
# status 1 when a view is slower than 1.2 times /samples. Needs root, to drop the kernel's caches, a machine that
# does nothing else, and 3 GB in TMPDIR.
#
# usage: scripts/bench-views.sh [--quick] [--rounds N]
#   --quick     1 million samples instead of 10 million
#   --rounds N  rounds of each comparison [default: 5]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

samples=10000000
rounds=5
while [ $# -gt 0 ]; do
    case $1 in
        --quick) samples=1000000 ;;
        --rounds) rounds=$2; shift ;;
        -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) printf 'error: unknown option %s (see --help)\n' "$1" >&2; exit 2 ;;
    esac
    shift
done
[ "$(id -u)" = 0 ] || { echo 'error: dropping caches needs root' >&2; exit 1; }
need fusermount3 fuse3
need python3 python3

say "building"
cargo build --quiet --locked --release --bins --examples
bin=$(realpath "${CARGO_TARGET_DIR:-target}")/release

work=$(mktemp -d)
cleanup() {
    ! mountpoint -q "$work/mnt" || "$bin/datasetrt" umount --lazy "$work/mnt"
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say "a cache of $samples samples"
mkdir "$work/mnt"
"$bin/examples/bench_cache" "$work/caches" many "$samples" 32 none
say "mounting"
# One CPU for the reader and the daemon, as in scripts/bench.sh.
taskset -c 0 "$bin/datasetrt-mount" --view 'flat={sample_id}' --view 'classes={label}/{sample_id:08}' \
    "$work/caches" "$work/mnt"
PYTHONDONTWRITEBYTECODE=1 python3 scripts/bench/views.py "$work" "$bin/examples/bench-reader" "$samples" "$rounds"
