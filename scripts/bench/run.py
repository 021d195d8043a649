"""Runs the cases in interleaved rounds. Started by scripts/bench.sh, as root."""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

import cases
import report
from data import Data, say
from systems import Mounts, check_erofs, drop_caches

# Single readers and the daemon that answers them.
CPU = 0
REFERENCE = "dataset-rt==0.4.8"

# argv: folder of the samples, their number, seed, how they are opened
PYTHON_READS = """
import os, random, sys, time
folder, count, seed, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
order = [f"{folder}/{n}" for n in random.Random(seed).sample(range(count), count)]
start = time.perf_counter()
if how == "open":
    for path in order:
        with open(path, "rb") as file:
            file.read()
else:
    for path in order:
        descriptor = os.open(path, os.O_RDONLY)
        os.read(descriptor, 1 << 20)
        os.close(descriptor)
print(time.perf_counter() - start)
"""
# argv: cache, its number of samples, seed, how they are read
REFERENCE_READS = """
import random, sys, time
import dataset_rt
cache, count, seed, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
runtime = dataset_rt.DatasetRuntime(num_workers=2)
dataset = runtime.cached_dataset([cache], reader_config=dataset_rt.ReaderConfig(seed=seed))
id = int(sys.argv[5])
order = random.Random(seed).sample(range(count), count)
start = time.perf_counter()
if how == "get_item":
    for n in order:
        dataset.get_item(id, n)
else:
    read = 0
    for sample in dataset:
        read += 1
        if read == count:
            break
    assert read == count, read
print(time.perf_counter() - start)
"""

# argv: folder of the samples, digits of a name, their number, seed, workers
TORCH_EPOCH = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset
folder, (width, count, seed, workers) = sys.argv[1], map(int, sys.argv[2:])
class Files(Dataset):
    def __len__(self):
        return count
    def __getitem__(self, n):
        with open(f"{folder}/{n:0{width}}", "rb") as file:
            return len(file.read())
