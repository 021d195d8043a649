//! A look at our own mount from outside, by a thread that holds none of its descriptors.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{fstat, fstatvfs, major, minor, stat, statvfs};

use super::mount_table::Device;

/// Numbers of descriptors below which those that matter surely lie: they are opened at the start.
const MOST_LOOKED_AT: i32 = 4096;

/// A look at the mount `tree`, or where it lies already at `path`.
pub(super) fn look(
    path: &Path,
    tree: Option<Arc<OwnedFd>>,
    expected: Option<Device>,
) -> io::Result<()> {
    let number = tree.as_ref().map(AsRawFd::as_raw_fd);
    let apart = let_go_of_descriptors(number);
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

/// Gives this thread a table of descriptors of its own, with none but `kept` and the standard ones. A
/// process that is killed lets go of a descriptor when the last thread that has it ends; a thread
/// that waits for an answer ends when it has one; and nobody answers once the others have ended. So
/// a look at our own mount from a thread that held the connection could wait for ever, and with it
/// everybody who looks at the mount. Nor may a thread that ends late keep the lock of this start, or a
/// directory of the mount, for longer than the others do. Whether there is such a table now.
fn let_go_of_descriptors(kept: Option<RawFd>) -> bool {
    if let Err(error) = unshare(CloneFlags::CLONE_FILES) {
        log::debug!("descriptors stay shared: {error}");
        return false;
    }
    // A process that has changed its user may not look. A look at a path takes no descriptor.
    let open = descriptors().unwrap_or_else(|_| (0..MOST_LOOKED_AT).collect());
    let others = open.into_iter().filter(|n| *n > 2 && Some(*n) != kept);
    for number in others {
        // In this table alone: the others of the process keep theirs.
        let _ = nix::unistd::close(number);
    }
    true
}

/// Those of this thread; one more was open while they were listed.
fn descriptors() -> io::Result<Vec<RawFd>> {
    let entries = fs::read_dir("/proc/thread-self/fd")?;
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(numbers.collect())
}
