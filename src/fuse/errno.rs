//! The one table from failures to errno values. Damage is logged where it is first met, in the tree;
//! here each failed request is logged for whoever debugs.

use std::fmt;

use fuser::{Errno, INodeNo};
use rustix::io::Errno as Os;

use crate::error::Room;
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
        VfsError::Damaged(cause) => {
            log::debug!("{call}: {} (errno {})", cause.chain(), errno.code());
        }
        VfsError::Migration(cause) => log::debug!("{call}: {cause} (errno {})", errno.code()),
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
        VfsError::NoAttribute => Errno::ENODATA,
        VfsError::Unsupported => Errno::ENOSYS,
        VfsError::Damaged(_) => Errno::EIO,
        VfsError::NoRoom(Room::Memory) => Errno::ENOMEM,
        VfsError::NoRoom(Room::Disk) => Errno::ENOSPC,
        VfsError::Migration(cause) => match cause.errno {
            // The run was told to end. Programs take EINTR for a reason to write again at once.
            Some(errno) if errno == Os::INTR.raw_os_error() => Errno::ECANCELED,
            Some(errno) => Errno::from_i32(errno),
            None => Errno::EIO,
        },
        VfsError::Stale => Errno::from_i32(Os::STALE.raw_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;
    use crate::error::Error;
    use crate::migrate::ManifestUpdateError;

    #[test]
    fn a_migration_that_failed_gives_the_errno_that_stopped_it() {
        let failed = |errno| {
            VfsError::Migration(Arc::new(ManifestUpdateError {
                path: None,
                message: String::new(),
                entries: Vec::new(),
                errno,
            }))
        };
        assert_eq!(errno(&failed(Some(28))).code(), 28);
        assert_eq!(errno(&failed(None)).code(), 5);
        let canceled = Os::CANCELED.raw_os_error();
        assert_eq!(
            errno(&failed(Some(4))).code(),
            canceled,
            "EINTR would be tried again"
        );
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
