#!/usr/bin/env bash
# Kills a migration of 50 caches by SIGKILL at a random moment, ROUNDS times (default 1000; each takes
# about half a second), and checks after each that every manifest is whole, that the list opens with its
# ids and samples, and that a retry finishes. Prints how the kills were spread.
#
# usage: scripts/migrate-chaos.sh [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-1000}
[[ $rounds =~ ^[1-9][0-9]*$ ]] || { echo 'usage: scripts/migrate-chaos.sh [ROUNDS]' >&2; exit 2; }
DATASETRT_CHAOS_ROUNDS=$rounds exec cargo test --quiet --locked --test migrate_crash -- \
    --nocapture chaos::
