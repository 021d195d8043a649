#!/usr/bin/env bash
# From a fresh machine to a mounted cache: installs what is missing, builds, makes 64 small pictures,
# mounts them, looks around, compares a checksum, and unmounts.
#
# usage: scripts/demo.sh [FOLDER]     (FOLDER is made when missing; default: a temporary one)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

need fusermount3 fuse3
command -v cargo >/dev/null || { echo 'error: cargo is missing: install Rust from rustup' >&2; exit 1; }

say "building"
cargo build --quiet --locked
target=${CARGO_TARGET_DIR:-target}/debug

folder=${1:-$(mktemp -d)}
mkdir -p "$folder/mnt"
mount=$folder/mnt
unmount() {
    if mountpoint -q "$mount"; then
        if [ "$(id -u)" = 0 ]; then umount "$mount"; else fusermount3 -u "$mount"; fi
    fi
}
trap unmount EXIT

run() { printf '\n$ %s\n' "$*"; "$@"; }

say "the same 64 pictures in two caches, one with lz4, one without"
[ -d "$folder/caches" ] || run "$target/datasetrt" demo "$folder/caches"

say "mounting"
run "$target/datasetrt-mount" "$folder/caches" "$mount"

say "the tree"
run ls "$mount" "$mount/samples" "$mount/by-name"
id=$(basename "$(readlink "$mount/by-name/demo-lz4")")
printf '\n$ ls -l %s/samples/%s | head -5\n' "$mount" "$id"
ls -l "$mount/samples/$id" | sed -n 1,5p

say "a sample is an ordinary file"
printf '\n$ cat %s/samples/%s/0 | head -c 8 | od -c\n' "$mount" "$id"
head -c 8 "$mount/samples/$id/0" | od -c

say "the same bytes as the tool gives"
mounted=$(sha256sum <"$mount/samples/$id/7")
given=$("$target/datasetrt" cat "$folder/caches/demo-lz4" 7 | sha256sum)
printf 'through the mount: %s\nby datasetrt cat:  %s\n' "$mounted" "$given"
[ "$mounted" = "$given" ] || { echo 'error: they differ' >&2; exit 1; }

say "what is mounted"
printf '\n$ head -12 %s/.control/status\n' "$mount"
sed -n 1,12p "$mount/.control/status"

say "unmounting"
unmount
say "done; the caches are in $folder/caches"
