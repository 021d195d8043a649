//! Our attributes as fuser has them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use fuser::{FileAttr, FileType, INodeNo};

use crate::vfs::{Attr, FileKind, Ino, Ttl};
use crate::view::NAME_MAX;

/// Longer than any mount lives, and far from the overflow of the kernel's clock.
pub(super) const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// What `st_blksize` says. Larger values make `cp` and `cat` allocate more and gain nothing here.
const BLOCK_SIZE: u32 = 4096;

/// An entry with inode 0: the kernel remembers that the name does not exist.
pub(super) const NO_ENTRY: FileAttr = FileAttr {
    ino: INodeNo(0),
    size: 0,
    blocks: 0,
    atime: SystemTime::UNIX_EPOCH,
    mtime: SystemTime::UNIX_EPOCH,
    ctime: SystemTime::UNIX_EPOCH,
    crtime: SystemTime::UNIX_EPOCH,
    kind: FileType::RegularFile,
    perm: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: BLOCK_SIZE,
    flags: 0,
};

/// The group of a file that nobody may open for writing: the kernel can map it in no user namespace,
/// and then refuses by itself (EACCES), root too. It shows as 65534 (fs.overflowgid).
const UNMAPPED_GID: u32 = u32::MAX;

/// What stands for the attributes of an entry that has none to tell. The kernel shows the name, number and
/// kind, and takes nothing else from it: no file is as long. Number 0 would say the same, but programs
/// take such an entry for a deleted one.
pub(super) fn no_attributes(ino: Ino, kind: FileKind) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino.0),
        size: u64::MAX,
        kind: file_type(kind),
        ..NO_ENTRY
    }
}

/// A name that may go to another thread, without memory of its own. Of a longer one there is enough to
/// see that it is too long.
pub(super) struct Name {
    bytes: [u8; NAME_MAX + 1],
    len: usize,
}

impl Name {
    pub(super) fn new(name: &OsStr) -> Self {
        let mut bytes = [0; NAME_MAX + 1];
        let len = name.len().min(bytes.len());
        if let (Some(to), Some(from)) = (bytes.get_mut(..len), name.as_bytes().get(..len)) {
            to.copy_from_slice(from);
        }
        Self { bytes, len }
    }

    pub(super) fn get(&self) -> &OsStr {
        OsStr::from_bytes(self.bytes.get(..self.len).unwrap_or_default())
    }
}

pub(super) fn ttl(ttl: Ttl) -> Duration {
    match ttl {
        Ttl::Forever => FOREVER,
        Ttl::Never => Duration::ZERO,
    }
}

pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
    }
}

pub(super) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size,
        blocks: attr.size.div_ceil(512),
        atime: attr.mtime,
        mtime: attr.mtime,
        ctime: attr.mtime,
        crtime: attr.mtime,
        kind: file_type(attr.kind),
        perm: attr.perm,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: if attr.sealed { UNMAPPED_GID } else { attr.gid },
        rdev: 0,
        blksize: BLOCK_SIZE,
        flags: 0,
    }
}
