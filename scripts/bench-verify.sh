#!/usr/bin/env bash
# Compares `datasetrt verify` with sha256sum of the same shards, spread over all cores: the two take
# turns, and the ratio of their best and their middle times is printed. Goal: at most 1.3.
#
#   scripts/bench-verify.sh [ROUNDS]      default 7
#
# DIR (environment): where the caches are made and kept, default target/bench-verify.
# GIB (environment): size of each cache, default 1.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-7}
gib=${GIB:-1}
dir=${DIR:-target/bench-verify}
cores=$(nproc)
cargo build --quiet --locked --release --bin datasetrt --example bench_cache
bin=target/release/datasetrt
mkdir -p "$dir"

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

for size in 1024 4096 102400 1048576; do
    cache=$dir/plain-$size
    if [ ! -f "$cache/manifest.json" ]; then
        target/release/examples/bench_cache "$dir" "plain-$size" $((gib * 1073741824 / size)) "$size" none >&2
    fi
    a=() b=()
    sums "$cache" > /dev/null # once, so that both find the pages in memory
    for _ in $(seq "$rounds"); do
        a+=("$(seconds "$bin" verify "$cache")")
        b+=("$(seconds sums "$cache")")
    done
    printf '%s\n' "${a[@]}" | sort -n > "$dir/a"
    printf '%s\n' "${b[@]}" | sort -n > "$dir/b"
    paste "$dir/a" "$dir/b" | awk -v size="$size" -v cores="$cores" '
        { a[NR] = $1; b[NR] = $2 }
        END {
            m = int((NR + 1) / 2)
            printf "%8d-byte samples, %d cores: verify %.3f s, sha256sum %.3f s, ratio %.2f (best %.2f)\n",
                size, cores, a[m], b[m], a[m] / b[m], a[1] / b[1]
        }'
done
