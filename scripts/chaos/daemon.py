"""The daemon under attack: its memory limit, start, end, and what it holds."""

import os
import resource
import select
import signal
import subprocess
import time
from pathlib import Path

PATIENCE = 60  # seconds until something counts as hanging


class MemoryGroup:
    """A control group for the daemon, where the system lets us make one."""

    def __init__(self):
        self.folder = self._make()

    @staticmethod
    def _make():
        places = [Path("/sys/fs/cgroup/memory")]  # version 1
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                places.append(Path("/sys/fs/cgroup") / path.lstrip("/"))
        for place in places:
            folder = place / f"datasetrt-chaos-{os.getpid()}"
            try:
                folder.mkdir()
            except OSError:
                continue
            if any((folder / name).exists() for name in ("memory.limit_in_bytes", "memory.max")):
                return folder
            folder.rmdir()
        return None

    def enter(self):
        if self.folder:
            (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def limit(self, size):
        """Sets the limit, None for no limit. False when the kernel refuses."""
        old = self.folder / "memory.limit_in_bytes"
        none, file = ("-1", old) if old.exists() else ("max", self.folder / "memory.max")
        try:
            file.write_text(none if size is None else str(size))
        except OSError:
            return False
        return True

    def remove(self):
        if self.folder:
            self.folder.rmdir()


def is_mounted(point):
    # By the table: a look at a dead mount is an error, at a hanging one it hangs.
    # Mounts of others may have names of any bytes; a carriage return is no end of a line here.
    with open("/proc/self/mounts", "rb") as table:
        return sum(line.split(b" ")[1] == os.fsencode(point) for line in table)


def take_away(point, lazily=True):
    if os.geteuid() == 0:
        command = ["umount", *(["-l"] if lazily else []), point]
    else:
        command = ["fusermount3", "-uz" if lazily else "-u", "--", point]
    return subprocess.run(command, stderr=subprocess.PIPE, timeout=PATIENCE, check=False)


class Daemon:
    """A mount, ready when this is made; `files` limits its descriptors."""

    def __init__(self, program, work, group, caches, point, options, files):
        ready, told = os.pipe()
        self.log = work / "daemon.log"
        self.point = point
        command = [
            program, "-f", "--ready-fd", str(told), "--skip-invalid", "--log-file", self.log,
            "--view", "all={cache_id}/{sample_id:05}", *options,
            *(cache.folder for cache in caches), work / "newcomers", point,
        ]
        if os.geteuid() == 0:
            command.insert(1, "--allow-other")
        environment = os.environ | {"TMPDIR": str(work / "tmp"), "XDG_CACHE_HOME": str(work / "receipts")}
        environment.pop("RUST_LOG", None)
        def begin():
            group.enter()
            if files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
                resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))

        with open(work / "daemon.err", "ab") as said:
            self.process = subprocess.Popen(
                command, pass_fds=[told], env=environment, preexec_fn=begin,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said,
            )
        os.close(told)
        try:
            readable, _, _ = select.select([ready], [], [], PATIENCE)
            if not readable or os.read(ready, 16) != b"READY=1\n":
                raise AssertionError(f"the daemon did not start: {(work / 'daemon.err').read_text()[-2000:]}")
        finally:
            os.close(ready)

    @property
    def pid(self):
        return self.process.pid

    def runs(self):
        return self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)

    def end(self, number):
        """Ends by a signal, or by itself after it was unmounted: always with 0."""
        if number:
            # A log that is opened anew at the last moment changes nothing.
            self.process.send_signal(signal.SIGHUP)
            self.process.send_signal(number)
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired as error:
            after = signal.Signals(number).name if number else "an unmount"
            raise AssertionError(f"the daemon does not end after {after}: {describe(self.pid)}") from error
        if status:
            raise AssertionError(f"the daemon ended with {status} after {number or 'an unmount'}")

    def descriptors(self):
        return sorted(os.readlink(f"/proc/{self.pid}/fd/{n}") for n in os.listdir(f"/proc/{self.pid}/fd"))

    def memory(self):
        """Bytes of its own, without those of files."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
        raise AssertionError("no RssAnon")


def describe(pid):
    """Where a process and those below it wait, as far as the kernel tells."""
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        parts = [f"{name}={read(task / name)}" for name in ("status", "wchan", "stack", "syscall")]
        lines.append(" ".join(" ".join(part.split()) for part in parts)[:1500])
    return "\n".join(lines)


def read(path):
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        return str(error)


def wait_for(what, condition):
    until = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"still not so after {PATIENCE} s: {what}")
        time.sleep(0.05)


# SIGHUP opens the log file anew.
SIGNALS = (signal.SIGTERM, signal.SIGINT)
