//! What the tree answers: attributes, directory entries, errors.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::SystemTime;

use super::Ino;
use crate::error::{Error, Room};
use crate::migrate::ManifestUpdateError;

/// The three kinds of node in the tree.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// How long the kernel may keep an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ttl {
    /// For the life of the mount: the node never changes.
    Forever,
    /// Ask again each time.
    Never,
}

/// Attributes of one node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attr {
    /// Inode number, a fixed function of the node.
    pub ino: Ino,
    /// True length in bytes.
    pub size: u64,
    /// Time of last change of the content (also given as atime and ctime).
    pub mtime: SystemTime,
    /// Kind of node.
    pub kind: FileKind,
    /// Permission bits, without the file type.
    pub perm: u16,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// How long this answer holds.
    pub ttl: Ttl,
    /// No process may open it for writing, not even one with privileges. Its group means nothing.
    pub sealed: bool,
}

/// One name in a directory listing.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// Inode number of the named node.
    pub ino: Ino,
    /// Offset that resumes the listing after this entry.
    pub next_offset: u64,
    /// Kind of the named node.
    pub kind: FileKind,
    /// The name, one path component.
    pub name: &'a OsStr,
}

/// Changes asked for by setattr; absent fields stay.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    /// New length in bytes (truncate).
    pub size: Option<u64>,
    /// New permission bits.
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// Whether any time stamp is to change.
    pub times: bool,
}

/// What is left to do of a request, which takes its time.
pub type Work = Box<dyn FnOnce() -> Result<(), VfsError> + Send>;

/// What becomes of a write.
pub enum Written {
    /// All bytes were taken.
    All,
    /// The bytes ask for work that takes its time: to be run on a thread of its own, and only then
    /// answered with what it returns.
    Later(Work),
}

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::All => "All",
            Self::Later(_) => "Later",
        })
    }
}

/// Capacity of the tree; nothing is ever free.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StatFs {
    /// Bytes of all files, in blocks of `block_size`.
    pub blocks: u64,
    /// Number of files and directories.
    pub files: u64,
    /// Bytes per block.
    pub block_size: u32,
    /// Longest name, in bytes.
    pub name_max: u32,
}

/// Why a call failed. Each variant has one errno (`crate::fuse::errno`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum VfsError {
    /// No such name or node.
    NotFound,
    /// The name is longer than 255 bytes.
    NameTooLong,
    /// A directory was expected.
    NotADirectory,
    /// A file was expected.
    IsADirectory,
    /// The node is not a symbolic link.
    NotASymlink,
    /// The tree does not change.
    ReadOnly,
    /// A control file did not understand what was written.
    BadControlWord,
    /// The control file is already at work.
    Busy,
    /// The sample or its cache is damaged or cannot be read.
    Damaged(Arc<Error>),
    /// There is too little memory or disk space for it; it was logged.
    NoRoom(Room),
    /// A migration failed; it knows the errno that stopped it.
    Migration(Arc<ManifestUpdateError>),
    /// The node has no extended attribute of this name.
    NoAttribute,
    /// The mount does not do this; it need not be asked again.
    Unsupported,
    /// A virtual file was replaced since it was looked up.
    Stale,
    /// It takes long, and this thread has others to serve: ask again on one that has not
    /// ([`crate::vfs::OnThread`]). Nobody outside hears this.
    TakesLong,
    /// It panicked, which was logged.
    Panic,
}
