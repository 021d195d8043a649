"""The caches of a run, the bytes that are true of them, and their being whole at the end."""

import hashlib
import json
import shutil
import struct
import subprocess
from random import Random

SIZES = (
    0, 1, 7, 100, 512, 4095, 4096, 4097, 10_000, 40_000, 65_535, 65_537, 131_072, 200_000, 300_000,
    1_000_000, 3_000_000,
)
SAMPLES = 34
# A sample whose number divides by this may have its payload changed, where nothing but the sums covers it.
MARK = 3
# In uncompressed payloads only bytes at multiples of this are changed.
STRIDE = 64

# name, compression, format version, what is done to it
CACHES = (
    ("old-raw", "none", 2, None),
    ("old-lz4", "lz4", 2, None),
    ("raw", "none", 3, None),
    ("lz4", "lz4", 3, None),
    ("cut-raw", "none", 3, "cut"),
    ("cut-lz4", "lz4", 3, "cut"),
    ("flip-raw", "none", 3, "flip"),
    ("flip-lz4", "lz4", 3, "flip"),
)


def noise(random, size, compressible):
    if not compressible:
        return random.randbytes(size)
    parts, length = [], 0
    while length < size:
        part = random.randbytes(random.randint(1, 300)) * random.randint(1, 40)
        parts.append(part)
        length += len(part)
    return b"".join(parts)[:size]


class Cache:
    """One cache on disk."""

    def __init__(self, position, folder, fate, compression, samples):
        self.position = position
        self.folder = folder
        self.fate = fate
        self.lz4 = compression == "lz4"
        self.samples = samples
        self.manifest = (folder / "manifest.json").read_bytes()
        self.metadata = (folder / "metadata.arrow").read_bytes()
        index = (folder / "index.bin").read_bytes()
        self.rows = list(struct.iter_unpack("<3Q", index))
        manifest = json.loads(self.manifest)
        self.shards = [folder / "shards" / shard["name"] for shard in manifest["shards"]]
        self.version = manifest["format_version"]
        self.id = manifest.get("cache_id", position)
        self._sums = self._take_sums()

    def _files(self):
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    def _take_sums(self):
        names = [path for path in self._files() if path.name != "manifest.json"]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in names}

    def is_right(self, sample, offset, found):
        """Whether `found` may be what stands at `offset` of a sample's payload."""
        if not found:
            return True
        true = self.samples[sample]
        if found == true[offset : offset + len(found)] and offset + len(found) <= len(true):
            return True
        if self.fate != "flip" or sample % MARK:
            return False
        if self.lz4:
            return True
        differ = (at for at, pair in enumerate(zip(true[offset:], found), offset) if pair[0] != pair[1])
        return offset + len(found) <= len(true) and all(at % STRIDE == 0 for at in differ)

    def has_right_size(self, sample, size):
        return self.open_to_changes(sample) or size == len(self.samples[sample])

    def open_to_changes(self, sample):
        """Whether bits of the sample's payload are flipped, and with them those of the length that it states."""
        return self.fate == "flip" and self.lz4 and sample % MARK == 0

    def migrated(self):
        """Whether the manifest on disk has an id that it had not at first; it must be a whole one."""
        now = (self.folder / "manifest.json").read_bytes()
        if now == self.manifest:
            return False
        old, new = json.loads(self.manifest), json.loads(now)
        expected = old | {"format_version": 3, "cache_id": self.id}
        if new != expected:
            raise AssertionError(f"{self.folder}: manifest.json is neither the old nor the new one")
        return True

    def take_back_migration(self):
        (self.folder / "manifest.json").write_bytes(self.manifest)

    def leftovers(self):
        """Files that do not belong to the cache."""
        known = set(self._sums) | {str(self.folder / "manifest.json")}
        return [path for path in self._files() if str(path) not in known]

    def damage(self):
        """Files that are not what they were at first."""
        return [path for path, found in self._take_sums().items() if self._sums.get(path) != found]


def make(work, tool, seed):
    """Packs all caches below `work`."""
    made = []
    for position, (name, compression, version, fate) in enumerate(CACHES):
        random = Random(f"{seed}/{name}")
        source = work / "source"
        samples = []
        for number in range(SAMPLES):
            size = SIZES[number % len(SIZES)] + (number // len(SIZES)) * (size_step(number))
            samples.append(noise(random, size, compression == "lz4"))
            # In bytewise order the names count up, so that each sample has the number of its file.
            path = source / f"class-{number * 4 // SAMPLES}" / f"{number:05}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(samples[-1])
        command = [
            tool, "pack", "--name", name, "--compression", compression, "--max-shard-bytes", "1MiB",
            source, work / "caches",
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        shutil.rmtree(source)
        folder = work / "caches" / name
        if version == 2:
            make_version_2(folder / "manifest.json")
        made.append(Cache(position, folder, fate, compression, samples))
    return made


def size_step(number):
    return number % 13


def make_version_2(path):
    manifest = json.loads(path.read_bytes())
    del manifest["cache_id"]
    path.write_text(json.dumps(manifest | {"format_version": 2}, indent=2), encoding="utf-8")
