"""Times packing by three programs in turn.

usage: bench-pack.py DATASETRT WORK-FOLDER ROUNDS
"""

import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import dataset_rt

TOOL, WORK, ROUNDS = Path(sys.argv[1]).resolve(), Path(sys.argv[2]), int(sys.argv[3])
CORES = len(os.sched_getaffinity(0))


def make_files(folder, count, size):
    """Alternating random bytes and repeated text: lz4 stores a little more than half of it."""
    rng = random.Random(1)
    text = b"a line of text that comes back again and again, as text does.\n" * 8
    folder.mkdir()
    for n in range(count):
        data = bytearray()
        while len(data) < size:
            data += rng.randbytes(256) + text[:256]
        (folder / f"{n:06}.bin").write_bytes(data[:size])


class Source:
    """The files of a folder for dataset-rt's writer."""

    def __init__(self, folder):
        self.name, self.folder = "set", folder

    def __iter__(self):
        for path in sorted(os.listdir(self.folder)):
            with open(self.folder / path, "rb") as file:
                yield dataset_rt.CacheInput(data=file.read(), metadata={"path": path})


def ours(folder, out):
    subprocess.run([TOOL, "pack", "--name", "set", folder, out], check=True, stdout=subprocess.DEVNULL)


def reference(workers):
    runtime = dataset_rt.DatasetRuntime(num_workers=workers)
    config = dataset_rt.WriterConfig(
        shard_compression=dataset_rt.ShardCompression(algo="lz4", ratio=2.0), show_progress=False)

    def run(folder, out):
        out.mkdir()
        [result] = runtime.write_cache(Source(folder), out, writer_config=config)
        assert isinstance(result, dataset_rt.CacheWriteSuccess), result

    return run


def mksquashfs(folder, out):
    subprocess.run(["mksquashfs", folder, out, "-comp", "lz4", "-quiet", "-no-progress"],
                   check=True, stdout=subprocess.DEVNULL)


def main():
    programs = {"datasetrt pack": ours}
    for workers in sorted({1, CORES}):
        programs[f"dataset-rt, {workers} worker{'s' * (workers > 1)}"] = reference(workers)
    programs["mksquashfs"] = mksquashfs
    for count, size in ((20_000, 4_096), (2_000, 100_000)):
        folder = WORK / "in"
        make_files(folder, count, size)
        seconds = {name: [] for name in programs}
        for _ in range(ROUNDS + 1):
            for name, run in programs.items():
                out = WORK / "out"
                os.sync()
                start = time.perf_counter()
                run(folder, out)
                seconds[name].append(time.perf_counter() - start)
                shutil.rmtree(out) if out.is_dir() else out.unlink()
        shutil.rmtree(folder)
        print(f"\n{count} x {size} bytes, lz4, {CORES} cores, median of {ROUNDS}"
              " (the first round is left out)")
        mine = statistics.median(seconds["datasetrt pack"][1:])
        for name, times in seconds.items():
            median = statistics.median(times[1:])
            print(f"  {name:24} {median:7.3f} s  {count * size / median / 1e6:7.0f} MB/s"
                  f"  {count / median:8.0f} samples/s  {median / mine:5.2f} x our time")


main()
