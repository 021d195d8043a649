//! Mounting and unmounting: mount(2) as root, fusermount3 for everybody else.
//!
//! Commas, backslashes, line breaks and bytes that are not UTF-8 in any path are harmless: the only
//! path inside a mount option is the source for fusermount3, which is escaped. A [`Mount`] unmounts when dropped, and only itself: the
//! mount on top at its path must still have the device number that it had.

mod given;
mod helper;
mod look;
mod remount;

use std::ffi::{CString, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

pub(super) use given::check_given;
pub use helper::{CONFIG as HELPER_CONFIG, find as find_helper, others_allowed};
pub use look::{Answer, answer, quoted, resolve, within};
pub use remount::remount;

use self::look::{LOOK, clear_leftovers, hung, in_time};
use super::confine::may_mount;
use super::mount_table::{self, Device, FSTYPE};
use crate::error::{Error, Result};

/// What comes after `fuse.` in the type of our mounts.
const SUBTYPE: &str = "datasetrt-mount";
pub(super) const DEVICE: &str = "/dev/fuse";

/// Where and how to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The mountpoint, as [`prepare`] gave it.
    pub mountpoint: PathBuf,
    /// Let other users in (by the mode bits).
    pub allow_other: bool,
    /// Refuse to run programs from the mount.
    pub noexec: bool,
    /// Let nobody write, not even to control files.
    pub read_only: bool,
    /// The source column of the mount table: `mount -a` knows by it what is mounted.
    pub source: OsString,
}

/// Checks all that can be known before mounting, and clears a dead mount of ours that lies at
/// `mountpoint`. Gives the resolved mountpoint.
///
/// # Errors
/// When mounting there cannot work; the text says what to do about it.
pub fn prepare(mountpoint: &Path, allow_other: bool) -> Result<PathBuf> {
    let resolved = resolve(mountpoint)?;
    clear_leftovers(&resolved)?;
    let look = resolved.clone();
    match in_time(move || fs::metadata(look)) {
        Some(Ok(found)) if found.is_dir() => {}
        Some(Ok(_)) => {
            return Err(Error::refused(
                mountpoint,
                "the mountpoint is not a directory",
            ));
        }
        Some(Err(source)) => return Err(Error::io(mountpoint, "look at the mountpoint", source)),
        None => return Err(hung(mountpoint)),
    }
    check_device()?;
    if !is_root() {
        helper::check(allow_other)?;
    }
    Ok(resolved)
}

/// A mount of ours; dropping it unmounts it.
#[derive(Debug)]
pub(super) struct Mount {
    mountpoint: PathBuf,
    device: Option<Device>,
}

/// Mounts; the descriptor is the connection to the kernel, on which INIT already waits.
///
/// # Errors
/// When the mount is refused; nothing is left mounted then.
pub(super) fn mount(options: &MountOptions) -> Result<(OwnedFd, Mount)> {
    let connection = if is_root() {
        mount_as_root(options)?
    } else {
        helper::mount(options)?
    };
    let mountpoint = options.mountpoint.clone();
    match mount_table::top_at(&mountpoint) {
        Ok(Some(top)) if top.is_ours() => Ok((
            connection,
            Mount {
                mountpoint,
                device: Some(top.device),
            },
        )),
        Ok(_) => Err(Error::refused(
            mountpoint,
            "another mount was made over ours at once",
        )),
        Err(error) => {
            // Without the table we cannot know it again later, so it goes now.
            unmount(&mountpoint, true)?;
            Err(error)
        }
    }
}

impl Mount {
    /// A mount that somebody else made at `mountpoint` and is to end.
    pub(super) fn of_another(mountpoint: &Path) -> Self {
        Self {
            mountpoint: mountpoint.to_path_buf(),
            device: None,
        }
    }

    /// The directory it is mounted on.
    pub(super) fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// The device number of the mount, by which it is known.
    pub(super) fn device(&self) -> Option<Device> {
        self.device
    }

