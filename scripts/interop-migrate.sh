#!/usr/bin/env bash
# Migration together with the reference (dataset-rt from PyPI, in a virtual environment of its own): what
# we migrate, it loads in any order with the same ids; what it migrates, so do we; what one began, the
# other finishes; and both write the same bytes.
#
# usage: scripts/interop-migrate.sh [VENV]     (VENV is made when missing; default: a temporary one)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

reference=dataset-rt==0.4.8
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
venv=${1:-$work/venv}

build_programs
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check "$reference"

PATH="$PWD/${CARGO_TARGET_DIR:-target}/debug:$PATH" "$venv/bin/python" - "$work" <<'PYTHON'
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import dataset_rt as reference

work = Path(sys.argv[1])
runtime = reference.DatasetRuntime(num_workers=1)


class Source:
    def __init__(self, name, count):
        self.name, self.count = name, count

    def __iter__(self):
        for n in range(self.count):
            metadata = {"label": n, "text": f"{self.name} {n}", "half": n / 2}
            yield reference.CacheInput(data=f"{self.name}:{n}".encode() * 50, metadata=metadata)


def make_list():
    """Five caches as format 2 has them, and one of format 3 in between."""
    config = reference.WriterConfig(show_progress=False)
    sources = [Source(name, count) for count, name in enumerate(["t", "v", "new", "e", "x", "y"], 2)]
    written = runtime.write_cache(sources, work / "original", writer_config=config)
    paths = [result.path for result in written]
    for path in paths:
        if path.name != "new":
            manifest = path / "manifest.json"
            text = manifest.read_text(encoding="utf-8")
            text, cuts = re.subn(r'"format_version": 3,\n  "cache_id": \d+', '"format_version": 2', text)
            assert cuts == 1, text
            manifest.write_text(text, encoding="utf-8")
    return paths


def copy(name, paths):
    return [Path(shutil.copytree(path, work / name / path.name)) for path in paths]


def samples(dataset):
    return {(s.cache_id, s.sample_id): (bytes(s.data), dict(s.metadata)) for s in dataset}


def theirs_load(paths):
    config = reference.ReaderConfig(seed=1, shuffle=False, validate_cache=True)
    return runtime.cached_dataset(paths, reader_config=config)


def theirs_migrate(paths):
    result = theirs_load(paths).update_manifests(version=3)
    assert isinstance(result, reference.Ok), result
    return [(entry.cache_id, entry.status) for entry in result.value.entries]


def ours(paths, *options, status=0, step=""):
    command = ["datasetrt", "migrate", "--to", "3", "--json", *options, *paths]
    environment = {**os.environ, "DATASETRT_TEST_STEP": step}
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.returncode == status, run
    report = json.loads(run.stdout)["Ok" if status == 0 else "Err"]
    return [(entry["cache_id"], entry["status"]) for entry in report["entries"]]


def manifests(paths):
    return [(path / "manifest.json").read_bytes() for path in paths]


original = make_list()
new_id = json.loads((original[2] / "manifest.json").read_text())["cache_id"]
ids = [0, 1, new_id, 3, 4, 5]
content = samples(theirs_load(original))
assert sorted({cache_id for cache_id, _ in content}) == sorted(ids)
expected = ["unchanged" if n == 2 else "updated" for n in range(6)]
kept = ["unchanged"] * 6


def check_everywhere(paths):
    """Both read every order of four and some parts with the original ids."""
    by_path = dict(zip(paths, ids))
    orders = [list(order) + paths[4:] for order in itertools.permutations(paths[:4])]
    for order in [*orders, paths[::-1], paths[3:], [paths[4]], paths[1::2]]:
        wanted = [by_path[path] for path in order]
        assert ours(order, "--dry-run") == [(cache_id, "unchanged") for cache_id in wanted]
        loaded = samples(theirs_load(order))
        assert loaded == {key: value for key, value in content.items() if key[0] in wanted}
    before = manifests(paths)
    assert theirs_migrate(paths[::-1]) == list(zip(ids[::-1], kept))
    assert ours(paths[::-1]) == list(zip(ids[::-1], kept))
    assert manifests(paths) == before


by_us = copy("by-us", original)
assert ours(by_us) == list(zip(ids, expected))
check_everywhere(by_us)

by_them = copy("by-them", original)
assert theirs_migrate(by_them) == list(zip(ids, expected))
check_everywhere(by_them)
assert manifests(by_us) == manifests(by_them)

# Step 12 is the sync of the second folder: two manifests are new, four are not.
begun_by_us = copy("begun-by-us", original)
partial = ours(begun_by_us, status=1, step="fail:12:5")
assert partial == [(0, "updated"), (1, "durability_unknown")], partial
assert theirs_migrate(begun_by_us) == list(zip(ids, kept[:3] + expected[3:]))
check_everywhere(begun_by_us)

begun_by_them = copy("begun-by-them", original)
theirs_migrate(begun_by_them[:2])
assert ours(begun_by_them) == list(zip(ids, kept[:3] + expected[3:]))
check_everywhere(begun_by_them)

print(f"{len(content)} samples of 6 caches: same ids, samples and manifests, whoever migrates")
PYTHON
