//! Who may read what: nobody reads through the mount what they could not read from the cache.

use super::VfsOptions;
use crate::cache::Cache;

/// Owner, group and permission bits of a cache's files in the tree.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Permissions {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// 0444 or less.
    pub(super) file: u16,
}

impl Permissions {
    /// Those of the cache's index.bin, less what its folder does not let in, unless the options say
    /// otherwise.
    pub(super) fn of(cache: &Cache, options: &VfsOptions) -> Self {
        let (index, dir) = (cache.index_info(), cache.dir_info());
        // Somebody of the file's group who is not of the folder's passes as one of the others.
        let group_search = if index.gid == dir.gid { 0o010 } else { 0o001 };
        let mut mode = index.mode & 0o444;
        if dir.mode & group_search == 0 {
            mode &= !0o040;
        }
        if dir.mode & 0o001 == 0 {
            mode &= !0o004;
        }
        if let Some(umask) = options.umask {
            mode = 0o444 & !umask;
        }
        Self {
            uid: options.show_uid.unwrap_or(index.uid),
            gid: options.show_gid.unwrap_or(index.gid),
            file: u16::try_from(mode & 0o444).unwrap_or(0),
        }
    }

    /// Those of something that shows what both show: whoever may not read one of them may not read
    /// it. What has different owners belongs to whoever mounted, and is for others what the lesser
    /// of both is for others.
    pub(super) fn shared(self, other: Self, options: &VfsOptions) -> Self {
        let file = self.file & other.file;
        if (self.uid, self.gid) == (other.uid, other.gid) {
            return Self { file, ..self };
        }
        let others = file & 0o004;
        Self {
            uid: options.uid,
            gid: options.gid,
            file: (file & 0o400) | (others << 3) | others,
        }
    }

    /// Bits of a folder that whoever may read the files may list and enter. Its owner may write, too:
    /// nothing changes in the tree, but a copy of it can be removed again.
    pub(super) fn dir(self, options: &VfsOptions) -> u16 {
        let umask = u16::try_from(options.umask.unwrap_or(0) & 0o777).unwrap_or(0o777);
        self.file | (self.file >> 2) | ((self.file >> 1) & 0o200 & !umask)
    }
}