    /// Takes the mount out of the tree, if it still is there. Open files go on working until this
    /// process ends.
    ///
    /// # Errors
    /// When it is there and cannot be unmounted.
    pub(super) fn unmount(&mut self) -> Result<()> {
        let Some(device) = self.device.take() else {
            return Ok(());
        };
        match mount_table::top_at(&self.mountpoint)? {
            Some(top) if top.device == device => unmount(&self.mountpoint, true).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Takes the mount out of the tree after its connection has ended, where somebody aborted it. Where
    /// it was unmounted there is nothing to do, and whoever mounts next may have been given the same
    /// device number: a mount that answers is theirs.
    ///
    /// # Errors
    /// When it is there and cannot be unmounted.
    pub(super) fn clear_dead(&mut self) -> Result<()> {
        let device = self.device.take();
        match mount_table::top_at(&self.mountpoint)? {
            Some(top) if Some(top.device) == device && top.is_ours() => {
                match answer(&self.mountpoint, LOOK) {
                    Answer::Dead => unmount(&self.mountpoint, true).map(|_| ()),
                    Answer::Alive | Answer::Hung => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            log::error!("{}", error.chain());
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn open_device() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(DEVICE)
}

/// Opens the FUSE device and closes it again.
///
/// # Errors
/// When it cannot be opened; the text says what to do about it.
pub fn check_device() -> Result<()> {
    let Err(source) = open_device() else {
        return Ok(());
    };
    let reason = match Errno::from_io_error(&source) {
        Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => {
            "there is no FUSE device: load it with `modprobe fuse`; in a container start it with `--device /dev/fuse`"
        }
        Some(Errno::ACCESS) => {
            "this user may not open the FUSE device: `chmod 0666 /dev/fuse` as root, which is what most systems have"
        }
        Some(Errno::PERM) => {
            "the FUSE device is forbidden here: start the container with `--device /dev/fuse --cap-add SYS_ADMIN`"
        }
        _ => return Err(Error::io(DEVICE, "open the FUSE device", source)),
    };
    Err(Error::refused(DEVICE, reason))
}

fn mount_as_root(options: &MountOptions) -> Result<OwnedFd> {
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
    let mountpoint = options.mountpoint.as_path();
    match rustix::mount::mount(
        options.source.as_os_str(),
        mountpoint,
        FSTYPE,
        flags,
        data.as_c_str(),
    ) {
        Ok(()) => Ok(connection.into()),
        Err(Errno::PERM) => {
            let reason = "mounting is not permitted: CAP_SYS_ADMIN is needed \
                 (in a container: `--device /dev/fuse --cap-add SYS_ADMIN`, and an AppArmor profile that lets it mount)";
            Err(Error::refused(mountpoint, reason))
        }
        Err(Errno::NODEV) => Err(Error::refused(
            mountpoint,
            "this kernel has no FUSE: load it with `modprobe fuse`",
        )),
        Err(error) => Err(Error::io(mountpoint, "mount", error.into())),
    }
}

/// What came of an unmount.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unmount {
    /// The mount is out of the tree.
    Done,
    /// Somebody uses it; nothing was changed.
    Busy,
}

/// Takes the topmost mount at `mountpoint` out of the tree. A lazy unmount is never
/// [`Unmount::Busy`]: what is open goes on working until it is closed.
///
/// # Errors
/// When this user may not unmount it.
pub fn unmount(mountpoint: &Path, lazy: bool) -> Result<Unmount> {
    if !may_mount() {
        return helper::unmount(mountpoint, lazy);
    }
    let mut flags = UnmountFlags::NOFOLLOW;
    flags.set(UnmountFlags::DETACH, lazy);
    match rustix::mount::unmount(mountpoint, flags) {
        Ok(()) => Ok(Unmount::Done),
        Err(Errno::BUSY) => Ok(Unmount::Busy),
        Err(error) => Err(Error::io(mountpoint, "unmount", error.into())),
    }
}
