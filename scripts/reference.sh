#!/usr/bin/env bash
# The reference implementation for comparisons. Sourced after setup.sh by interop.sh and bench-pack.sh.

reference_version=0.4.8

# python_with_reference FOLDER: makes a Python environment in FOLDER that has dataset-rt.
python_with_reference() {
    if "$1/bin/python" -c "import dataset_rt" 2>/dev/null; then
        return
    fi
    need python3 python3
    say "installing dataset-rt $reference_version into $1"
    if ! python3 -m venv "$1" >/dev/null 2>&1; then
        # Some systems part this module from Python; the command names its absence.
        need python3-venv-module python3-venv
        python3 -m venv "$1"
    fi
    "$1/bin/pip" install --quiet "dataset-rt==$reference_version"
}
