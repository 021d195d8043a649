"""What is measured: each file system mounted, its daemon known, its backing files known."""

import os
import select
import signal
import subprocess
import time
from pathlib import Path

from cases import THREADS
from data import CACHES, IMAGES, SETS, WIDTH, run, say


class Skipped(Exception):
    """This machine cannot do it; said aloud, and the rest goes on."""


class System:
    """One mounted file system with one set of files."""

    def __init__(self, name, folder, width=0, daemon=None, backing=()):
        self.name = name
        self.folder = Path(folder)
        # Digits of a file's name.
        self.width = width
        # Process that answers, if one does.
        self.daemon = daemon
        self.backing = [Path(path) for path in backing]

    def file(self, n):
        return self.folder / f"{n:0{self.width}}"

    def warm(self):
        """Brings what the file system reads from into the page cache."""
        for path in self.backing:
            files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
            for file in files:
                with file.open("rb", buffering=0) as source:
                    buffer = bytearray(1 << 20)
                    while source.readinto(buffer):
                        pass

    def pin(self, cpus):
        """Keeps all threads of the daemon on these CPUs."""
        if self.daemon is None:
            return
        for thread in os.listdir(f"/proc/{self.daemon}/task"):
            os.sched_setaffinity(int(thread), cpus)

    def cpu_seconds(self):
        """What the daemon has used so far."""
        nanoseconds = 0
        for thread in os.listdir(f"/proc/{self.daemon}/task"):
            nanoseconds += int(Path(f"/proc/{self.daemon}/task/{thread}/schedstat").read_text().split()[0])
        if nanoseconds > 0:
            return nanoseconds / 1e9
        fields = Path(f"/proc/{self.daemon}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def drop_caches():
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


class Mounts:
    """Mounts of one run, all below one folder; scripts/bench.sh takes down what is left of them."""

    def __init__(self, data, tools):
        self.data = data
        self.tools = tools
        self.root = data.work / "mnt"
        self.pids = data.work / "pids"
        self.processes = []
        # (name of the system, set): System
        self.systems = {}

    def add(self, name, set_name, *args, **kwargs):
        self.systems[name, set_name] = System(name, *args, **kwargs)

    def find(self, name, set_name):
        return self.systems.get((name, set_name))

    def point(self, name):
        at = self.root / name
        at.mkdir(parents=True, exist_ok=True)
        return at

    def kernel(self, name, kind, image):
        at = self.point(name)
        run("mount", "-t", kind, "-o", "loop,ro", image, at)
        return at

    def start(self, *command, pass_fds=()):
        """Starts a daemon that stays in the foreground."""
        line = [str(part) for part in command]
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, pass_fds=pass_fds)
        self.processes.append(process)
        with self.pids.open("a") as out:
            out.write(f"{process.pid}\n")
        return process

    def daemon(self, at, *command):
        """Starts a daemon and waits until its mount is there."""
        process = self.start(*command)
        until = time.monotonic() + 30
        while time.monotonic() < until:
            if process.poll() is not None:
                raise SystemExit(f"error: {command[0]} ended with {process.returncode}")
            if os.path.ismount(at):
                os.statvfs(at)
                return process.pid
            time.sleep(0.01)
        raise SystemExit(f"error: {command[0]} did not mount in 30 s")

    def timed_start(self, at, caches):
        """Mounts these caches and unmounts them: seconds until the mount answers, MiB of anonymous memory then."""
        ready, told = os.pipe()
        start = time.perf_counter()
        process = self.start(
            self.tools["datasetrt-mount"], "-f", "-q", "--ready-fd", told, caches, at, pass_fds=[told]
        )
        os.close(told)
        readable, _, _ = select.select([ready], [], [], 120)
        seconds = time.perf_counter() - start
        said = os.read(ready, 64) if readable else b""
        os.close(ready)
        if said != b"READY=1\n":
            raise SystemExit(f"error: datasetrt-mount did not mount {caches}")
        status = Path(f"/proc/{process.pid}/status").read_text()
        anonymous = next(line for line in status.splitlines() if line.startswith("RssAnon"))
        run("umount", at)
        process.wait(timeout=60)
        return seconds, int(anonymous.split()[1]) / 1024

    def mount_all(self):
        data = self.data
        folder = self.kernel("ext4", "ext4", data.ext4_image())
        for name in SETS:
            self.add("ext4", name, folder / name, WIDTH)
        for name in IMAGES:
            image = data.squashfs(name)
            if not image.exists():
                continue
            folder = self.kernel(f"squashfs-{name}", "squashfs", image)
            self.add("squashfs", name, folder, WIDTH, backing=[image])
            at = self.point(f"squashfuse_ll-{name}")
            pid = self.daemon(at, "squashfuse_ll", "-f", image, at)
            self.add("squashfuse_ll", name, at, WIDTH, pid, [image])
        for name in IMAGES:
            image = data.erofs(name)
            if data.done(f"erofs-{name}"):
                folder = self.kernel(f"erofs-{name}", "erofs", image)
                self.add("erofs", name, folder, WIDTH, backing=[image])
        for compression, names in CACHES.items():
            at = self.point(f"ours-{compression}")
            caches = [data.caches(compression) / name for name in names]
            pid = self.daemon(at, self.tools["datasetrt-mount"], "-f", "-q", *caches, at)
            for name in names:
                # by-name/<name> leads to the cache's folder.
                folder = os.path.realpath(at / "by-name" / name)
                backing = [data.caches(compression) / name]
                self.add(f"ours {compression}", name, folder, 0, pid, backing)
        # As "ours lz4", which has the default number of threads, in all else.
        lz4 = [data.caches("lz4") / name for name in CACHES["lz4"]]
        for threads, system in THREADS.items():
            if system == "ours lz4":
                continue
            at = self.point(f"ours-{threads}-threads")
            pid = self.daemon(at, self.tools["datasetrt-mount"], "-f", "-q", "--threads", threads, *lz4, at)
            for cache in lz4:
                folder = os.path.realpath(at / "by-name" / cache.name)
                self.add(system, cache.name, folder, 0, pid, [cache])
        for name in SETS:
            at = self.point(f"null-{name}")
            null = [self.tools["nullfs"], "--count", data.count(name), "--size", data.size(name), at]
            pid = self.daemon(at, *null)
            self.add("null", name, at / "samples" / "1", 0, pid)

    def unmount_all(self):
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for at in reversed([at for at in mounts if Path(at).is_relative_to(self.root)]):
            if subprocess.run(["umount", at], capture_output=True, timeout=60).returncode != 0:
                subprocess.run(["umount", "-l", at], timeout=60)
        for process in self.processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()


def check_erofs(data):
    """Whether EROFS can be made and mounted here; says why not."""
    if not any("erofs" in line for line in Path("/proc/filesystems").read_text().splitlines()):
        say("SKIPPED: EROFS: this kernel has none")
        return False
    return True
