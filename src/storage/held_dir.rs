//! Folders that are held open, as many as the bound on descriptors lets.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::CWD;

use super::OpenFileLimit;
use super::device::FsKind;
use super::resolve::place_without_links;
use super::shard_files::DirPermit;

/// A folder by descriptor. Beyond the bound on these, by its path without links, and what it was.
#[derive(Debug)]
pub(super) struct HeldDir {
    pub(super) path: PathBuf,
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) kind: FsKind,
    fd: Option<(OwnedFd, DirPermit)>,
}

/// A held folder, or one that was found again.
pub(super) enum DirFd<'a> {
    Held(BorrowedFd<'a>),
    Again(OwnedFd),
}

impl AsFd for DirFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Held(fd) => *fd,
            Self::Again(fd) => fd.as_fd(),
        }
    }
}

impl HeldDir {
    pub(super) fn new(fd: OwnedFd, path: PathBuf, limit: &Arc<OpenFileLimit>) -> io::Result<Self> {
        let found = rustix::fs::fstat(&fd)?;
        let kind = limit.kind_of(found.st_dev, &fd);
        Ok(Self {
            path,
            device: found.st_dev,
            inode: found.st_ino,
            kind,
            fd: limit.hold_dir().map(|permit| (fd, permit)),
        })
    }

    pub(super) fn get(&self) -> io::Result<DirFd<'_>> {
        if let Some((fd, _)) = &self.fd {
            return Ok(DirFd::Held(fd.as_fd()));
        }
        let found = self.find()?.ok_or_else(|| {
            let why = format!(
                "the folder {} was replaced, and too many are in use to keep each open",
                self.path.display()
            );
            io::Error::other(why)
        })?;
        Ok(DirFd::Again(found))
    }

    /// The folder, if it is still at its path.
    pub(super) fn find(&self) -> io::Result<Option<OwnedFd>> {
        let fd = place_without_links(CWD, &self.path)?;
        let found = rustix::fs::fstat(&fd)?;
        let same =
            found.st_dev == self.device && (!self.kind.numbered || found.st_ino == self.inode);
        Ok(same.then_some(fd))
    }
}
