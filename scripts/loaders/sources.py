"""Makes the files that are packed and mounted: sources.py FOLDER."""

import random
import sqlite3
import subprocess
import sys
import wave
from pathlib import Path

import h5py
import numpy
import pyarrow
import pyarrow.parquet
from PIL import Image

folder = Path(sys.argv[1])
noise = random.Random(1)


def place(path):
    path = folder / path
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


for label in ("cat", "dog"):
    for n in range(32):
        Image.frombytes("RGB", (32, 24), noise.randbytes(32 * 24 * 3)).save(place(f"pictures/{label}/{n:02}.png"))

for label in ("high", "low"):
    for n in range(3):
        with wave.open(str(place(f"sounds/{label}/{n}.wav")), "wb") as sound:
            sound.setparams((1, 2, 16_000, 0, "NONE", ""))
            sound.writeframes(noise.randbytes(16_000))

numpy.save(place("files/arrays/small.npy"), numpy.arange(9.0).reshape(3, 3))
numpy.save(place("files/arrays/large.npy"), numpy.arange(5 * 2**17, dtype=float).reshape(-1, 64))
with h5py.File(place("files/arrays/grid.h5"), "w") as file:
    file.create_dataset("grid", data=numpy.arange(100_000).reshape(100, -1), compression="gzip")

for name, mode in (("delete", "DELETE"), ("wal", "WAL")):
    base = sqlite3.connect(place(f"files/tables/{name}.db"))
    assert base.execute(f"PRAGMA journal_mode={mode}").fetchone() == (mode.lower(),)
    base.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)")
    base.executemany("INSERT INTO t VALUES (?, ?)", [(n, f"row {n}") for n in range(5000)])
    base.commit()
    base.close()

for n in range(3):
    numbers = pyarrow.array(range(n * 1000, n * 1000 + 1000))
    pyarrow.parquet.write_table(pyarrow.table({"n": numbers}), place(f"files/parts/{n}.parquet"))

for n in range(20):
    word = "needle" if n % 7 == 1 else "hay"
    place(f"files/notes/{n}.txt").write_text(f"{word} {n}\n" * (n * 100))
place("files/zeros").write_bytes(bytes(9_000_000))

subprocess.run(
    ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc=duration=2:size=160x120:rate=10",
     "-f", "lavfi", "-i", "sine=duration=2", "-shortest", place("files/clips/clip.mp4")],
    check=True,
)
