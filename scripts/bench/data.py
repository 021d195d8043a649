"""The files that are measured, and the same files in every form that is compared.

Everything is made once in the work folder and kept: a form whose marker is there is not made again.
"""

import os
import random
import shutil
import subprocess
from pathlib import Path

KIB = 1024
MIB = 1024 * KIB

# Name: (files, bytes of each); the quick run has a tenth of the files.
SETS = {
    "4k": (20_000, 4 * KIB),
    "20k": (20_000, 20 * KIB),
    "100k": (5_000, 100 * KIB),
    "500k": (1_000, 500 * KIB),
    "50m": (20, 50 * MIB),
    "1g": (1, 1024 * MIB),
    "tiny": (1_000_000, 32),
}
# Digits of a file's name, so that the order of names is the order of numbers.
WIDTH = 7
# Which sets exist in which form. A million files would be a part of every image.
IMAGES = [name for name in SETS if name != "50m"]
CACHES = {
    "lz4": ["4k", "20k", "100k", "500k", "50m", "tiny"],
    "none": ["4k", "20k", "100k", "500k", "1g"],
}


def say(text):
    print(f"== {text}", flush=True)


def run(*command):
    """Runs a command that should print nothing; what it prints is shown when it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=3600)
    if done.returncode != 0:
        raise SystemExit(f"error: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


class Data:
    def __init__(self, work, tools, quick):
        self.work = Path(work)
        self.tools = tools
        self.scale = 10 if quick else 1

    def count(self, name):
        files = SETS[name][0]
        return max(1, files // self.scale)

    def size(self, name):
        size = SETS[name][1]
        return size // self.scale if name == "1g" else size

    def done(self, what):
        """Whether `what` was made before; a half-made one is never taken for whole."""
        return (self.work / f"{what}.done").exists()

    def mark(self, what):
        (self.work / f"{what}.done").touch()

    # --- the files, on ext4 in an image ---

    def ext4_image(self):
        return self.work / "ext4.img"

    def build_files(self, mount_at):
        """Makes the image and fills it. It is mounted read-only for the measurements later."""
        if self.done("ext4"):
            return
        say("the files, on ext4")
        image = self.ext4_image()
        image.unlink(missing_ok=True)
        total = sum(self.count(name) * max(self.size(name), 4 * KIB) for name in SETS)
        inodes = sum(self.count(name) for name in SETS) + 1000
        with image.open("wb") as out:
            out.truncate(total * 5 // 4 + inodes * 256 + 256 * MIB)
        run("mkfs.ext4", "-q", "-F", "-N", inodes, image)
        mount_at.mkdir(parents=True, exist_ok=True)
        run("mount", "-o", "loop,noatime", image, mount_at)
        try:
            text = words(8 * MIB)
            for name in SETS:
                say(f"  {self.count(name)} files of {self.size(name)} bytes")
                fill(mount_at / name, self.count(name), self.size(name), text)
        finally:
            run("umount", mount_at)
        self.mark("ext4")

    # --- images and caches made from them ---

    def squashfs(self, name):
        return self.work / f"{name}.squashfs"

    def erofs(self, name):
        return self.work / f"{name}.erofs"

    def caches(self, compression):
        return self.work / f"caches-{compression}"

    def build_squashfs(self, source):
        for name in IMAGES:
            if self.done(f"squashfs-{name}"):
                continue
            say(f"squashfs lz4 of {name}")
            image = self.squashfs(name)
            image.unlink(missing_ok=True)
            # Looking for equal files takes hours for a million of equal length.
            fast = ["-no-duplicates", "-noappend", "-no-progress", "-quiet"]
            run("mksquashfs", source / name, image, "-comp", "lz4", *fast)
            self.mark(f"squashfs-{name}")

    def build_erofs(self, source):
        for name in IMAGES:
            if name == "tiny" or self.done(f"erofs-{name}"):
                continue
            say(f"EROFS lz4 of {name}")
            image = self.erofs(name)
            image.unlink(missing_ok=True)
            run("mkfs.erofs", "-zlz4", image, source / name)
            self.mark(f"erofs-{name}")

    def build_caches(self, source):
        for compression, names in CACHES.items():
            for name in names:
                what = f"cache-{compression}-{name}"
                if self.done(what):
                    continue
                say(f"cache of {name}, {compression}")
                out = self.caches(compression)
                shutil.rmtree(out / name, ignore_errors=True)
                pack = [self.tools["datasetrt"], "pack", "--compression", compression, "--name", name]
                run(*pack, source / name, out)
                self.mark(what)

    def build_startup_cache(self):
        """Ten million samples of no bytes to speak of, from a table."""
        out = self.work / "caches-startup"
        count = 10_000_000 // self.scale
        if self.done("startup"):
            return out / "startup"
        say(f"a cache of {count} samples, for --startup")
        shutil.rmtree(out, ignore_errors=True)
        table = self.work / "startup.jsonl"
        (self.work / "p").write_bytes(b"payload")
        with table.open("w") as lines:
            for n in range(count):
                lines.write(f'{{"f":"p","class":{n % 1000},"name":"sample-{n:08}"}}\n')
        pack = [self.tools["datasetrt"], "pack", "--compression", "none", "--name", "startup", "--no-path"]
        run(*pack, "--table", table, "--payload-column", "f", out)
        table.unlink()
        self.mark("startup")
        return out / "startup"

    def build_many_caches(self):
        """Caches of a thousand samples, in one folder."""
        out = self.work / "caches-many"
        count = 1000 // self.scale
        if self.done("many"):
            return out
        say(f"{count} caches of 1000 samples, for --startup")
        shutil.rmtree(out, ignore_errors=True)
        for n in range(count):
            run(self.tools["bench_cache"], out, f"many-{n:04}", 1000, 32, "none")
        self.mark("many")
        return out


def words(length):
    """Text of common and rare words."""
    source = random.Random(1)
    letters = "etaoinshrdlucmfwypvbgkqjxz"
    vocabulary = [
        "".join(source.choices(letters, weights=range(26, 0, -1), k=source.randint(2, 10))) for _ in range(3000)
    ]
    weights = [1 / (n + 1) for n in range(len(vocabulary))]
    text = []
    size = 0
    while size < length:
        line = " ".join(source.choices(vocabulary, weights=weights, k=1000)) + "\n"
        text.append(line)
        size += len(line)
    return "".join(text).encode()[:length]


def fill(folder, count, size, text):
    """`count` files, half noise and half text each."""
    folder.mkdir()
    source = random.Random(size)
    for n in range(count):
        path = folder / f"{n:0{WIDTH}}"
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        left = size
        while left > 0:
            piece = min(left, 4 * MIB)
            half = piece // 2
            start = source.randrange(len(text) - (piece - half) + 1)
            os.write(descriptor, source.randbytes(half) + text[start : start + piece - half])
            left -= piece
        os.close(descriptor)