torch.manual_seed(seed)
start = time.perf_counter()
read = sum(int(batch.sum()) for batch in DataLoader(Files(), batch_size=64, shuffle=True, num_workers=workers))
assert read > 0
print(time.perf_counter() - start)
"""


class Runner:
    def __init__(self, args, data, mounts, tools):
        self.args = args
        self.data = data
        self.mounts = mounts
        self.tools = tools
        self.python = self.reference_python()
        # Case: system: runs
        self.results = {}
        earlier = Path(args.out, "bench.json")
        if args.keep and earlier.exists():
            self.results = json.loads(earlier.read_text())["results"]

    def reference_python(self):
        """A Python that has the reference implementation; None when it cannot be installed."""
        if self.args.no_reference:
            return None
        venv = self.data.work / "venv"
        python = venv / "bin" / "python"
        try:
            if not python.exists():
                subprocess.run([sys.executable, "-m", "venv", venv], check=True, timeout=300)
            if subprocess.run([python, "-c", "import dataset_rt"], capture_output=True).returncode != 0:
                pip = [venv / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", REFERENCE]
                subprocess.run(pip, check=True, timeout=600)
            return python
        except (OSError, subprocess.SubprocessError) as error:
            say(f"SKIPPED: {REFERENCE}: cannot be installed: {error}")
            return None

    def run_all(self):
        wanted = [case for case in cases.cases() if re.search(self.args.only, cases.name(case))]
        for number, case in enumerate(wanted, 1):
            start = time.monotonic()
            self.run_case(case)
            took = time.monotonic() - start
            print(f"[{number}/{len(wanted)}] {report.line(cases.name(case), self.results)} ({took:.0f} s)", flush=True)
            self.save()
        if self.args.startup:
            self.startup()
            self.save()

    def run_case(self, case):
        measured = {}
        for system in case.systems:
            if measure := self.measure_of(case, system):
                measured[system] = measure
        runs = {system: [] for system in measured}
        names = list(measured)
        for round in range(self.args.rounds):
            # Nobody is always first.
            for system in names[round % max(1, len(names)) :] + names[: round % max(1, len(names))]:
                try:
                    runs[system].append(measured[system](round + 1))
                except subprocess.SubprocessError as error:
                    say(f"FAILED: {cases.name(case)} on {system}: {error}")
        self.results[cases.name(case)] = {system: done for system, done in runs.items() if done}

    def torch_measure(self, case, system):
        """An epoch of PyTorch's DataLoader; None where there is no PyTorch or no such mount."""
        pythons = [python for python in (self.python, sys.executable) if python]
        has_torch = lambda python: subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0
        python = next(filter(has_torch, pythons), None)
        found = self.mounts.find(system, case.set)
        if python is None:
            say(f"SKIPPED: {cases.name(case)}: {pythons[0]} has no PyTorch (pip install torch)")
        if python is None or found is None:
            return None
        count = self.data.count(case.set)

        def measure(round):
            drop_caches()
            seconds = float(self.call([python, "-c", TORCH_EPOCH, found.folder, found.width, count, round, case.readers]))
            return {"seconds": seconds, "us": seconds / count * 1e6}

        return measure

    def measure_of(self, case, system):
        """A function from the round to a result; None where there is nothing to measure."""
        if case.kind == "torch":
            return self.torch_measure(case, system)
        if case.kind in ("python", "epoch"):
            return self.reference_measure(case, system)
        found = self.mounts.find(system, case.set)
        if found is None or (case.state == "warm" and system == "ext4"):
            # ext4's own caches are the page cache: warm would be hot.
            return None
        command = self.command(case, found)
        return lambda round: self.timed(case, found, command(round))

    def command(self, case, system):
        reader = self.tools["bench-reader"]
        if case.kind in cases.READING:
            count, size = self.data.count(case.set), self.data.size(case.set)
            fixed = [reader, "read", system.folder, "--count", count, "--width", system.width, "--order", "shuffled"]
            fixed += ["--readers", case.readers]
            if size > 1 << 20:
                fixed += ["--buffer", 1 << 20]
            if case.readers == 1:
                fixed += ["--cpu", CPU]
            return lambda round: [*fixed, "--seed", round]
        if case.kind == "cat":
            return lambda round: [reader, "cat", system.file(0), "--cpu", CPU]
        pinned = ["taskset", "-c", CPU]
        listing = {
            "ls -f": [*pinned, "ls", "-f", system.folder],
            "ls -l": [*pinned, "ls", "-l", system.folder],
            "scandir": [reader, "stat", system.folder, "--cpu", CPU],
            "find": [*pinned, "find", system.folder, "-size", "+1000k"],
        }[case.kind]
        return lambda round: listing

    def timed(self, case, system, command):
        if case.state == "hot":
            self.call(command)
        else:
            drop_caches()
            # The daemon hears of each inode that was dropped.
            time.sleep(0.1)
        if case.state == "warm":
            system.warm()
        if case.readers == 1:
            system.pin({CPU})
        try:
            before = system.cpu_seconds() if system.daemon else None
            start = time.perf_counter()
            output = self.call(command)
            seconds = time.perf_counter() - start
            cpu = system.cpu_seconds() - before if system.daemon else None
        finally:
            system.pin(range(os.cpu_count()))
        files = self.data.count(case.set)
        result = {"seconds": seconds}
        if command[0] == self.tools["bench-reader"]:
            said = json.loads(output)
            result["seconds"] = said["seconds"]
            if case.kind in cases.READING:
                files = said["files"]
                result["p50_us"] = said["ns_per_file"]["p50"] / 1000
        result["us"] = result["seconds"] / files * 1e6
        if cpu is not None:
            result["cpu_us"] = cpu / files * 1e6
        return result

    def call(self, command):
        # Listings go to a file: ls and find look at where they write.
        with (self.data.work / "output").open("w+") as out:
            subprocess.run([str(part) for part in command], stdout=out, check=True, timeout=900)
            out.seek(0)
            return out.read(1 << 16)

    def reference_measure(self, case, system):
        ours = self.mounts.find("ours lz4", case.set)
        if self.python is None or ours is None:
            return None
        count = self.data.count(case.set)
        cache = self.data.caches("lz4") / case.set
        reference = system.startswith("dataset-rt")
        how = {"dataset-rt get_item": "get_item", "ours open()": "open", "ours os.open()": "os"}.get(system, "all")

        def measure(round):
            drop_caches()
            ours.warm()
            if reference:
                id = ours.folder.name
                command = [self.python, "-c", REFERENCE_READS, cache, count, round, how, id]
            elif case.kind == "epoch":
                command = [self.tools["bench-reader"], "read", ours.folder, "--count", count]
                command += ["--order", "shuffled", "--seed", round, "--readers", case.readers]
                seconds = json.loads(self.call(command))["seconds"]
                return {"seconds": seconds, "us": seconds / count * 1e6}
            else:
                command = [self.python, "-c", PYTHON_READS, ours.folder, count, round, how]
            if case.readers == 1:
                command = ["taskset", "-c", CPU, *command]
                ours.pin({CPU})
            try:
                seconds = float(self.call(command))
            finally:
                ours.pin(range(os.cpu_count()))
            return {"seconds": seconds, "us": seconds / count * 1e6}

        return measure

    def startup(self):
        """One large cache, then many small ones."""
        tables = ["index.bin", "metadata.arrow"]
        one = self.data.build_startup_cache()
        self.start_beside_reading("startup", one, [one / name for name in tables])
        many = self.data.build_many_caches()
        files = [cache / name for cache in sorted(many.iterdir()) for name in ["manifest.json", *tables]]
        self.start_beside_reading("startup caches", many, files)

    def start_beside_reading(self, name, caches, files):
        """From the command to a mount that answers, against reading what it has to read once."""

        def read():
            # One process, as the daemon is one.
            subprocess.run(["cat", *files], check=True, stdout=subprocess.DEVNULL, timeout=600)

        at = self.mounts.point("startup")
        runs = {"ours": [], "read": [], "ours cold": [], "read cold": []}
        for _ in range(self.args.rounds):
            for state in ["", " cold"]:
                for what in ["read", "ours"]:
                    drop_caches()
                    if not state:
                        read()
                    if what == "read":
                        start = time.perf_counter()
                        read()
                        run = {"seconds": time.perf_counter() - start}
                    else:
                        seconds, anonymous = self.mounts.timed_start(at, caches)
                        run = {"seconds": seconds, "anon_mib": anonymous}
                    run["us"] = run["seconds"] * 1e6
                    runs[what + state].append(run)
        self.results[name] = runs
        print(report.line(name, self.results), flush=True)

    def save(self):
        out = {
            "machine": machine(),
            "quick": self.args.quick,
            "rounds": self.args.rounds,
            "results": self.results,
            "goals": report.judged(cases.goals(), self.results),
        }
        Path(self.args.out, "bench.json").write_text(json.dumps(out, indent=1))


