"""What is done to caches and daemon while they are read. Each attack on a file is taken back later."""

import errno
import os
import signal
import time

from links import LinkAttacks
from stock import MARK, STRIDE


class Pain:
    """Tells readers which caches are under attack."""

    def __init__(self, shared, cache):
        self._shared = shared
        self._cache = cache
        self.attacks = 0
        # Damage that stays until the daemon starts anew.
        self.lasting = False

    def begin(self, lasting):
        self.attacks += 1
        self.lasting |= lasting
        self._shared.hurt(self._cache.position, True)

    def end(self):
        self.attacks -= 1
        self._shared.hurt(self._cache.position, self.attacks > 0 or self.lasting)

    def started_anew(self):
        """A daemon that starts on a damaged cache leaves it out for its life."""
        self.lasting = self.attacks > 0
        self._shared.hurt(self._cache.position, self.lasting)


class Attacks(LinkAttacks):
    """All kinds of attack on files."""

    def __init__(self, random, shared, caches, secret, log):
        self.random = random
        self.pains = [Pain(shared, cache) for cache in caches]
        self.cut = [cache for cache in caches if cache.fate == "cut"]
        self.flipped = [cache for cache in caches if cache.fate == "flip"]
        self.log = log
        self.secret = secret
        self.hashing = False
        self._busy = set()
        self._undo = []
        self.counts = {}

    def begin(self, name):
        """Begins an attack unless its file is under one."""
        undo = getattr(self, name)()
        if undo is not None:
            self.counts[name] = self.counts.get(name, 0) + 1
            hold = self.random.choice((0.0, 0.02, 0.2, 1.5)) * self.random.random()
            self._undo.append((time.monotonic() + hold, undo))

    def take_back(self, everything=False):
        """Takes back what is due."""
        now = time.monotonic()
        due = [undo for when, undo in self._undo if everything or when <= now]
        self._undo = [(when, undo) for when, undo in self._undo if not everything and when > now]
        for undo in due:
            undo()

    def hash_from_now_on(self):
        """Somebody begins to compare sums: what is found wrong stays refused."""
        self.hashing = True
        for pain in self.pains:
            pain.lasting |= pain.attacks > 0

    def started_anew(self, hashing):
        self.hashing = hashing
        for pain in self.pains:
            pain.started_anew()

    def _claim(self, cache, path, what, lasting=False):
        """The cache's pain, begun; None when the file is under attack."""
        if path in self._busy:
            return None
        self._busy.add(path)
        self.log(f"{what} {path}")
        pain = self.pains[cache.position]
        # A shard whose sum was found wrong stays refused.
        pain.begin(lasting or self.hashing)
        return pain

    def _release(self, path, pain):
        self.log(f"back {path}")
        self._busy.discard(path)
        pain.end()

    # Cutting.

    def cut_shard(self):
        cache = self.random.choice(self.cut)
        return self._cut(cache, self.random.choice(cache.shards), lasting=False)

    def cut_index(self):
        cache = self.random.choice(self.cut)
        return self._cut(cache, cache.folder / "index.bin", lasting=True)

    def cut_metadata(self):
        cache = self.random.choice(self.cut)
        return self._cut(cache, cache.folder / "metadata.arrow", lasting=True)

    def _cut(self, cache, path, lasting):
        pain = self._claim(cache, path, "cut", lasting)
        if pain is None:
            return None
        content = path.read_bytes()
        length = self.random.choice((0, self.random.randrange(len(content))))
        self.log(f"cut to {length}")
        os.truncate(path, length)

        def undo():
            # By appending, so that the file has its length again only when it is whole.
            with open(path, "ab", buffering=0) as file:
                step = self.random.choice((7_001, 1 << 20))
                for at in range(length, len(content), step):
                    file.write(content[at : at + step])
            self._release(path, pain)

        return undo

    def replace_shard(self):
        """Another file, shorter or none at all, in a shard's place."""
        cache = self.random.choice(self.cut)
        path = self.random.choice(cache.shards)
        pain = self._claim(cache, path, "replace")
        if pain is None:
            return None
        aside = path.with_suffix(".aside")
        os.rename(path, aside)
        if self.random.random() < 0.5:
            content = aside.read_bytes()
            path.write_bytes(content[: self.random.randrange(len(content))])

        def undo():
            os.rename(aside, path)
            self._release(path, pain)

        return undo

    # Flipping bits.

    def flip(self):
        """Many bits of one file, one after the other; the last one stays for a while."""
        cache = self.random.choice(self.flipped)
        path, places = self._places(cache)
        pain = self._claim(cache, path, "flip")
        if pain is None:
            return None
        descriptor = os.open(path, os.O_RDWR)
        bit = None
        for _ in range(self.random.choice((1, 10, 100))):
            if bit is not None:
                self._flip(descriptor, *bit)
            bit = (places(), 1 << self.random.randrange(8))
            self.log(f"flip {path} byte {bit[0]} by {bit[1]}")
            self._flip(descriptor, *bit)
            time.sleep(self.random.choice((0, 0, 0.002)))

        def undo():
            self._flip(descriptor, *bit)
            os.close(descriptor)
            self._release(path, pain)

        return undo

    @staticmethod
    def _flip(descriptor, offset, bit):
        (byte,) = os.pread(descriptor, 1, offset)
        os.pwrite(descriptor, bytes([byte ^ bit]), offset)

    def _places(self, cache):
        """A file of the cache, and a function that gives places in it. What nothing but the sums covers (payloads; in
        an index of uncompressed records the length) is left alone, but for the payloads that are marked."""
        random = self.random
        size = lambda path: os.stat(path).st_size
        what = random.choice(("metadata", "index", "envelope", "payload"))
        if what == "metadata":
            path = cache.folder / "metadata.arrow"
            return path, lambda: random.randrange(size(path))
        if what == "index":
            path = cache.folder / "index.bin"
            covered = 24 if cache.lz4 else 16
            return path, lambda: random.randrange(len(cache.rows)) * 24 + random.randrange(covered)
        marked = random.randrange(0, len(cache.samples), MARK)
        sample = random.randrange(len(cache.samples)) if what == "envelope" else marked
        shard, offset, length = cache.rows[sample]
        path = cache.shards[shard]
        with open(path, "rb") as file:
            file.seek(offset)
            metadata = int.from_bytes(file.read(8), "little")
        if metadata > length - 8:
            # Under attack already.
            return path, lambda: offset
        payload = offset + 8 + metadata
        if what == "envelope" or payload == offset + length:
            return path, lambda: random.randrange(offset, payload)
        if cache.lz4:
            return path, lambda: random.randrange(payload, offset + length)
        return path, lambda: payload + random.randrange(0, length - 8 - metadata, STRIDE)


def command(point, name, word):
    """Writes a command in a process of its own, which ends with 0 when it was taken, else with the error."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        try:
            file = os.open(f"{point}/.control/{name}", os.O_WRONLY)
            status = 0 if os.write(file, word) == len(word) else 2
        except OSError as error:
            status = error.errno
    finally:
        os._exit(status)


# What may be answered to a check: another is running, the cache is not there.
MAY_NOT_CHECK = {0, errno.EBUSY, errno.EINVAL}
# To a migration: another is running, a manifest is not the one that was loaded.
MAY_REFUSE = {0, errno.EBUSY, errno.ESTALE}
# And while the daemon goes away.
MAY_END = MAY_REFUSE | {errno.ENOTCONN, errno.ECONNABORTED, errno.ENOENT, errno.ECANCELED, errno.EIO, errno.EACCES}


def kill(reader):
    """The reader with the processes that it has started."""
    for target in (os.killpg, os.kill):
        try:
            target(reader, signal.SIGKILL)
        except ProcessLookupError:
            pass
