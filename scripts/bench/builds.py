"""Reads the same caches through two builds of the mount, in turn, and prints the ratio of their times.

Run by scripts/bench-builds.sh. A ratio below 1 says that the second build is faster.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

CPU = 0
# (name, bytes of a sample, samples, compression)
SETS = [("4k lz4", 4096, 20000, "lz4"), ("4k none", 4096, 20000, "none"), ("100k lz4", 100_000, 2000, "lz4")]


def make_files(folder, size, count):
    """Files of half random, half repeated bytes, so that lz4 has something to do."""
    folder.mkdir()
    for n in range(count):
        half = size // 2
        (folder / f"{n:06}").write_bytes(os.urandom(half) + b"datasetrt " * (half // 10 + 1))


class Mount:
    def __init__(self, build, cache, at):
        self.at = at
        ready, told = os.pipe()
        command = [build / "datasetrt-mount", "-f", "-q", "--ready-fd", str(told), cache, at]
        self.process = subprocess.Popen(command, pass_fds=[told])
        os.close(told)
        if os.read(ready, 64) != b"READY=1\n":
            raise SystemExit(f"error: {build} does not mount")
        os.close(ready)
        self.samples = next((at / "samples").iterdir())

    def pin(self, cpus):
        for thread in os.listdir(f"/proc/{self.process.pid}/task"):
            os.sched_setaffinity(int(thread), cpus)

    def end(self):
        self.process.terminate()
        self.process.wait(60)


def read(reader, mount, count, readers, seed):
    command = [reader, "read", mount.samples, "--count", str(count), "--order", "shuffled", "--seed", str(seed)]
    command += ["--readers", str(readers)] + (["--cpu", str(CPU)] if readers == 1 else [])
    mount.pin({CPU} if readers == 1 else range(os.cpu_count()))
    said = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return said["seconds"] / said["files"] * 1e6


def main():
    reader, old, new, rounds = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    print(f"| case | old us | new us | ratio (median of {rounds} pairs) |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        for name, size, count, compression in SETS:
            files, cache, at = work / f"{name} files", work / name, work / "mnt"
            make_files(files, size, count)
            pack = [old / "datasetrt", "pack", "--name", name, f"--compression={compression}", files, cache]
            subprocess.run(pack, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            at.mkdir(exist_ok=True)
            times = {}
            for seed in range(rounds + 1):
                for build in (old, new) if seed % 2 else (new, old):
                    # A new mount: the kernel has no page of it, the page cache has the shards.
                    for readers in (1, 8):
                        mount = Mount(build, cache, at)
                        try:
                            for state in ("warm", "hot"):
                                took = read(reader, mount, count, readers, seed)
                                # The first round brings everything into memory.
                                if seed:
                                    times.setdefault((state, readers), {}).setdefault(build, []).append(took)
                        finally:
                            mount.end()
            for (state, readers), found in sorted(times.items(), reverse=True):
                ratio = statistics.median(b / a for a, b in zip(found[old], found[new]))
                medians = [statistics.median(found[build]) for build in (old, new)]
                print(f"| {name} {state}, {readers} reader(s) | {medians[0]:.1f} | {medians[1]:.1f} | {ratio:.2f} |", flush=True)
            subprocess.run(["rm", "-rf", files, cache], check=True)


main()