def machine():
    cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), ":")
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line)
    return {
        "kernel": platform.release().split("-")[0],
        "cpu": cpu.partition(":")[2].strip(),
        "cpus": os.cpu_count(),
        "memory_gib": round(int(memory.split()[1]) / 1024 / 1024),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--startup", action="store_true")
    parser.add_argument("--no-reference", action="store_true")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--work", required=True)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    binaries = Path(args.bin)
    tools = {name: binaries / name for name in ["datasetrt", "datasetrt-mount"]}
    tools |= {name: binaries / "examples" / name for name in ["nullfs", "bench-reader", "bench_cache"]}
    data = Data(args.work, tools, args.quick)
    mounts = Mounts(data, tools)
    build(data, mounts)
    if args.build_only:
        return
    try:
        say("mounting")
        mounts.mount_all()
        say(f"measuring, {args.rounds} rounds; us a file")
        runner = Runner(args, data, mounts, tools)
        runner.run_all()
    finally:
        mounts.unmount_all()
    report.write(Path(args.out))


def build(data, mounts):
    data.build_files(mounts.root / "build")
    at = mounts.kernel("build", "ext4", data.ext4_image())
    try:
        data.build_squashfs(at)
        if check_erofs(data):
            data.build_erofs(at)
        data.build_caches(at)
    finally:
        subprocess.run(["umount", at], check=True, timeout=60)


if __name__ == "__main__":
    main()
