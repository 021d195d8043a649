"""A reader: reads at random in every way there is, and compares each byte with what is true."""

import contextlib
import ctypes
import errno
import json
import mmap
import os
import signal
import stat
import sys
import time
import traceback
from random import Random

from shared import KINDS

AWAY = {
    errno.EIO, errno.ENOTCONN, errno.ECONNABORTED, errno.ENOENT, errno.ESTALE, errno.ENODEV, errno.ENXIO,
}
# A cache that was damaged when the daemon started is left out: its names do not exist.
DAMAGED = {errno.EIO, errno.ENOENT}
LIBC = ctypes.CDLL(None, use_errno=True)


class Wrong(Exception):
    """Bytes, names or numbers that are not true."""


def die_with_parent():
    LIBC.prctl(1, signal.SIGKILL)


@contextlib.contextmanager
def opened(path, flags=0):
    descriptor = os.open(path, os.O_RDONLY | flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class Reader:
    """One process."""

    def __init__(self, number, seed, shared, caches, mountpoint):
        self.number = number
        self.random = Random(seed)
        self.shared = shared
        self.caches = caches
        self.point = mountpoint
        self.page = mmap.mmap(-1, 1 << 17)
        # The sample of the last read.
        self.number_read = 0

    def run(self):
        """Reads until told to stop. Does not return."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.setpgid(0, 0)
        die_with_parent()
        os.nice(5)
        try:
            while not self.shared.stopped:
                self.shared.beat(self.number)
                self.once()
                time.sleep(self.random.random() * 0.004)
        except BaseException:
            self.shared.fail("a reader failed", trace=traceback.format_exc())
        sys.stdout.flush()
        os._exit(0)

    def once(self):
        kind = self.random.randrange(len(KINDS))
        cache = None if KINDS[kind] == "control" else self.random.choice(self.caches)
        position = None if cache is None else cache.position
        before = self.shared.moment(position)
        what = KINDS[kind]
        try:
            getattr(self, what)(cache)
            refused = 0
        except Wrong as wrong:
            name = None if cache is None else cache.folder.name
            self.shared.fail(str(wrong), kind=what, cache=name, moment=before)
            return
        except OSError as error:
            refused = 1
            out = error.errno in AWAY and self.shared.was_out(before)
            hurt = cache is not None and error.errno in DAMAGED and self.shared.was_hurt(position, before)
            if not out and not hurt and not self.is_late(cache, error):
                name = None if cache is None else cache.folder.name
                trace = traceback.format_exc()
                self.shared.fail(f"{error}", kind=what, cache=name, moment=before, trace=trace)
            # Errors are quick: nobody else would have the processor.
            time.sleep(0.03)
        self.shared.count(self.number, kind, refused)

    def is_late(self, cache, error):
        """Whether the error is the one by which a reader hears that a length was stated while the sample was under attack:
        what is read next is right, unless it is under attack again."""
        if cache is None or error.errno != errno.EIO or not cache.open_to_changes(self.number_read):
            return False
        before = self.shared.moment(cache.position)
        path = f"{self.point}/samples/{cache.id}/{self.number_read}"
        try:
            with opened(path) as descriptor:
                self.read_to_end(cache, self.number_read, descriptor, path)
            return True
        except OSError:
            return self.shared.was_out(before) or self.shared.was_hurt(cache.position, before)
        except Wrong as wrong:
            self.shared.fail(f"after an error: {wrong}", cache=cache.folder.name)
            return True

    # Where a sample is found.

    def sample(self, cache):
        number = self.random.randrange(len(cache.samples))
        self.number_read = number
        way = self.random.random()
        if way < 0.2:
            return number, f"{self.point}/views/all/{cache.id}/{number:05}"
        if way < 0.3:
            return number, f"{self.point}/by-name/{cache.folder.name}/{number}"
        return number, f"{self.point}/samples/{cache.id}/{number}"

    def forget(self, descriptor):
        """Mostly has the kernel drop its pages, so that the daemon is asked again."""
        if self.random.random() < 0.7:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def compare(self, cache, number, offset, found, path):
        if cache.is_right(number, offset, found):
            return
        true = cache.samples[number][offset : offset + len(found)]
        at = next((n for n, pair in enumerate(zip(true, found)) if pair[0] != pair[1]), len(true))
        raise Wrong(
            f"wrong bytes: sample {number} at {offset + at}, of {len(found)} from {offset} on:"
            f" found {bytes(found[at : at + 16]).hex()}, true {true[at : at + 16].hex()}; {path}"
        )

    def compare_end(self, cache, number, end, path):
        if not cache.has_right_size(number, end):
            raise Wrong(f"sample {number} ends after {end} of {len(cache.samples[number])} bytes; {path}")

    # The kinds.

    def whole(self, cache):
        number, path = self.sample(cache)
        with opened(path) as descriptor:
            self.forget(descriptor)
            self.read_to_end(cache, number, descriptor, path)

    def read_to_end(self, cache, number, descriptor, path):
        chunk = self.random.choice((511, 4096, 65_536, 1 << 20, 1 << 23))
        chunk = max(chunk, len(cache.samples[number]) // 64)
        offset = 0
        while found := os.read(descriptor, chunk):
            self.compare(cache, number, offset, found, path)
            offset += len(found)
        self.compare_end(cache, number, offset, path)

    def pieces(self, cache):
        number, path = self.sample(cache)
        size = len(cache.samples[number])
        with opened(path) as descriptor:
            for _ in range(self.random.randint(1, 8)):
                self.forget(descriptor)
                offset = self.random.randint(0, size + 10)
                wanted = self.random.randint(1, 200_000)
                # A read may end before a page that cannot be read; the next one then is an error.
                while wanted > 0 and (found := os.pread(descriptor, wanted, offset)):
                    self.compare(cache, number, offset, found, path)
                    offset += len(found)
                    wanted -= len(found)
                if wanted > 0:
                    self.compare_end(cache, number, min(offset, size), path)

    def direct(self, cache):
        number, path = self.sample(cache)
        with opened(path, os.O_DIRECT) as descriptor:
            offset = self.random.randint(0, len(cache.samples[number]) // 4096) * 4096
            length = os.preadv(descriptor, [self.page], offset)
            self.compare(cache, number, offset, self.page[:length], path)

    def mapped(self, cache):
        """In a process of its own: a page that cannot be read ends it by SIGBUS."""
        number, path = self.sample(cache)
        with opened(path) as descriptor:
            self.forget(descriptor)
            size = os.fstat(descriptor).st_size
            self.compare_end(cache, number, size, path)
            if size == 0:
                return
            child = os.fork()
            if child == 0:
                die_with_parent()
                status = 4
                try:
                    with mmap.mmap(descriptor, size, prot=mmap.PROT_READ) as pages:
                        status = 0 if cache.is_right(number, 0, pages[:]) else 3
                except OSError as error:
                    status = 5 if error.errno in AWAY else 6
                finally:
                    os._exit(status)
            _, status = os.waitpid(child, 0)
        status = os.waitstatus_to_exitcode(status)
        if status in (-signal.SIGBUS, 5):
            raise OSError(errno.EIO, "SIGBUS", path)
        if status == 3:
            raise Wrong(f"wrong bytes in the mapped sample {number}; {path}")
        if status:
            raise Wrong(f"the process that mapped sample {number} ended with {status}; {path}")

    def sendfile(self, cache):
        number, path = self.sample(cache)
        with opened(path) as source:
            self.forget(source)
            target = os.memfd_create("target")
            try:
                offset = 0
                while sent := os.sendfile(target, source, offset, 1 << 20):
                    offset += sent
                self.compare(cache, number, 0, os.pread(target, offset, 0), path)
                self.compare_end(cache, number, offset, path)
            finally:
                os.close(target)

    def held(self, cache):
        """Open for a while, over whatever happens to the daemon."""
        number, path = self.sample(cache)
        with opened(path) as descriptor:
            until = time.monotonic() + self.random.random() * 1.5
            while time.monotonic() < until and not self.shared.stopped:
                self.forget(descriptor)
                os.lseek(descriptor, 0, os.SEEK_SET)
                self.read_to_end(cache, number, descriptor, path)
                time.sleep(0.05)

    def inside(self, cache):
        """Works in a folder of the mount."""
        folder = f"{self.point}/samples/{cache.id}"
        os.chdir(folder)
        try:
            number = self.random.randrange(len(cache.samples))
            with opened(str(number)) as descriptor:
                self.forget(descriptor)
                self.read_to_end(cache, number, descriptor, f"{folder}/{number}")
        finally:
            os.chdir("/")

    def listing(self, cache):
        folder = f"{self.point}/samples/{cache.id}"
        names = {str(number) for number in range(len(cache.samples))}
        if self.random.random() < 0.5:
            found = os.listdir(folder)
        else:
            with os.scandir(folder) as entries:
                found = []
                for entry in entries:
                    found.append(entry.name)
                    size = entry.stat().st_size
                    if not cache.has_right_size(int(entry.name), size):
                        raise Wrong(f"sample {entry.name} is said to have {size} bytes")
        if len(found) != len(names) or set(found) != names:
            raise Wrong(f"names in {folder}: {sorted(found)}")

    def stat(self, cache):
        number, path = self.sample(cache)
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise Wrong(f"mode {found.st_mode:o} of {path}")
        if not cache.has_right_size(number, found.st_size):
            raise Wrong(f"sample {number} is said to have {found.st_size} bytes; {path}")

    def control(self, _):
        folder = f"{self.point}/.control"
        name = self.random.choice(os.listdir(folder))
        path = f"{folder}/{name}"
        if not os.stat(path).st_mode & 0o444:
            return
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            text = file.read()
        # The log grows meanwhile.
        if len(text) < size or (len(text) > size and name != "log"):
            raise Wrong(f"{path} has {len(text)} bytes and says {size}")
        if name == "status" or (name == "migrate" and text):
            try:
                value = json.loads(text)
            except ValueError as error:
                raise Wrong(f"{path}: {error}: {text[:200]!r}") from error
            if name == "status" and value["counters"]["panics"]:
                raise Wrong(f"{value['counters']['panics']} panics")
        if name == "damaged":
            fated = {str(cache.id) for cache in self.caches if cache.fate}
            for line in text.decode().splitlines():
                if line[:1].isdigit() and "/" in line and line.split("/")[0] not in fated:
                    raise Wrong(f"an untouched cache is said to be damaged: {line}")

    def folder(self, cache):
        folder = f"{self.point}/caches/{cache.id}"
        with open(f"{folder}/manifest.json", "rb") as file:
            text = file.read()
        manifest = json.loads(text)
        if manifest.get("cache_id", cache.id) != cache.id:
            raise Wrong(f"the manifest in {folder} has another id")
        with open(f"{folder}/metadata.arrow", "rb") as file:
            self.forget(file.fileno())
            table = file.read()
        if cache.fate is None and table != cache.metadata:
            raise Wrong(f"wrong bytes in {folder}/metadata.arrow")
