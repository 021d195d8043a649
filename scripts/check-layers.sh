#!/usr/bin/env bash
# Holds the sources to the layers of docs/CONTRIBUTING.md: who may import which library and which layer.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0

# What the files say before their tests, as FILE:LINE:TEXT.
sources() {
    find "$@" -name '*.rs' ! -name tests.rs -exec awk '
        FNR == 1 { tests = 0 }
        /^#\[cfg\(test\)\]/ { tests = 1 }
        !tests { print FILENAME ":" FNR ":" $0 }' {} +
}

# only PATTERN FILES-REGEX WHY: lines that match PATTERN may stand only in files that match the regex.
only() {
    local found
    found=$(sources src | grep -E "$1" | grep -vE "^($2)" || true)
    if [ -n "$found" ]; then
        printf '%s\n%s\n' "layers: $3" "$found" >&2
        failed=1
    fi
}

only '\bfuser::' 'src/fuse(\.rs|/)' 'only src/fuse may use fuser'
only '\bclap::|\bindicatif::|\benv_logger::' 'src/cli(\.rs|/)' 'only src/cli may use clap, indicatif and env_logger'
only '\barrow_[a-z]+::' 'src/format/metadata(\.rs|/)' 'only src/format/metadata may use arrow'
only '\blz4_flex::' 'src/format/record\.rs' 'only src/format/record.rs may use lz4_flex'
only '[^:]\binfer::(get|Infer|Type|is)' 'src/view/sniff\.rs' 'only src/view/sniff.rs may use infer'
only '\blandlock::|\bseccompiler::' 'src/fuse/confine(\.rs|/)' 'only src/fuse/confine may take rights away'
only '\bmemmap2::' 'src/storage(\.rs|/)' 'only src/storage may map files'
only '\bunsafe\b *(\{|fn|impl)' 'src/storage(\.rs|/)' 'only src/storage may be unsafe'
only '\bstd::fs\b' 'src/storage(\.rs|/)|src/fuse/|src/cli(\.rs|/)' 'only src/storage reaches files of caches'

# below LAYER FORBIDDEN...: a layer imports only what stands below it.
below() {
    local layer=$1 found
    shift
    local names
    names=$(IFS='|'; echo "$*")
    local places=("src/$layer.rs")
    [ -d "src/$layer" ] && places+=("src/$layer")
    found=$(sources "${places[@]}" | grep -E "crate::($names)\b" | grep -vE ':[0-9]+: *//' || true)
    if [ -n "$found" ]; then
        printf 'layers: src/%s may not import %s\n%s\n' "$layer" "$names" "$found" >&2
        failed=1
    fi
}

below error parallel format storage cache dataset verify view migrate writer vfs fuse cli
below parallel error format storage cache dataset verify view migrate writer vfs fuse cli
below format storage cache dataset verify view migrate writer vfs fuse cli
below storage format cache dataset verify view migrate writer vfs fuse cli
below cache dataset verify view migrate writer vfs fuse cli
below dataset verify view migrate writer vfs fuse cli
below view storage verify migrate writer vfs fuse cli
below verify view migrate writer vfs fuse cli
below migrate verify view writer vfs fuse cli
below writer cache dataset verify view migrate vfs fuse cli
below vfs fuse cli
below fuse cli

# Sources are ASCII but for the texts that tests need.
if grep -rnP '[^\x00-\x7F]' scripts Cargo.toml >&2; then
    echo 'ascii: scripts and Cargo.toml are plain ASCII' >&2
    failed=1
fi
exit $failed
