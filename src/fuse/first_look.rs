//! A look at our own mount from outside, by a thread that does not hold its connection.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{fstat, fstatvfs, major, minor, stat, statvfs};

use super::mount;
use super::mount_table::Device;

/// Numbers of descriptors below which that of the connection surely lies: it is opened at the start.
const MOST_LOOKED_AT: i32 = 4096;

/// A look at the mount `tree`, or where it lies already at `path`.
pub(super) fn look(
    path: &Path,
    tree: Option<Arc<OwnedFd>>,
    expected: Option<Device>,
) -> io::Result<()> {
    let number = tree.as_ref().map(AsRawFd::as_raw_fd);
    let apart = let_go_of_the_connection(number);
    let found = match &tree {
        Some(tree) => fstatvfs(tree).and_then(|_| fstat(tree)),
        None => statvfs(path).and_then(|_| stat(path)),
    };
    if let Some(number) = number.filter(|_| apart) {
        // In this table alone: the others have theirs, which is closed when nobody needs it.
        let _ = nix::unistd::close(number);
    }
    let found = found?;
    let found = Device {
        major: major(found.st_dev),
        minor: minor(found.st_dev),
    };
    if Some(found) == expected {
        Ok(())
    } else {
        Err(io::Error::other("another mount lies over it"))
    }
}

/// Gives this thread a table of descriptors of its own, without those of the FUSE connection. A
/// process that is killed lets go of a descriptor when the last thread that has it ends; a thread
/// that waits for an answer ends when it has one; and nobody answers once the others have ended. So
/// a look at our own mount from a thread that held the connection could wait for ever, and with it
/// everybody who looks at the mount. `kept` stays open. Whether there is such a table now.
fn let_go_of_the_connection(kept: Option<RawFd>) -> bool {
    if let Err(error) = unshare(CloneFlags::CLONE_FILES) {
        log::debug!("descriptors stay shared: {error}");
        return false;
    }
    let Ok(open) = fs::read_dir("/proc/thread-self/fd") else {
        // A process that has changed its user may not look. A look at a path takes no descriptor.
        for number in (3..MOST_LOOKED_AT).filter(|number| Some(*number) != kept) {
            let _ = nix::unistd::close(number);
        }
        return true;
    };
    let of_the_connection = open.flatten().filter_map(|entry| {
        let number: i32 = entry.file_name().to_str()?.parse().ok()?;
        let target = fs::read_link(entry.path()).ok()?;
        (target == Path::new(mount::DEVICE)).then_some(number)
    });
    for number in of_the_connection.collect::<Vec<_>>() {
        // In this table alone: the others of the process keep theirs.
        let _ = nix::unistd::close(number);
    }
    true
}
