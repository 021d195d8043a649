#!/usr/bin/env bash
# Measures this mount beside ext4, squashfs (kernel and FUSE), EROFS, the reference implementation and a
# file system that does nothing. Needs root, a quiet machine, and about 20 GB; docs/performance.md
# explains what comes out. The data is made once, in the work folder, and kept there.
#
# usage: scripts/bench.sh [--quick] [--startup] [--rounds N] [--only REGEX] [--keep] [--no-reference] [--out FOLDER]
#   --quick         a tenth of the files, three rounds
#   --startup       also how long a cache of 10 million samples and 1,000 caches take to mount, and what memory
#   --rounds N      rounds of each case [default: 5]
#   --only REGEX    only the cases whose name matches, as in 'read 4k (warm|cold)'
#   --keep          keep the numbers of the cases that are not measured this time
#   --no-reference  leave out dataset-rt, which is installed from PyPI into a virtual environment
#   --build-only    make the data and stop
#   --out FOLDER    where the table, the JSON file and the pictures go [default: the work folder]
# BENCH_DIR names the work folder [default: target/bench]; --quick has one of its own inside.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

[ "$(id -u)" = 0 ] || { echo 'error: loop mounts and dropping caches need root' >&2; exit 1; }
work=${BENCH_DIR:-target/bench}
out=
rest=()
while [ $# -gt 0 ]; do
    case $1 in
        --quick) work=$work/quick; rest+=(--quick --rounds 3) ;;
        --out) out=$2; shift ;;
        --rounds | --only) rest+=("$1" "$2"); shift ;;
        --startup | --keep | --no-reference | --build-only) rest+=("$1") ;;
        -h | --help) sed -n '2,17s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) printf 'error: unknown option %s (see --help)\n' "$1" >&2; exit 2 ;;
    esac
    shift
done

need cargo cargo
need python3 python3
need mkfs.ext4 e2fsprogs
need mksquashfs squashfs-tools
need squashfuse_ll squashfuse
need mkfs.erofs erofs-utils
need fusermount3 fuse3
need taskset util-linux
mkdir -p "$work"
work=$(cd "$work" && pwd)
out=${out:-$work}
mkdir -p "$out"

# Whatever happens, nothing stays mounted and nothing that was started goes on: first the mounts, which
# ends the daemons, then those of our daemons that are still there.
pids=$work/pids
: >"$pids"
measuring=
cleanup() {
    [ -z "$measuring" ] || { kill "$measuring" 2>/dev/null && wait "$measuring" || true; }
    local at pid
    awk '{ print $2 }' /proc/self/mounts | grep -F "$work/mnt/" | sort -r | while read -r at; do
        timeout 30 umount "$at" 2>/dev/null || timeout 30 umount -l "$at" || true
    done
    while read -r pid; do
        # Only what still is one of our file systems: a number may be in use again.
        if grep -qaE 'datasetrt-mount|nullfs|squashfuse_ll' "/proc/$pid/cmdline" 2>/dev/null; then
            kill "$pid" 2>/dev/null || true
        fi
    done <"$pids"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

load=$(cut -d. -f1 /proc/loadavg)
[ "$load" -lt 1 ] || say "THE MACHINE IS BUSY (load $(cut -d' ' -f1 /proc/loadavg)): these numbers will mean little"

say "building"
cargo build --quiet --locked --release --bins --examples
bin=${CARGO_TARGET_DIR:-target}/release

# In the background, so that a signal reaches the trap at once.
PYTHONDONTWRITEBYTECODE=1 timeout 7200 python3 scripts/bench/run.py \
    --work "$work" --bin "$bin" --out "$out" "${rest[@]}" &
measuring=$!
wait "$measuring"
measuring=
say "written: $out/bench.md, bench.json and the pictures"
