#!/usr/bin/env bash
# All checks, on a fresh machine too: installs what is missing, then format, layers, lints, documents,
# and every test, with real mounts as root and as an ordinary user.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

need fusermount3 fuse3
need strace strace
need cpio cpio
need setpriv util-linux
need python3 python3
need rsync rsync
command -v cargo >/dev/null || { echo 'error: cargo is missing: install Rust from rustup' >&2; exit 1; }
open_fuse_device
[ -d "${DATASETRT_GOLDEN:-../shared/golden}" ] || say "GOLDEN DATA ABSENT: tests against caches of the reference are left out"

say "format and layers"
cargo fmt --check
cargo fmt --check --manifest-path tests/fuzz/Cargo.toml
cargo metadata --quiet --locked --format-version 1 --manifest-path tests/fuzz/Cargo.toml >/dev/null
scripts/check-layers.sh

say "lints"
cargo clippy --quiet --locked --lib --bins -- -D warnings
# A test may panic.
cargo clippy --quiet --locked --tests --examples --benches -- -D warnings \
    -A clippy::unwrap_used -A clippy::expect_used -A clippy::panic -A clippy::indexing_slicing \
    -A clippy::cast_possible_truncation -A clippy::cast_sign_loss -A missing_docs -A unreachable_pub

say "documents"
RUSTDOCFLAGS='-D warnings' cargo doc --quiet --locked --no-deps

# The test of the package installs it over /usr, /etc and /var that are written to memory.
overlays() {
    local folder status=0
    folder=$(mktemp -d)
    unshare --mount --propagation private sh -euc '
        mount -t tmpfs none "$1"; mkdir "$1/upper" "$1/work"
        mount -t overlay overlay -o "lowerdir=/etc,upperdir=$1/upper,workdir=$1/work" /etc' - "$folder" || status=1
    rmdir "$folder"
    return "$status"
}
if [ "$(id -u)" = 0 ] && command -v dpkg-deb >/dev/null && overlays 2>/dev/null; then
    export DATASETRT_TEST_DEB=1
else
    say "THE DEBIAN PACKAGE IS NOT INSTALLED AND USED: that takes root, dpkg and overlayfs"
fi

say "tests"
export CI=true
cargo test --locked --lib --bins --tests
cargo test --locked --doc

say "chaos: no wrong byte, no hang, nothing left"
scripts/chaos.sh 5 --self-test
scripts/chaos.sh 60

say "interoperation with the reference implementation"
scripts/interop.sh
scripts/interop-migrate.sh

say "loaders"
scripts/loaders.sh

say "all good"
