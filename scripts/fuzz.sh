#!/usr/bin/env bash
# Feeds every parser hostile bytes, for SECONDS each; ends with the first input that does harm. What was
# learnt is kept in target/fuzz/corpus, what does harm in target/fuzz/found.
#
# usage: scripts/fuzz.sh SECONDS [TARGET]    (targets: manifest metadata record lz4 control_word view cache)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

targets=(manifest metadata record lz4 control_word view cache)
[[ ${1:-} =~ ^[1-9][0-9]*$ ]] || { echo 'usage: scripts/fuzz.sh SECONDS [TARGET]' >&2; exit 2; }
if [ -n "${2:-}" ]; then
    [[ " ${targets[*]} " == *" $2 "* ]] || { echo "no target $2; there are: ${targets[*]}" >&2; exit 2; }
    targets=("$2")
fi
need g++ g++

# As cargo-fuzz builds, but without the sanitizers, which take a nightly compiler: beyond mappings the code under
# test has no unsafe code of its own.
flags=(--cfg fuzzing -Cpasses=sancov-module)
for word in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=("-Cllvm-args=-sanitizer-coverage-$word")
done
host=$(rustc -vV | sed -n 's/^host: //p')
out=$PWD/target/fuzz
(
    # Inside, for the lock file there.
    cd tests/fuzz
    RUSTFLAGS=${flags[*]} cargo build --quiet --locked --release --target "$host" --target-dir "$out"
)
bin=$out/$host/release
for target in "${targets[@]}"; do
    say "$target, $1 s"
    mkdir -p "$out/corpus/$target" "$out/found/$target"
    # Small inputs find the same faster; the time for one covers a busy machine.
    TMPDIR=$(test -d /dev/shm && echo /dev/shm || echo /tmp) "$bin/$target" \
        "$out/corpus/$target" "tests/fuzz/seeds/$target" \
        -max_total_time="$1" -timeout=30 -rss_limit_mb=1024 -malloc_limit_mb=256 -max_len=8192 \
        -artifact_prefix="$out/found/$target/" -print_final_stats=1 -verbosity="${FUZZ_VERBOSITY:-0}"
done
say "nothing found"
