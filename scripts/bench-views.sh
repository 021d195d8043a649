#!/usr/bin/env bash
# Compares views with /samples on release mounts: listing, listing with attributes, and opening and reading,
# measured in turns within each round. Each is compared with as many folders as it has, since a folder has a price
# of its own: a view of one folder with one cache, a view of 100 folders with the samples in 100 caches. Says how
# long a view takes to build and what memory it takes. Exit status 1 when a view is slower than 1.2 times /samples.
# Needs root, to drop the kernel's caches, a machine that does nothing else, and 3 GB in TMPDIR.
#
# usage: scripts/bench-views.sh [--quick] [--samples N] [--rounds N]
#   --quick      1 million samples
#   --samples N  samples of each mount, a multiple of 10000 [default: 10000000]
#   --rounds N   rounds of each comparison [default: 5]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

samples=10000000
rounds=5
while [ $# -gt 0 ]; do
    case $1 in
        --quick) samples=1000000 ;;
        --samples) samples=$2; shift ;;
        --rounds) rounds=$2; shift ;;
        -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
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
    local at
    for at in "$work/one" "$work/split"; do
        ! mountpoint -q "$at" || "$bin/datasetrt" umount --lazy "$at" || true
    done
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say "a cache of $samples samples"
mkdir "$work/one" "$work/split"
"$bin/examples/bench_cache" "$work/caches-one" many "$samples" 32 none
say "100 caches of $((samples / 100)) samples"
for n in $(seq -w 0 99); do
    "$bin/examples/bench_cache" "$work/caches-split" "$n" $((samples / 100)) 32 none >/dev/null
done
say "mounting"
# One CPU for the reader and the daemons, as in scripts/bench.sh.
taskset -c 0 "$bin/datasetrt-mount" --view 'flat={sample_id}' "$work/caches-one" "$work/one"
# Names of at most 8 bytes, as those of /samples: longer ones would take more room in a listing. With suffixes, a
# view of names that could be equal is built at its first use.
taskset -c 0 "$bin/datasetrt-mount" --on-collision=suffix --view 'classes={label}/{source_name}-{sample_id:05}' \
    "$work/caches-split" "$work/split"
PYTHONDONTWRITEBYTECODE=1 python3 scripts/bench/views.py "$work" "$bin/examples/bench-reader" "$samples" "$rounds"
