"""What the processes of a run share: counters and flags in memory, failures in a file."""

import json
import mmap
import os
import time

READERS = 16
KINDS = (
    "whole", "pieces", "direct", "mapped", "sendfile", "held", "inside",
    "listing", "stat", "control", "folder",
)

_GENERATION, _OUTAGE, _STOP = 0, 1, 2
_HURT = 16  # two words a cache: attacked now, number of changes
_BEAT = 64  # a word a reader
_DONE = _BEAT + 2 * READERS  # a word a kind and outcome, for each reader
_SLOTS = 2 * len(KINDS)


class Shared:
    """Words in memory that forked processes see. Each word has one writer."""

    def __init__(self, failures):
        size = 8 * (_DONE + READERS * _SLOTS)
        self._words = memoryview(mmap.mmap(-1, size)).cast("Q")
        self._failures = os.open(failures, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.failures = failures

    # The driver writes these, before and after what they tell.

    def outage(self, on):
        """The mount is not there for a while: any error that says so is right."""
        self._words[_GENERATION] += 1
        self._words[_OUTAGE] = int(on)

    def hurt(self, cache, on):
        self._words[_HURT + 2 * cache + 1] += 1
        self._words[_HURT + 2 * cache] = int(on)

    def stop(self):
        self._words[_STOP] = 1

    # Readers ask these.

    @property
    def generation(self):
        return self._words[_GENERATION]

    @property
    def stopped(self):
        return self._words[_STOP] == 1

    def moment(self, cache):
        """What held when a read began; `cache` is None for what belongs to no cache."""
        words = self._words
        hurt = (0, 0) if cache is None else words[_HURT + 2 * cache : _HURT + 2 * cache + 2].tolist()
        return words[_GENERATION], words[_OUTAGE], *hurt

    def was_out(self, before):
        """Whether the mount was away at some time since `before`."""
        return bool(before[1] or self._words[_OUTAGE]) or before[0] != self._words[_GENERATION]

    def was_hurt(self, cache, before):
        """Whether `cache` was under attack at some time since `before`."""
        return bool(before[2]) or before[2:] != self.moment(cache)[2:]

    # Each reader writes its own.

    def beat(self, reader):
        self._words[_BEAT + reader] = time.monotonic_ns()

    def silence(self, reader):
        """Seconds since the reader last began something."""
        return (time.monotonic_ns() - self._words[_BEAT + reader]) / 1e9

    def count(self, reader, kind, refused):
        self._words[_DONE + reader * _SLOTS + 2 * kind + refused] += 1

    def counted(self):
        """For each kind: how often it gave bytes, and how often an error that was right."""
        def total(slot):
            return sum(self._words[_DONE + reader * _SLOTS + slot] for reader in range(READERS))
        return {kind: (total(2 * n), total(2 * n + 1)) for n, kind in enumerate(KINDS)}

    def fail(self, what, **more):
        line = json.dumps({"time": round(time.time(), 3), "what": what, **more})
        os.write(self._failures, line.encode() + b"\n")

    def failed(self):
        with open(self.failures, encoding="utf-8") as file:
            return file.read()
