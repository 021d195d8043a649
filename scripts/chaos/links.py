"""Links, pipes and devices in the place of a file of a cache."""

import os

# A user who is neither root nor whoever made the caches.
NOBODY = 65534


class LinkAttacks:
    """A link, pipe or device in the place of a file; mixed into the attacks on files."""

    def swap_link(self):
        cache = self.random.choice(self.cut)
        path = self.random.choice([*cache.shards, cache.folder / "metadata.arrow"])
        pain = self._claim(cache, path, "link for")
        if pain is None:
            return None
        aside = path.with_suffix(".aside")
        what = self.random.choice(("secret", "null", "pipe", "loop", "other"))
        os.rename(path, aside)
        if what == "pipe":
            os.mkfifo(path)
        else:
            other = self.random.choice(cache.shards)
            targets = {"secret": self.secret, "null": "/dev/zero", "loop": path, "other": other}
            os.symlink(targets[what], path)
        if os.geteuid() == 0:
            os.lchown(path, NOBODY, NOBODY)
        self.log(f"it is {what}")

        def undo():
            os.unlink(path)
            os.rename(aside, path)
            self._release(path, pain)

        return undo
