//! Attributes that come with the names of a listing, so that `ls -l` need not ask for each.

use super::{Attr, Ino, Node, Vfs, VfsError};

/// At least as many entries as one answer to the kernel has room for.
const SHOWN_AT_ONCE: usize = 256;

impl Vfs {
    /// Attributes for an entry that a listing gave. `None` for an entry whose attributes cannot be known, or
    /// only by making a file that nobody has asked for: whoever needs them asks, and hears why they cannot
    /// be known. Nothing is made up for it, since the kernel cuts a file that somebody has mapped to the
    /// length that it is told.
    #[must_use]
    pub fn entry_attr(&self, ino: Ino) -> Option<Attr> {
        if self.is_unmade(ino) {
            return None;
        }
        self.getattr(ino).ok()
    }

    /// [`Vfs::entry_attr`] from memory alone, for when the disk does not answer.
    #[must_use]
    pub fn remembered_entry_attr(&self, ino: Ino) -> Option<Attr> {
        if self.needs_disk(ino) {
            return None;
        }
        self.entry_attr(ino)
    }

    /// Whether a listing of folder `dir` from `offset` on shows a sample next whose length is not
    /// remembered, so that the disk is waited for.
    ///
    /// # Errors
    /// As [`Vfs::readdir`].
    pub fn lists_from_disk(&self, dir: Ino, offset: u64) -> Result<bool, VfsError> {
        let mut found = false;
        self.each_shown(dir, offset, |ino| {
            found = self.needs_disk(ino);
            !found
        })?;
        Ok(found)
    }

    /// Reads the lengths of what a listing of folder `dir` from `offset` on shows next, so that they
    /// are remembered.
    ///
    /// # Errors
    /// As [`Vfs::readdir`].
    pub fn see_lengths(&self, dir: Ino, offset: u64) -> Result<(), VfsError> {
        self.each_shown(dir, offset, |ino| {
            let _ = self.entry_attr(ino);
            true
        })
    }

    fn each_shown(
        &self,
        dir: Ino,
        offset: u64,
        mut seen: impl FnMut(Ino) -> bool,
    ) -> Result<(), VfsError> {
        let mut left = SHOWN_AT_ONCE;
        self.readdir(dir, offset, &mut |entry| {
            left -= 1;
            seen(entry.ino) && left > 0
        })
    }

    fn needs_disk(&self, ino: Ino) -> bool {
        match self.inodes.node(ino) {
            Some(Node::Sample(slot, sample)) => {
                let mounted = self.at_slot(slot);
                mounted.is_some_and(|mounted| !mounted.cache().remembers_len(sample))
            }
            _ => false,
        }
    }
}
