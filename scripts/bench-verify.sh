#!/usr/bin/env bash
# Compares checks of whole caches with programs that hash the same shards, taking turns, with all files in memory:
# - `datasetrt verify` with sha256sum, both spread over all cores: the ratio of their best and their
#   middle times. Goal: at most 1.3.
# - the start of a mount with --validate-cache=startup with `openssl dgst -sha256`, both on one CPU: the ratio
#   of their middle times. Goal: at most 1.15. A mount without it shows what of that is no hashing.
#
#   scripts/bench-verify.sh [ROUNDS]      default 7
#
# DIR (environment): where the caches are made and kept, default target/bench-verify.
# GIB (environment): size of each cache, default 1.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

rounds=${1:-7}
[[ $rounds =~ ^[1-9][0-9]*$ ]] || { echo 'usage: scripts/bench-verify.sh [ROUNDS]' >&2; exit 2; }
gib=${GIB:-1}
dir=${DIR:-target/bench-verify}
cores=$(nproc)
need cargo cargo
need openssl openssl
need fusermount3 fuse3
need taskset util-linux
cargo build --quiet --locked --release --bins --example bench_cache
bin=$(realpath "${CARGO_TARGET_DIR:-target}")/release
mkdir -p "$dir"

work=$(mktemp -d)
mount=$work/mnt
daemon=
mkdir "$mount"
mkfifo "$work/ready"
cleanup() {
    ! mountpoint -q "$mount" || "$bin/datasetrt" umount --lazy "$mount" || true
    [ -z "$daemon" ] || { kill "$daemon" 2>/dev/null; wait "$daemon"; } || true
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# seconds COMMAND...: its wall time.
seconds() {
    local start end
    start=$(date +%s%N)
    "$@" > /dev/null
    end=$(date +%s%N)
    awk -v ns=$((end - start)) 'BEGIN { printf "%.4f\n", ns / 1e9 }'
}

sums() {
    find "$1/shards" -type f -print0 | sort -z | xargs -0 -n 1 -P "$cores" sha256sum
}

openssl_sums() {
    find "$1/shards" -type f -print0 | sort -z | xargs -0 taskset -c 0 openssl dgst -sha256
}

# Starts a daemon on one CPU and returns when its mount answers. Receipts would make the second start a short one.
start() {
    local line=
    taskset -c 0 "$bin/datasetrt-mount" -f -q --no-receipts --ready-fd 3 "$@" "$mount" 3> "$work/ready" &
    daemon=$!
    read -r line < "$work/ready" || true
    [ "$line" = READY=1 ]
}

# Sets `took`: a function in a subshell could not leave the number of the daemon.
timed_start() {
    local from until
    from=$(date +%s%N)
    start "$@" || { echo 'error: the daemon did not mount' >&2; exit 1; }
    until=$(date +%s%N)
    took=$(awk -v ns=$((until - from)) 'BEGIN { printf "%.4f\n", ns / 1e9 }')
    "$bin/datasetrt" umount "$mount"
    wait "$daemon"
    daemon=
}

for size in 1024 4096 102400 1048576; do
    cache=$dir/plain-$size
    if [ ! -f "$cache/manifest.json" ]; then
        samples=$(awk -v gib="$gib" -v size="$size" 'BEGIN { printf "%d", gib * 1073741824 / size }')
        "$bin/examples/bench_cache" "$dir" "plain-$size" "$samples" "$size" none >&2
    fi
    a=() b=()
    sums "$cache" > /dev/null # once, so that both find the pages in memory
    for _ in $(seq "$rounds"); do
        a+=("$(seconds "$bin/datasetrt" verify "$cache")")
        b+=("$(seconds sums "$cache")")
    done
    printf '%s\n' "${a[@]}" | sort -n > "$work/a"
    printf '%s\n' "${b[@]}" | sort -n > "$work/b"
    paste "$work/a" "$work/b" | awk -v size="$size" -v cores="$cores" '
        { a[NR] = $1; b[NR] = $2 }
        END {
            m = int((NR + 1) / 2)
            printf "%8d-byte samples, %d cores: verify %.3f s, sha256sum %.3f s, ratio %.2f (best %.2f)\n",
                size, cores, a[m], b[m], a[m] / b[m], a[1] / b[1]
        }'
    a=() b=() c=()
    for _ in $(seq "$rounds"); do
        timed_start --validate-cache=startup "$cache"
        a+=("$took")
        b+=("$(seconds openssl_sums "$cache")")
        timed_start "$cache"
        c+=("$took")
    done
    printf '%s\n' "${a[@]}" | sort -n > "$work/a"
    printf '%s\n' "${b[@]}" | sort -n > "$work/b"
    printf '%s\n' "${c[@]}" | sort -n > "$work/c"
    paste "$work/a" "$work/b" "$work/c" | awk -v size="$size" '
        { a[NR] = $1; b[NR] = $2; c[NR] = $3 }
        END {
            m = int((NR + 1) / 2)
            verdict = (a[m] > 1.15 * b[m]) ? "  ABOVE 1.15" : ""
            printf "%8d-byte samples, 1 CPU: mount with validation %.3f s, without %.3f s, openssl %.3f s, ratio %.2f%s\n",
                size, a[m], c[m], b[m], a[m] / b[m], verdict
        }'
done
