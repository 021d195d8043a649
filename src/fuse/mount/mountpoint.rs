//! The directory that is mounted on. It is held by descriptor from the start, so that no link or
//! directory that is put in its place later is mounted on.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;

use super::super::mount_table::{self, MountEntry};
use super::look::{clear_leftovers, hung, in_time, resolve, still_mounted};
use super::mount_id::MountId;
use super::turn::Turn;
use crate::error::{Error, Result};

/// A directory to mount on, with the right to start there. Dropping it lets others start.
#[derive(Debug)]
pub struct Mountpoint {
    /// Where it was when it was taken.
    path: PathBuf,
    directory: OwnedFd,
    /// The mount that it lies in.
    within: MountId,
    _turn: Turn,
}

impl Mountpoint {
    /// Takes the directory at `mountpoint`, from where a dead mount of ours is cleared.
    ///
    /// # Errors
    /// When it is no directory, a live or hung mount of ours lies there, or another start has it.
    pub(super) fn take(mountpoint: &Path) -> Result<Self> {
        let resolved = resolve(mountpoint)?;
        // Until this start has its turn, so that none that comes later unmounts what it mounts.
        let _clearing = clear_leftovers(&resolved)?;
        let path = resolved.clone();
        let directory = match in_time(move || open_directory(&path)) {
            Some(Ok(directory)) => directory,
            Some(Err(Errno::NOTDIR)) => {
                return Err(Error::refused(
                    mountpoint,
                    "the mountpoint is not a directory",
                ));
            }
            Some(Err(Errno::LOOP)) => return Err(replaced(mountpoint)),
            Some(Err(error)) => {
                return Err(Error::io(
                    mountpoint,
                    "look at the mountpoint",
                    error.into(),
                ));
            }
            None => return Err(hung(mountpoint)),
        };
        let failed = |error| Error::io(mountpoint, "look at the mountpoint", error);
        let Some(turn) = Turn::take(&directory) else {
            let reason = "another datasetrt-mount is starting here at this moment";
            return Err(Error::refused(mountpoint, reason));
        };
        // Later than the descriptor: from here on it is known when the directory is moved.
        if path_of(directory.as_fd()).map_err(failed)? != resolved {
            return Err(replaced(mountpoint));
        }
        let held = Self {
            path: resolved,
            within: MountId::of(&directory).map_err(failed)?,
            directory,
            _turn: turn,
        };
        // Another start may have ended since the look above.
        match mount_table::top_at(&held.path)? {
            Some(top) if top.is_ours() => Err(still_mounted(
                mountpoint,
                "a datasetrt-mount is already mounted here",
            )),
            _ => Ok(held),
        }
    }

    /// Its path when it was taken.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Checks that it still is where it was.
    ///
    /// # Errors
    /// When it was moved or removed: whoever uses its path would find something else.
    pub(super) fn check_in_place(&self) -> Result<()> {
        match path_of(self.directory.as_fd()) {
            Ok(path) if path == self.path => Ok(()),
            Ok(_) => Err(replaced(&self.path)),
            Err(error) => Err(Error::io(&self.path, "look at the mountpoint", error)),
        }
    }

    /// Whether `entry` is mounted on this very directory. At most one mount is.
    pub(super) fn carries(&self, entry: &MountEntry) -> bool {
        entry.parent == self.within.number && entry.mountpoint == self.path
    }
}

fn replaced(mountpoint: &Path) -> Error {
    let reason = "the mountpoint was moved or replaced while the mount was made ready";
    Error::refused(mountpoint, reason)
}

/// The directory at `path`, in which no component may be a link.
pub(super) fn open_directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // Kernels before 5.6, and filters that do not know the call.
        Err(Errno::NOSYS | Errno::PERM) => open(path, flags, Mode::empty()),
        result => result,
    }
}

/// A name for `file` that leads to it whatever happens to its path.
pub(super) fn by_descriptor(file: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Where `file` is now.
fn path_of(file: BorrowedFd<'_>) -> io::Result<PathBuf> {
    fs::read_link(by_descriptor(file))
}
