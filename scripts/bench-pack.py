"""Times packing by three programs in turn.

Two times are taken: until the program returned, and until all that it wrote was on the disk, which for
`datasetrt pack` is the same but for a moment, since it syncs before it returns; the others do not sync.

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
        returned = {name: [] for name in programs}
        on_disk = {name: [] for name in programs}
        for _ in range(ROUNDS + 1):
            for name, run in programs.items():
                out = WORK / "out"
                os.sync()
                start = time.perf_counter()
                run(folder, out)
                returned[name].append(time.perf_counter() - start)
                os.sync()
                on_disk[name].append(time.perf_counter() - start)
                shutil.rmtree(out) if out.is_dir() else out.unlink()
        shutil.rmtree(folder)
        print(f"\n{count} x {size} bytes, lz4, {CORES} cores, median of {ROUNDS}"
              " (the first round is left out)")
        mine = statistics.median(returned["datasetrt pack"][1:])
        for name in programs:
            until = [statistics.median(times[name][1:]) for times in (returned, on_disk)]
            print(f"  {name:24} returned after {until[0]:7.3f} s, {until[0] / mine:5.2f} x our time;"
                  f" on disk after {until[1]:7.3f} s, {until[1] / mine:5.2f} x our time")


main()
