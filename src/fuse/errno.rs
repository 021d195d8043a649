//! The one table from failures to errno values. Damage is logged where it is first met, in the tree;
//! here each failed request is logged for whoever debugs.

use std::fmt;

use fuser::{Errno, INodeNo};
use rustix::io::Errno as Os;

use crate::error::{Error, FaultKind};
use crate::vfs::{Request, VfsError};

/// A request, for a log line: what the kernel asked of which inode.
#[derive(Clone, Copy)]
pub(super) struct Call {
    /// Which request.
    pub(super) request: Request,
    /// The inode asked for.
    pub(super) ino: INodeNo,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of inode {}", self.request.name(), self.ino.0)
    }
}

/// Logs that `call` failed and gives the errno to answer.
pub(super) fn report(call: Call, error: &VfsError) -> Errno {
    let errno = errno(error);
    match error {
        VfsError::Damaged(cause) | VfsError::Failed(cause) => {
            log::debug!("{call}: {} (errno {})", cause.chain(), errno.code());
        }
        other => log::debug!("{call}: {other:?} (errno {})", errno.code()),
    }
    errno
}

fn errno(error: &VfsError) -> Errno {
    match error {
        VfsError::NotFound => Errno::ENOENT,
        VfsError::NameTooLong => Errno::ENAMETOOLONG,
        VfsError::NotADirectory => Errno::ENOTDIR,
        VfsError::IsADirectory => Errno::EISDIR,
        VfsError::NotASymlink | VfsError::BadControlWord => Errno::EINVAL,
        VfsError::ReadOnly => Errno::EROFS,
        VfsError::Busy => Errno::EBUSY,
        VfsError::Damaged(_) => Errno::EIO,
        VfsError::Failed(cause) => cause_errno(cause),
        VfsError::Stale => stale(),
    }
}

/// What stopped an operation of a control file.
fn cause_errno(cause: &Error) -> Errno {
    match cause {
        Error::Io { source, .. } => source.raw_os_error().map_or(Errno::EIO, Errno::from_i32),
        Error::DuplicateCacheId { .. } => Errno::EEXIST,
        Error::Damaged { fault, .. } if fault.kind == FaultKind::Replaced => stale(),
        Error::Incomplete { .. }
        | Error::UnsupportedVersion { .. }
        | Error::Damaged { .. }
        | Error::NoSuchSample { .. }
        | Error::Refused { .. }
        | Error::Several(_) => Errno::EIO,
    }
}

fn stale() -> Errno {
    Errno::from_i32(Os::STALE.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_operation_that_failed_gives_the_errno_that_stopped_it() {
        let full = Error::io(
            "/c/manifest.json",
            "write",
            io::Error::from_raw_os_error(28),
        );
        assert_eq!(errno(&VfsError::Failed(Arc::new(full))).code(), 28);
        let refused = Error::refused("/c", "no");
        assert_eq!(errno(&VfsError::Failed(Arc::new(refused))).code(), 5);
    }

    #[test]
    fn damage_is_always_an_io_error() {
        let gone = Error::io(
            "/c/shards/000000.bin",
            "read",
            io::Error::from_raw_os_error(2),
        );
        assert_eq!(errno(&VfsError::Damaged(Arc::new(gone))).code(), 5);
        assert_eq!(errno(&VfsError::Stale).code(), 116);
    }
}
