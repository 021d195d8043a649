#!/usr/bin/env bash
# Runs every recipe of docs/loaders.md on a mount of caches that are packed for this, and compares what it
# gives with the packed files. Installs what it needs: Python packages from PyPI into a folder that is
# removed afterwards, and, as root, ffmpeg, busybox and rsync.
#
# usage: scripts/loaders.sh [--all] [--only RECIPE] [--venv FOLDER]
#   --all           also what needs torch: from PyPI that is 3 GB with all that it brings along
#   --only RECIPE   one recipe
#   --venv FOLDER   keep the Python packages there, and use them when they are there [default: a temporary one]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

packages=(datasets duckdb h5py numpy pillow polars pyarrow webdataset)
options=()
venv=
while [ $# -gt 0 ]; do
    case $1 in
        --all) options+=("$1"); packages+=(torch torchcodec torchvision) ;;
        --only) options+=("$1" "$2"); shift ;;
        --venv) venv=$2; shift ;;
        -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) printf 'error: unknown option %s (see --help)\n' "$1" >&2; exit 2 ;;
    esac
    shift
done

need fusermount3 fuse3
need ffmpeg ffmpeg
need busybox busybox
need rsync rsync
need python3 python3

say "building"
build_programs
bin=$(realpath "${CARGO_TARGET_DIR:-target}")/debug

work=$(mktemp -d)
cleanup() {
    local mount
    for mount in data pictures; do
        ! mountpoint -q "$work/$mount" || "$bin/datasetrt" umount --lazy "$work/$mount"
    done
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

venv=${venv:-$work/venv}
say "Python packages: ${packages[*]}"
if [ ! -x "$venv/bin/pip" ]; then
    # Some systems part this module from Python; the command names its absence.
    python3 -m venv "$venv" >/dev/null 2>&1 || { need python3-venv-module python3-venv; python3 -m venv "$venv"; }
fi
"$venv/bin/pip" install --quiet --no-cache-dir --disable-pip-version-check "${packages[@]}"

say "packing and mounting"
files=$work/originals
"$venv/bin/python" scripts/loaders/sources.py "$files"
pack() { "$bin/datasetrt" pack "$@" >/dev/null; }
for name in pictures sounds files; do
    pack --name $name "$files/$name" "$work/caches"
done
# Class folders as cache ids, which sort as text. An id is no part of any checksum.
pack --name cat "$files/pictures/cat" "$work/classes"
pack --name dog --compression none "$files/pictures/dog" "$work/classes"
sed -i -E 's/("cache_id": ?)[0-9]+/\12/' "$work/classes/cat/manifest.json"
sed -i -E 's/("cache_id": ?)[0-9]+/\110/' "$work/classes/dog/manifest.json"
mkdir "$work/data" "$work/pictures"
of() { printf '%s={path...} where source_name == "%s"' "$1" "$1"; }
"$bin/datasetrt-mount" --view "$(of pictures)" --view "$(of sounds)" --view "$(of files)" \
    "$work/caches" "$work/data"
"$bin/datasetrt-mount" "$work/classes" "$work/pictures"

# Nothing of this may come from the network or stay behind.
export HF_HOME=$work/huggingface HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1
export LOADERS_WORK=$work LOADERS_ORIGINALS=$files LOADERS_MOUNT=$work/data LOADERS_PICTURES=$work/pictures
"$venv/bin/python" -B scripts/loaders/run.py "${options[@]}"

say "no sample was damaged, and the mounts end"
for mount in data pictures; do
    [ "$(wc -c <"$work/$mount/.control/damaged")" = 0 ]
    "$bin/datasetrt" umount "$work/$mount"
done
