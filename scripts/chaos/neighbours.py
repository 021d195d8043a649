"""What users of the same machine may try: permissions that change, and caches that are traps."""

import errno
import json
import os
import shutil
import stat
import struct
import time

import attacks
from daemon import PATIENCE
from links import NOBODY

ACL = "system.posix_acl_access"
# Tag, permissions, id: nobody is kept out by name, which no mode can say.
KEEPS_OUT = struct.pack("<I" + 5 * "HHI", 2, 1, 6, 0, 2, 0, NOBODY, 4, 4, 0, 16, 4, 0, 32, 4, 0)
# What a rescan may be answered.
MAY_RESCAN = {0, errno.EBUSY, errno.EINTR}


class Neighbours:
    """Changes permissions and publishes caches, and has the daemon look. Only root's mount lets others in."""

    def __init__(self, random, work, point, caches, secret, log):
        self.random = random
        self.point = point
        self.caches = caches
        self.log = log
        self.folder = work / "newcomers"
        self.secret = secret
        # A folder of caches has at least one.
        shutil.copytree(caches[2].folder, self.folder / "a-settled")
        self._number(self.folder / "a-settled", 77)
        self.known = {str(cache.id) for cache in caches} | {"77"}

    @staticmethod
    def _number(folder, number):
        """Makes the cache another one, by its id and by its name."""
        path = folder / "manifest.json"
        manifest = json.loads(path.read_bytes()) | {"cache_id": number, "source_name": folder.name}
        path.write_text(json.dumps(manifest, indent=2), encoding="utf-8")

    # Permissions.

    def close_a_file(self):
        """A file that others may read is closed: after the next look they read nothing of it through the mount either."""
        if os.geteuid() != 0:
            return
        cache = self.random.choice([cache for cache in self.caches if cache.fate is None])
        number = self.random.randrange(len(cache.samples))
        shard = cache.shards[cache.rows[number][0]]
        path = self.random.choice([shard, cache.folder / "index.bin", cache.folder / "metadata.arrow", cache.folder / "manifest.json"])
        sample = f"samples/{cache.id}/{number}"
        mode = stat.S_IMODE(os.stat(path).st_mode)
        try:
            self._keep_out(path)
            self._rescan()
            if (found := self._as_nobody(sample)) != errno.EACCES:
                raise AssertionError(f"nobody may not read {path}, and was answered {os.strerror(found)} for {sample}")
        finally:
            self._let_in(path, mode)
        self._rescan()
        if found := self._as_nobody(sample):
            raise AssertionError(f"nobody may read {path} again, and was answered {os.strerror(found)} for {sample}")

    def _keep_out(self, path):
        if self.random.random() < 0.5:
            try:
                os.setxattr(path, ACL, KEEPS_OUT)
                self.log(f"an acl for {path}")
                return
            except OSError as error:
                if error.errno != errno.ENOTSUP:
                    raise
        os.chmod(path, self.random.choice((0o600, 0o640, 0o400)))
        self.log(f"closed {path}")

    @staticmethod
    def _let_in(path, mode):
        try:
            os.removexattr(path, ACL)
        except OSError as error:
            if error.errno not in (errno.ENODATA, errno.ENOTSUP):
                raise
        os.chmod(path, mode)

    def _as_nobody(self, path):
        """The error that nobody gets when he reads `path` of the mount, 0 for none. The folders above the mount, which
        are closed to him, are passed before."""
        root = os.open(self.point, os.O_PATH | os.O_DIRECTORY)
        child = os.fork()
        if child == 0:
            status = 255
            try:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
                os.pread(os.open(path, os.O_RDONLY, dir_fd=root), 1, 0)
                status = 0
            except OSError as error:
                status = error.errno
            finally:
                os._exit(status)
        os.close(root)
        return self._wait(child)

    # Caches that are traps.

    def publish_a_trap(self):
        """A cache that is none joins the folder: it is refused, and nothing else notices."""
        what = self.random.choice(("pipe", "device", "secret", "loop", "sparse", "name", "same id", "text"))
        name = "b-trap\n\x1b[2Jforged: line" if what == "name" else "b-trap"
        folder = self.folder / name
        shutil.copytree(self.caches[3].folder, folder)
        self.log(f"a trap: {what}")
        manifest = folder / "manifest.json"
        try:
            if what == "same id":
                self._number(folder, 77)
            elif what == "sparse":
                os.truncate(folder / "index.bin", 1 << 40)
                os.truncate(folder / "metadata.arrow", 1 << 40)
            elif what in ("text", "name"):
                manifest.write_bytes(b'{"format_version": 3, "source_name": "\\u001b[2J' + bytes([10]) + b"forged")
            else:
                manifest.unlink()
                if what == "pipe":
                    os.mkfifo(manifest)
                else:
                    targets = {"device": "/dev/zero", "secret": self.secret, "loop": manifest}
                    os.symlink(targets[what], manifest)
            if os.geteuid() == 0:
                for path in (folder, *folder.rglob("*")):
                    os.lchown(path, NOBODY, NOBODY)
            self._rescan()
            if more := set(os.listdir(self.point / "samples")) - self.known:
                raise AssertionError(f"a trap ({what}) is shown: {more}")
        finally:
            shutil.rmtree(folder)

    # The daemon.

    def _rescan(self):
        status = self._wait(attacks.command(self.point, "caches", b"rescan"))
        if status not in MAY_RESCAN:
            raise AssertionError(f"the rescan said {os.strerror(status)} ({status})")

    @staticmethod
    def _wait(child):
        until = time.monotonic() + PATIENCE
        while (found := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > until:
                attacks.kill(child)
                os.waitpid(child, 0)
                raise AssertionError(f"no answer after {PATIENCE} s")
            time.sleep(0.002)
        return os.waitstatus_to_exitcode(found[1])


NEIGHBOURS = ("close_a_file", "publish_a_trap")
