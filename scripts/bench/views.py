"""Measures views beside /samples: views.py WORK READER SAMPLES ROUNDS. See scripts/bench-views.sh."""

import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

GOAL = 1.2
# Caches of the second mount, and classes in each of them.
FOLDERS = 100

work, reader, samples, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
# Files of one run of reading: each is read once, so that none is in memory.
OPENED = min(20_000, samples // (2 * rounds))
# One cache with the view "flat", and the same number of samples in many caches with the view "classes".
one, split = work / "one", work / "split"


def run(mode, folder, *options):
    """Seconds of one run and the files that it met, on the daemon's CPU."""
    line = [reader, mode, folder, "--cpu", "0", *map(str, options)]
    out = json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
    return out["seconds"], out.get("files", out.get("entries"))


def drop_caches():
    Path("/proc/sys/vm/drop_caches").write_text("2")


def list_all(mode, folders):
    """Nanoseconds for each file of these folders."""
    drop_caches()
    seconds = sum(run(mode, folder)[0] for folder in folders)
    return seconds / samples * 1e9


def open_all(folder, names):
    """Nanoseconds to open, stat, read and close each of these files."""
    listed = work / "names"
    listed.write_text("".join(f"{name}\n" for name in names))
    drop_caches()
    return run("read", folder, "--list", listed)[0] / len(names) * 1e9


def in_turns(title, one, other):
    """Rounds of both, each round beginning with another one; the ratio of each."""
    found = []
    for n in range(rounds):
        if n % 2 == 0:
            first = one(n)
            second = other(n)
        else:
            second = other(n)
            first = one(n)
        found.append((second, first))
    ratio = statistics.median(second / first for second, first in found)
    second, first = (statistics.median(side) for side in zip(*found))
    verdict = "" if ratio <= GOAL else f"  ABOVE {GOAL}"
    print(f"{title:32}{first:12,.0f}{second:12,.0f}{ratio:8.2f}{verdict}", flush=True)
    return ratio


def status(mount):
    return json.loads((mount / ".control/status").read_text())


def built(mount, name, file):
    """Builds a view by its first look-up."""
    started = time.monotonic()
    os.stat(mount / "views" / name / file)
    took = time.monotonic() - started
    time.sleep(1.1)
    view = next(view for view in status(mount)["views"] if view["name"] == name)
    assert view["state"] == "built" and view["files"] == samples, view
    print(f"view {name}: {view['folders']} folders, built in {took:.1f} s, {view['memory_bytes'] / 2**20:.0f} MiB")


built(one, "flat", "0")
built(split, "classes", "class 0/00-00000")
cache = next((one / "samples").iterdir())
flat = one / "views/flat"
caches = sorted((split / "samples").iterdir())
classes = [split / "views/classes" / f"class {n}" for n in range(FOLDERS)]
assert len(caches) == FOLDERS, caches

numbers = random.Random(1).sample(range(samples), 2 * rounds * OPENED)
parts = [numbers[n * OPENED :][:OPENED] for n in range(2 * rounds)]


def of_caches(part):
    """These numbers below /samples of the caches."""
    return [f"{caches[n % FOLDERS].name}/{n // FOLDERS}" for n in part]


def of_classes(part):
    """These numbers in the view of the caches."""
    return [f"class {n // FOLDERS % FOLDERS}/{n % FOLDERS:02}-{n // FOLDERS:05}" for n in part]


print(f"\n{'ns for each file':32}{'/samples':>12}{'view':>12}{'ratio':>8}")
ratios = [
    in_turns("list, one folder", lambda _: list_all("list", [cache]), lambda _: list_all("list", [flat])),
    in_turns("list, 100 folders", lambda _: list_all("list", caches), lambda _: list_all("list", classes)),
    in_turns("list and stat, one folder", lambda _: list_all("stat", [cache]), lambda _: list_all("stat", [flat])),
    in_turns("list and stat, 100 folders", lambda _: list_all("stat", caches), lambda _: list_all("stat", classes)),
    in_turns(
        "open and read, one folder",
        lambda n: open_all(cache, parts[2 * n]),
        lambda n: open_all(flat, parts[2 * n + 1]),
    ),
    in_turns(
        "open and read, 100 folders",
        lambda n: open_all(split / "samples", of_caches(parts[2 * n])),
        lambda n: open_all(split / "views/classes", of_classes(parts[2 * n + 1])),
    ),
]
damaged = sum(mounted["damaged"] for mount in [one, split] for mounted in status(mount)["caches"])
assert damaged == 0, "damaged samples"
sys.exit(0 if max(ratios) <= GOAL else 1)
