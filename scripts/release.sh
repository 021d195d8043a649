#!/usr/bin/env bash
# Makes what is given away: stripped programs, a .tar.gz, a .deb, and their checksums; says how large
# the programs are and how long a mount takes to answer.
#
# usage: scripts/release.sh [--from FOLDER] [OUTPUT]
#   --from FOLDER   take the programs from there instead of building them
#   OUTPUT          where the files go (default: target/packages)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

from=
if [ "${1-}" = --from ]; then
    from=${2:?--from needs a folder}
    shift 2
fi
target=${CARGO_TARGET_DIR:-target}
out=${1:-$target/packages}
programs=(datasetrt-mount datasetrt)
need python3 python3

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
machine=$(uname -m)
case $machine in
    x86_64) arch=amd64 ;;
    aarch64) arch=arm64 ;;
    *) arch=$machine ;;
esac

if [ -z "$from" ]; then
    say "building"
    cargo build --release --locked
    from=$target/release
fi

mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say "programs"
mkdir "$work/bin"
for program in "${programs[@]}"; do
    strip --strip-all -o "$work/bin/$program" "$from/$program"
    printf '%s: %s bytes\n' "$program" "$(stat -c %s "$work/bin/$program")"
done
# Licences ask to go with what they are about.
scripts/third-party.py "$work/bin/THIRD-PARTY"

# The files of the .deb are those that Cargo.toml lists for cargo-deb: source, folder or name, mode.
say "tree"
tree=$work/tree
sed -n '/^assets = \[/,/^\]/s/^ *\["\(.*\)", "\(.*\)", "\(.*\)"\],$/\1\t\2\t\3/p' Cargo.toml >"$work/assets"
while IFS=$'\t' read -r source goal mode; do
    case $source in target/release/*) source=$work/bin/${source#target/release/} ;; esac
    # Not quoted: a source may be a pattern.
    for file in $source; do
        [ -f "$file" ] || { printf 'error: %s is missing\n' "$file" >&2; exit 1; }
        case $goal in
            */) install -D -m "$mode" "$file" "$tree/$goal$(basename "$file")" ;;
            *) install -D -m "$mode" "$file" "$tree/$goal" ;;
        esac
    done
done <"$work/assets"

say "archive"
name=datasetrt-mount-$version-$machine-linux
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" \
    --transform "s,^\./usr,$name," -C "$tree" -cf - ./usr | gzip -9n >"$out/$name.tar.gz"

if command -v dpkg-deb >/dev/null; then
    say "Debian package"
    find "$tree/usr/share/man" -name '*.1' -exec gzip -9n {} +
    mkdir "$tree/DEBIAN"
    # The C library of the machine that built it is the oldest that is known to do.
    libc=$(dpkg-query -W -f '${Version}' libc6 2>/dev/null | sed 's/[-+].*//' || true)
    cat >"$tree/DEBIAN/control" <<CONTROL
Package: datasetrt-mount
Version: $version-1
Section: utils
Priority: optional
Architecture: $arch
Depends: libc6${libc:+ (>= $libc)}, fuse3
Installed-Size: $(du -sk --exclude=DEBIAN "$tree" | cut -f1)
Maintainer: $(sed -n 's/^maintainer = "\(.*\)"$/\1/p' Cargo.toml)
Description: $(sed -n 's/^description = "\(.*\)"$/\1/p' Cargo.toml | head -1)
$(sed -n '/^extended-description = """/,/"""$/p' Cargo.toml | sed '1d; s/"""$//; s/^/ /')
CONTROL
    dpkg-deb --root-owner-group -Z"${DEB_COMPRESSION:-xz}" --build "$tree" \
        "$out/datasetrt-mount_$version-1_$arch.deb" >/dev/null
fi

say "checksums"
(cd "$out" && sha256sum -- *"$version"* | grep -v ' SHA256SUMS$' >SHA256SUMS && cat SHA256SUMS)

say "start-up"
if [ -w /dev/fuse ]; then
    "$work/bin/datasetrt" demo "$work/caches" >/dev/null
    mkdir "$work/mnt"
    for n in 1 2 3 4 5; do
        start=$(date +%s%N)
        "$work/bin/datasetrt-mount" "$work/caches" "$work/mnt"
        end=$(date +%s%N)
        "$work/bin/datasetrt" umount "$work/mnt"
        printf '%s\n' $(((end - start) / 1000))
    done | sort -n | sed -n '3s/$/ us until a mount of two small caches answers (median of 5)/p'
else
    printf 'not measured: /dev/fuse cannot be opened\n'
fi
say "done: $out"
