//! Mounting as root.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};

use super::super::mount_table::FSTYPE;
use super::mountpoint::{Mountpoint, by_descriptor};
use super::{DEVICE, MountOptions, SUBTYPE, open_device};
use crate::error::{Error, Result};

/// What comes before [`SUBTYPE`] in [`FSTYPE`].
const KIND: &str = "fuse";

/// A mount that lies nowhere yet: the connection to the kernel, on which INIT waits, and the mount,
/// which ends when this descriptor is closed before it was attached. `None` where the kernel, or what
/// confines us, has no such calls.
pub(super) fn detached(options: &MountOptions) -> Option<(OwnedFd, OwnedFd)> {
    let connection = OwnedFd::from(open_device().ok()?);
    match make(&connection, options) {
        Ok(tree) => Some((connection, tree)),
        Err(error) => {
            log::debug!("mounting in one step, as fsopen(2) and fsmount(2) give: {error}");
            None
        }
    }
}

fn make(connection: &OwnedFd, options: &MountOptions) -> rustix::io::Result<OwnedFd> {
    let context = fsopen(KIND, FsOpenFlags::FSOPEN_CLOEXEC)?;
    let context = context.as_fd();
    let user = rustix::process::geteuid().as_raw().to_string();
    let group = rustix::process::getegid().as_raw().to_string();
    let fd = connection.as_raw_fd().to_string();
    fsconfig_set_string(context, "source", options.source.as_os_str())?;
    for (key, value) in [
        ("subtype", SUBTYPE),
        ("fd", &fd),
        ("rootmode", "40000"),
        ("user_id", &user),
        ("group_id", &group),
    ] {
        fsconfig_set_string(context, key, value)?;
    }
    fsconfig_set_flag(context, "default_permissions")?;
    if options.allow_other {
        fsconfig_set_flag(context, "allow_other")?;
    }
    if options.read_only {
        // The file system, so that the kernel keeps access times; the mount below too.
        fsconfig_set_flag(context, "ro")?;
    }
    fsconfig_create(context)?;
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    attributes.set(MountAttrFlags::MOUNT_ATTR_NOEXEC, options.noexec);
    attributes.set(MountAttrFlags::MOUNT_ATTR_RDONLY, options.read_only);
    fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Puts the mount `tree` on the directory `at`, or over what was mounted there meanwhile.
pub(super) fn attach(tree: &OwnedFd, at: &Mountpoint) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    match move_mount(tree, "", at.directory(), "", flags) {
        Ok(()) => Ok(()),
        Err(error) => Err(refused(at, error)),
    }
}

/// Mounts on the directory `at` in one step; the mount is there before anything is served.
pub(super) fn mount(at: &Mountpoint, options: &MountOptions) -> Result<OwnedFd> {
    let connection =
        open_device().map_err(|source| Error::io(DEVICE, "open the FUSE device", source))?;
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let fd = connection.as_raw_fd();
    let other = if options.allow_other {
        ",allow_other"
    } else {
        ""
    };
    let data =
        format!("fd={fd},rootmode=40000,user_id={uid},group_id={gid},default_permissions{other}");
    let data = CString::new(data).map_err(|error| Error::io(DEVICE, "mount", error.into()))?;
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::NOEXEC, options.noexec);
    flags.set(MountFlags::RDONLY, options.read_only);
    let directory = by_descriptor(at.directory());
    let source = options.source.as_os_str();
    match rustix::mount::mount(source, directory, FSTYPE, flags, data.as_c_str()) {
        Ok(()) => Ok(connection.into()),
        Err(error) => Err(refused(at, error)),
    }
}

fn refused(at: &Mountpoint, error: Errno) -> Error {
    match error {
        Errno::PERM => {
            let reason = "mounting is not permitted: CAP_SYS_ADMIN is needed \
                 (in a container: `--device /dev/fuse --cap-add SYS_ADMIN`, and an AppArmor profile that lets it mount)";
            Error::refused(at.path(), reason)
        }
        Errno::NODEV => Error::refused(
            at.path(),
            "this kernel has no FUSE: load it with `modprobe fuse`",
        ),
        error => Error::io(at.path(), "mount", error.into()),
    }
}
