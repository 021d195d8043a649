#!/usr/bin/env bash
# How fast `datasetrt pack` is beside dataset-rt 0.4.8's writer and mksquashfs, on 20,000 files of
# 4 KB and 2,000 of 100 KB, with lz4. The three take turns, so that all meet the same machine; printed
# are medians and ratios, until each returned and until what it wrote was on the disk: only
# `datasetrt pack` syncs.
#
# usage: scripts/bench-pack.sh [--rounds N] [--huge]
#   --huge    also packs 10 million samples of 16 bytes and prints the peak memory (some minutes)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh
. scripts/reference.sh

rounds=5 huge=no
while [ $# -gt 0 ]; do
    case $1 in
        --rounds) rounds=$2; shift ;;
        --huge) huge=yes ;;
        *) echo "usage: scripts/bench-pack.sh [--rounds N] [--huge]" >&2; exit 2 ;;
    esac
    shift
done

target=${CARGO_TARGET_DIR:-target}
venv=${DATASETRT_VENV:-$target/interop-venv}
need mksquashfs squashfs-tools
python_with_reference "$venv"

say "building (release)"
cargo build --quiet --locked --release
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$venv/bin/python" scripts/bench-pack.py "$target/release/datasetrt" "$work" "$rounds"

if [ "$huge" = yes ]; then
    need /usr/bin/time time
    say "10 million samples of 16 bytes, two metadata fields"
    printf 'sixteen bytes...' >"$work/payload"
    awk 'BEGIN { print "file,index,score"; for (n = 0; n < 10000000; n++) printf "payload,%d,%.3f\n", n, n / 1000 }' \
        >"$work/rows.csv"
    /usr/bin/time -v "$target/release/datasetrt" pack --name huge --no-path --table "$work/rows.csv" \
        --payload-column file "$work/out" 2>"$work/time"
    grep -E 'Maximum resident|Elapsed' "$work/time"
fi
