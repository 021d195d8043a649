#!/usr/bin/env bash
# Installs what mounting and testing need, where it is missing. Sourced by demo.sh and check.sh.

say() { printf '== %s\n' "$*"; }

# need COMMAND PACKAGE: installs PACKAGE when COMMAND is missing and we may.
need() {
    command -v "$1" >/dev/null 2>&1 && return
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "installing $2 (for $1)"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$2"; } >/dev/null
    else
        printf 'error: %s is missing: install the package %s\n' "$1" "$2" >&2
        exit 1
    fi
}

# The programs, of a debug build. Together with a test they have the same features as for all tests, so that
# nothing is built that the tests have built.
build_programs() { cargo build --quiet --locked --bins --test docs; }

# Ordinary users can open the device on most systems; where they cannot, root lets them.
open_fuse_device() {
    if [ ! -e /dev/fuse ]; then
        printf 'error: /dev/fuse is missing: load the fuse module, or give the container the device\n' >&2
        exit 1
    fi
    if [ "$(id -u)" = 0 ] && [ "$(stat -c %a /dev/fuse)" != 666 ]; then
        say "chmod 0666 /dev/fuse, so that tests can mount as an ordinary user"
        chmod 0666 /dev/fuse
    fi
}
