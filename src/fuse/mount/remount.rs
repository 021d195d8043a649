//! `mount -o remount`: a mount of ours becomes read-only, or writable again.

use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};

use super::look::resolve;
use crate::error::{Error, Result};
use crate::fuse::mount_table;

/// Makes the mount of ours at `mountpoint` read-only, or writable. All else of it stays.
///
/// # Errors
/// When no mount of ours lies there, this user may not change it, or a control file is open for
/// writing.
pub fn remount(mountpoint: &Path, read_only: bool) -> Result<()> {
    let at = resolve(mountpoint)?;
    let Some(top) = mount_table::top_at(&at)?.filter(mount_table::MountEntry::is_ours) else {
        let reason = "remount: no mount of datasetrt-mount is here";
        return Err(Error::refused(mountpoint, reason));
    };
    // The kernel keeps what it does about access times; the rest is what a mount of ours has.
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::NOEXEC, top.has_option("noexec"));
    flags.set(MountFlags::NOSYMFOLLOW, top.has_option("nosymfollow"));
    flags.set(MountFlags::RDONLY, read_only);
    match mount_remount(at.as_path(), flags, c"") {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => Err(Error::refused(mountpoint, "remount: only root may do this")),
        Err(Errno::BUSY) => {
            let reason = "remount: a control file is open for writing";
            Err(Error::refused(mountpoint, reason))
        }
        Err(error) => Err(Error::io(mountpoint, "remount", error.into())),
    }
}
