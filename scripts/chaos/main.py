"""Readers of every kind against a mount under attack. Started by scripts/chaos.sh; docs/reliability.md says what it is for."""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from random import Random, SystemRandom

import attacks
import daemon
import stock
from attacks import Attacks
from daemon import PATIENCE, Daemon, MemoryGroup, describe, is_mounted, read, take_away, wait_for
from neighbours import NEIGHBOURS, Neighbours
from readers import Reader
from shared import KINDS, READERS, Shared

MIB = 1 << 20
# What a worn daemon may have more than a fresh one that has read everything.
SLACK = 8 * MIB
# Decoded payloads are held for 30 s without use.
IDLE = 45
# The cut of a mapped file lasts until the next start, so the others would not be seen to heal.
FILE_ATTACKS = 4 * ("cut_shard", "replace_shard", "swap_link", "flip", "flip") + ("cut_index", "cut_metadata")
SECRET = b"what only root may read\n" * 4096


def say(text):
    print(text, flush=True)


class Run:
    """One run of chaos."""

    def __init__(self, options, work):
        self.options = options
        self.work = work
        self.random = Random(options.seed)
        self.point = work / "mount"
        self.shared = Shared(work / "failures")
        self.diary = open(work / "attacks.log", "w", encoding="utf-8")
        self.group = MemoryGroup()
        for folder in (self.point, work / "tmp", work / "bin"):
            folder.mkdir()
        # Whoever builds meanwhile builds for others.
        for program in ("datasetrt", "datasetrt-mount"):
            shutil.copy2(options.bin / program, work / "bin")
        self.caches = stock.make(work, work / "bin" / "datasetrt", options.seed)
        secret = work / "secret"
        secret.write_bytes(SECRET)
        secret.chmod(0o600)
        self.files = Attacks(self.random, self.shared, self.caches, secret, self.note)
        self.neighbours = Neighbours(self.random, work, self.point, self.caches, secret, self.note)
        self.readers = {}
        self.daemon = None
        self.former = []  # daemons that were unmounted while files were open
        self.migration = None
        # A check that was asked for, and whether this daemon is asked for any: damage that one finds stays refused
        # until the next start, and the others would not be seen to heal.
        self.check = None
        self.checks = False
        self.killed_migrations = 0
        self.squeezed_until = None
        self.squeezes = 0

    def note(self, text):
        self.diary.write(f"{time.time():.3f} {text}\n")
        self.diary.flush()

    def count(self, name):
        self.files.counts[name] = self.files.counts.get(name, 0) + 1
        self.note(name)

    # The daemon.

    def start(self, cache_memory=None, validate=None):
        fresh = cache_memory is not None
        cache_memory = cache_memory or self.random.choice((4, 16, 48))
        validate = validate or self.random.choice(("none", "none", "access", "startup"))
        options = ["--cache-memory", f"{cache_memory}MiB"]
        if validate != "none":
            options.append(f"--validate-cache={validate}")
        self.cache_memory = cache_memory * MIB
        # As ulimit does.
        files = None if fresh else self.random.choice((None, 64, 256))
        self.note(f"start {options}, at most {files} descriptors")
        program = self.work / "bin" / "datasetrt-mount"
        self.daemon = Daemon(program, self.work, self.group, self.caches, self.point, options, files)
        # A shard that changes after it was found right is hashed again.
        self.files.started_anew(hashing=validate != "none")
        # In the test of this test a reader has to find the spoiled byte, and a check could be before it.
        self.checks = self.random.random() < 0.3 and not self.options.self_test

    def restart(self):
        """Ends the daemon in one of the ways there are, and starts another."""
        how = self.random.choice(("kill", "kill and clear", "signal", "lazy", "lazy"))
        self.count(f"restart by {how}")
        self.release(now=True)
        if self.random.random() < 0.5:
            self.files.take_back(everything=True)
        self.shared.outage(True)
        if how == "kill" or how == "kill and clear":
            self.daemon.kill()
            self.end_commands()
            if how == "kill and clear":
                take_away(self.point)
        elif how == "signal":
            self.daemon.end(self.random.choice(daemon.SIGNALS))
            self.end_commands()
        else:
            done = take_away(self.point)
            if done.returncode:
                raise AssertionError(f"the lazy unmount failed: {done.stderr}")
            self.end_commands()
            self.former.append(self.daemon)
        self.clean_manifests()
        self.start()
        self.shared.outage(False)

    def clean_manifests(self):
        """No daemon migrates now: what a migration that was killed has left may go, and the next one has work again."""
        for cache in self.caches:
            if cache.version == 2 and cache.migrated():
                cache.take_back_migration()
            for path in cache.leftovers():
                if path.name.startswith(".datasetrt-manifest-") and self.killed_migrations:
                    self.killed_migrations -= 1
                    path.unlink()

    def check_daemons(self):
        if not self.daemon.runs():
            raise AssertionError(f"the daemon ended by itself: {self.daemon.process.returncode}")
        for former in list(self.former):
            if not former.runs():
                former.end(None)
                self.former.remove(former)

    # Migration and memory.

    def begin_migration(self):
        if self.migration is None:
            self.count("migration")
            self.migration = self.command("migrate", b"3")

    def begin_check(self):
        """A check behind the mount, of all, of one cache, or the end of one."""
        if self.checks and self.check is None:
            self.count("check")
            word = self.random.choice(["all", "stop", *(cache.id for cache in self.caches)])
            if word != "stop":
                self.files.hash_from_now_on()
            self.check = self.command("verify", str(word).encode())

    def command(self, name, word):
        return attacks.command(self.point, name, word), self.shared.moment(None)

    def end_commands(self, wait=True):
        if (done := self.answer(self.migration, wait)) is not None:
            self.migration = None
            self.end_migration(*done)
        if (done := self.answer(self.check, wait)) is not None:
            self.check = None
            status, out = done
            if status not in attacks.MAY_NOT_CHECK and not (out and status in attacks.MAY_END):
                raise AssertionError(f"the check said {os.strerror(status)} ({status})")

    def answer(self, asked, wait):
        """What a command was answered, and whether the mount was away meanwhile; None as long as there is no answer."""
        if asked is None:
            return None
        child, before = asked
        found, status = os.waitpid(child, 0 if wait else os.WNOHANG)
        return (os.waitstatus_to_exitcode(status), self.shared.was_out(before)) if found else None

    def end_migration(self, status, out):
        self.killed_migrations += 2 if out else 0
        if status not in (attacks.MAY_END if out else attacks.MAY_REFUSE):
            raise AssertionError(f"the migration said {os.strerror(status)} ({status})")
        if status == 0 and not out:
            late = [cache for cache in self.caches if cache.version == 2 and not cache.migrated()]
            if late:
                raise AssertionError(f"not migrated: {late[0].folder}")

    def squeeze(self):
        """Leaves the daemon what it asked for and little more, for a while. One that was unmounted and has not ended
        would take its share of that."""
        if self.group.folder and self.squeezed_until is None and not self.former:
            self.count("squeeze")
            self.squeezes += self.group.limit(self.cache_memory + 64 * MIB)
            self.squeezed_until = time.monotonic() + 2 * self.random.random()

    def release(self, now=False):
        if self.squeezed_until and (now or self.squeezed_until < time.monotonic()):
            self.group.limit(None)
            self.squeezed_until = None

    # Readers.

    def start_reader(self, number):
        seed = f"{self.options.seed}/{number}/{self.random.random()}"
        self.shared.beat(number)
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            try:
                Reader(number, seed, self.shared, self.caches, self.point).run()
            finally:
                os._exit(1)
        self.readers[number] = pid

    def kill_reader(self):
        number = self.random.randrange(READERS)
        self.count("kill a reader")
        attacks.kill(self.readers[number])
        self.reap(number)
        self.start_reader(number)

    def reap(self, number):
        """Waits for a reader; one that cannot end waits for the mount."""
        pid = self.readers.pop(number)
        until = time.monotonic() + PATIENCE
        while os.waitpid(pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > until:
                raise AssertionError(f"reader {pid} does not end: {describe(pid)}")
            time.sleep(0.005)

    def check_readers(self):
        if failed := self.shared.failed():
            raise AssertionError(failed)
        for number, pid in self.readers.items():
            if self.shared.silence(number) > PATIENCE:
                raise AssertionError(f"reader {pid} hangs: {describe(pid)}")

    # The whole.

    def go(self):
        self.start(cache_memory=16, validate="none")
        self.read_everything()
        base = self.daemon.descriptors(), self.daemon.memory()
        if self.options.self_test:
            self.spoil()
        for number in range(READERS):
            self.start_reader(number)
        # Readers choose at random: the spoiled byte is waited for.
        spoiled = self.options.self_test
        end = time.monotonic() + (60 if spoiled else self.options.seconds)
        restart = self.next_restart()
        while time.monotonic() < end:
            self.step()
            if time.monotonic() > restart and not spoiled:
                self.restart()
                restart = self.next_restart()
            time.sleep(self.random.random() * 0.1)
        self.finish(base)

    def next_restart(self):
        """Some daemons live long."""
        longest = max(self.options.seconds / 4, 4)
        life = min(self.random.choice((2, 5, 10, 30, 180)), longest)
        return time.monotonic() + life * self.random.uniform(0.2, 1)

    def step(self):
        self.files.take_back()
        self.release()
        self.end_commands(wait=False)
        self.check_daemons()
        self.check_readers()
        what = self.random.random()
        if what < 0.7:
            self.files.begin(self.random.choice(FILE_ATTACKS))
        elif what < 0.8:
            self.begin_migration()
        elif what < 0.85:
            self.squeeze()
        elif what < 0.88:
            self.begin_check()
        elif what < 0.95:
            name = self.random.choice(NEIGHBOURS)
            self.count(name)
            getattr(self.neighbours, name)()
        else:
            self.kill_reader()

    def spoil(self):
        """For the test of this test: one wrong byte where there must be none."""
        raw = self.caches[2]
        row = max(raw.rows, key=lambda row: row[2])
        with open(raw.shards[row[0]], "r+b") as file:
            file.seek(row[1] + row[2] - 1)
            last = file.read(1)
            file.seek(row[1] + row[2] - 1)
            file.write(bytes([last[0] ^ 1]))

    def read_everything(self):
        """Every sample of every cache is there and right."""
        for cache in self.caches:
            for sample, true in enumerate(cache.samples):
                path = self.point / "samples" / str(cache.id) / str(sample)
                try:
                    with open(path, "rb") as file:
                        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                        found = file.read()
                except OSError as error:
                    raise AssertionError(f"at rest: {path} cannot be read: {error}") from error
                if found != true:
                    raise AssertionError(f"at rest: {path} is not right")

    def finish(self, base):
        """Everything is taken back: nothing of it may be left anywhere."""
        self.files.take_back(everything=True)
        self.release(now=True)
        self.end_commands()
        self.shared.stop()
        for number in list(self.readers):
            self.reap(number)
        self.check_readers()
        wait_for("daemons that were unmounted have ended", lambda: self.check_daemons() or not self.former)
        # A cache whose mapped files were cut is refused until the next start.
        worn = [cache for cache in self.caches if not self.files.pains[cache.position].lasting]
        for cache in worn:
            folder = self.point / "samples" / str(cache.id)
            if len(os.listdir(folder)) != len(cache.samples):
                raise AssertionError(f"at rest: names are missing in {folder}")
        self.settle(base)
        self.daemon.end(signal.SIGTERM)
        self.clean_manifests()
        self.start(cache_memory=16, validate="startup")
        self.read_everything()
        self.daemon.end(signal.SIGTERM)
        self.check_remains()

    def settle(self, base):
        """The daemon that was last under attack has no more descriptors and memory than a fresh one."""
        descriptors, memory = base
        more = set(self.daemon.descriptors()) - set(descriptors)
        # Of those opened since, only shards and the control group's may differ by name.
        extra = [name for name in more if not name.startswith((str(self.work / "caches"), "pipe:", "socket:", "anon_inode:", "/dev/"))]
        if extra or len(self.daemon.descriptors()) > len(descriptors) + 4:
            raise AssertionError(f"descriptors: {self.daemon.descriptors()}, at first {descriptors}")
        until = time.monotonic() + IDLE
        while (now := self.daemon.memory()) > memory + SLACK:
            if time.monotonic() > until:
                raise AssertionError(f"memory: {now >> 20} MiB, at first {memory >> 20} MiB")
            time.sleep(0.2)
        say(f"memory of the worn daemon: {now >> 10} KiB, of a fresh one {memory >> 10} KiB;"
            f" descriptors {len(self.daemon.descriptors())}, {len(descriptors)}")

    def check_remains(self):
        if is_mounted(self.point):
            raise AssertionError("something is still mounted")
        for cache in self.caches:
            if found := cache.damage() or cache.leftovers():
                raise AssertionError(f"not as it was: {found}")
        if left := os.listdir(self.work / "tmp"):
            raise AssertionError(f"temporary files: {left}")
        if left := [pid for pid in processes() if str(self.point) in command_of(pid)]:
            raise AssertionError(f"processes: {left}")
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            raise AssertionError(f"a process was not waited for: {pid}")
        except ChildProcessError:
            pass
        log = (self.work / "daemon.log").read_text(encoding="utf-8", errors="replace")
        said = log + (self.work / "daemon.err").read_text(encoding="utf-8", errors="replace")
        for word in ("panicked", "internal error"):
            if word in said:
                raise AssertionError(next(line for line in said.splitlines() if word in line))
        # A trap has a name that would be a line of its own.
        if forged := [line for line in said.split("\n") if line.startswith("forged") or "\x1b" in line]:
            raise AssertionError(f"a name forges lines of the log: {forged[0]!r}")

    def report(self):
        counted = self.shared.counted()
        say("reads, and errors that were right:")
        for kind, (good, refused) in counted.items():
            say(f"  {kind:9} {good:9} {refused:7}")
        say("attacks:")
        for name, times in sorted(self.files.counts.items()):
            say(f"  {name:26} {times:6}")
        if self.group.folder:
            say(f"memory was squeezed by the control group {self.group.folder}")
        else:
            say("memory was not squeezed: no control group can be made here; --cache-memory changed at each start")
        if self.options.seconds >= 20:
            idle = [kind for kind, (good, _) in counted.items() if good == 0]
            # None of these is needed to fail on a machine that is slow, but all of them together are.
            if idle or not any(refused for _, refused in counted.values()):
                raise AssertionError(f"nothing was tested: {idle}")

    def give_up(self):
        """Ends what was started, hung or not."""
        for pid in self.readers.values():
            attacks.kill(pid)
        for one in [self.daemon, *self.former]:
            if one and one.runs():
                one.process.kill()
        while is_mounted(self.point):
            if take_away(self.point).returncode:
                break
        for one in [self.daemon, *self.former]:
            if one:
                one.process.wait(PATIENCE)


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def command_of(pid):
    return read(Path(f"/proc/{pid}/cmdline"))


def main():
    parser = argparse.ArgumentParser(prog="scripts/chaos.sh")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1 << 32))
    parser.add_argument("--bin", type=Path, required=True, help="folder of the programs")
    parser.add_argument("--self-test", action="store_true", help="spoil a byte, which must be found")
    options = parser.parse_args()
    say(f"chaos for {options.seconds:g} s, seed {options.seed}")
    # Whoever ends it early finds nothing left either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = Path(tempfile.mkdtemp(prefix="datasetrt-chaos-"))
    run = Run(options, work)
    keep = True
    try:
        run.go()
        run.report()
        keep = options.self_test
        if keep:
            raise AssertionError("a wrong byte was not found")
        say("clean")
    except AssertionError as error:
        if options.self_test and "wrong bytes" in str(error):
            say("the wrong byte was found")
            keep = False
        else:
            say(f"FAILED (seed {options.seed}): {error}")
            return 1
    finally:
        run.give_up()
        run.group.remove()
        if keep:
            say(f"logs are kept in {work}")
        else:
            shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
