//! A connection that somebody else opened and mounted: `--fuse-fd`.

use std::os::fd::OwnedFd;

use rustix::fs::{FileType, fstat, major, minor};

use crate::error::{Error, Result};

/// /dev/fuse, on every Linux.
const DEVICE: (u32, u32) = (10, 229);

/// Checks that `connection` is an open FUSE device. Whether it is mounted shows when it is used.
///
/// # Errors
/// When it is something else.
pub(in super::super) fn check_given(connection: &OwnedFd) -> Result<()> {
    let found = fstat(connection)
        .map_err(|error| Error::io("--fuse-fd", "look at the descriptor", error.into()))?;
    let is_device = FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice;
    if is_device && (major(found.st_rdev), minor(found.st_rdev)) == DEVICE {
        return Ok(());
    }
    let reason = "this descriptor is not /dev/fuse: open it for reading and writing, mount with \
                  `fd=N,rootmode=40000,user_id=UID,group_id=GID,default_permissions`, and hand it over";
    Err(Error::refused("--fuse-fd", reason))
}
