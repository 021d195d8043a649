//! Our attributes as fuser has them.

use std::time::{Duration, SystemTime};

use fuser::{FileAttr, FileType, INodeNo};

use crate::vfs::{Attr, FileKind, Ttl};

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
