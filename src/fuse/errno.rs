//! The one table from failures to errno values. Damage is logged where it is first met, in the tree;
//! here each failed request is logged for whoever debugs.

use std::fmt;

use rustix::io::Errno;

use crate::error::Room;
use crate::vfs::{Ino, Request, VfsError};

/// A request, for a log line: what the kernel asked of which inode.
#[derive(Clone, Copy)]
pub(super) struct Call {
    /// Which request.
    pub(super) request: Request,
    /// The inode asked for.
    pub(super) ino: Ino,
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
            log::debug!("{call}: {} (errno {})", cause.chain(), errno.raw_os_error());
        }
        VfsError::Migration(cause) => {
            log::debug!("{call}: {cause} (errno {})", errno.raw_os_error())
        }
        other => log::debug!("{call}: {other:?} (errno {})", errno.raw_os_error()),
    }
    errno
}

fn errno(error: &VfsError) -> Errno {
    match error {
        VfsError::NotFound => Errno::NOENT,
        VfsError::NameTooLong => Errno::NAMETOOLONG,
        VfsError::NotADirectory => Errno::NOTDIR,
        VfsError::IsADirectory => Errno::ISDIR,
        VfsError::NotASymlink | VfsError::BadControlWord => Errno::INVAL,
        VfsError::ReadOnly => Errno::ROFS,
        VfsError::Busy => Errno::BUSY,
        VfsError::NoAttribute => Errno::NODATA,
        VfsError::Unsupported => Errno::NOSYS,
        VfsError::Damaged(_) | VfsError::Panic => Errno::IO,
        VfsError::NoRoom(Room::Memory) => Errno::NOMEM,
        VfsError::NoRoom(Room::Disk) => Errno::NOSPC,
        VfsError::TakesLong => Errno::AGAIN,
        VfsError::Migration(cause) => match cause.errno {
            // The run was told to end. Programs take EINTR for a reason to write again at once.
            Some(errno) if errno == Errno::INTR.raw_os_error() => Errno::CANCELED,
            Some(errno) => Errno::from_raw_os_error(errno),
            None => Errno::IO,
        },
        VfsError::Stale => Errno::STALE,
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
        assert_eq!(errno(&failed(Some(28))).raw_os_error(), 28);
        assert_eq!(errno(&failed(None)).raw_os_error(), 5);
        let canceled = Errno::CANCELED.raw_os_error();
        assert_eq!(
            errno(&failed(Some(4))).raw_os_error(),
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
        assert_eq!(errno(&VfsError::Damaged(Arc::new(gone))).raw_os_error(), 5);
        assert_eq!(errno(&VfsError::Stale).raw_os_error(), 116);
    }
}
