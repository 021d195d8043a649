//! Mounting and unmounting: as root by the system's own calls, by fusermount3 for everybody else.
//!
//! Commas, backslashes, line breaks and bytes that are not UTF-8 in any path are harmless: the only
//! path inside a mount option is the source for fusermount3, which is escaped. A [`Mount`] unmounts when dropped, and only itself: it knows
//! its mount by the kernel's number for it, not by what lies on top at a path.

mod given;
mod helper;
mod look;
mod mount_id;
mod mountpoint;
mod remount;
mod root;
mod turn;

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

pub(super) use given::check_given;
pub use helper::{CONFIG as HELPER_CONFIG, find as find_helper, others_allowed};
pub use look::{Answer, answer, quoted, resolve, within};
pub use mountpoint::Mountpoint;
pub use remount::remount;

use self::look::LOOK;
use self::mount_id::MountId;
use self::mountpoint::{by_descriptor, open_directory};
use super::confine::may_mount;
use super::mount_table::{self, Device, MountEntry};
use crate::error::{Error, Result};

/// What comes after `fuse.` in the type of our mounts.
const SUBTYPE: &str = "datasetrt-mount";
pub(super) const DEVICE: &str = "/dev/fuse";

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Let other users in (by the mode bits).
    pub allow_other: bool,
    /// Refuse to run programs from the mount.
    pub noexec: bool,
    /// Let nobody write, not even to control files.
    pub read_only: bool,
    /// The source column of the mount table: `mount -a` knows by it what is mounted.
    pub source: OsString,
}

/// Checks all that can be known before mounting, clears a dead mount of ours that lies at
/// `mountpoint`, and takes the directory there: nobody else starts at it until it is dropped.
///
/// # Errors
/// When mounting there cannot work; the text says what to do about it.
pub fn prepare(mountpoint: &Path, allow_other: bool) -> Result<Mountpoint> {
    let taken = Mountpoint::take(mountpoint)?;
    check_device()?;
    if !is_root() {
        helper::check(allow_other)?;
    }
    Ok(taken)
}

/// A mount of ours; dropping it unmounts it.
#[derive(Debug)]
pub(super) struct Mount {
    mountpoint: PathBuf,
    device: Option<Device>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// It lies nowhere yet, and is gone with this descriptor.
    Detached(Arc<OwnedFd>),
    Attached(MountId),
    /// It was unmounted, or is not ours to unmount.
    Gone,
}

/// Mounts. The descriptor is the connection to the kernel, on which INIT already waits. Where the kernel can do it the mount is made, but lies nowhere
/// before [`Mount::attach`].
///
/// # Errors
/// When the mount is refused; nothing is left mounted then.
pub(super) fn mount(at: &Mountpoint, options: &MountOptions) -> Result<(OwnedFd, Mount)> {
    let mut mount = Mount::of_another(at.path());
    if is_root()
        && !in_one_step()
        && let Some((connection, tree)) = root::detached(options)
    {
        let device = device_of(tree.as_fd());
        mount.device = Some(device.map_err(|error| Error::io(at.path(), "mount", error.into()))?);
        mount.state = State::Detached(Arc::new(tree));
        return Ok((connection, mount));
    }
    at.check_in_place()?;
    let before = mount_table::mounts()?;
    let connection = if is_root() {
        root::mount(at, options)?
    } else {
        helper::mount(at, options)?
    };
    let found = mount_table::mounts().and_then(|after| find(at, &before, after));
    match found {
        Ok(entry) => {
            mount.device = Some(entry.device);
            mount.state = State::Attached(MountId::numbered(entry.id));
            Ok((connection, mount))
        }
        Err(error) => {
            // It is somewhere, and dead without its connection.
            drop(connection);
            clear_elsewhere(&before);
            Err(error)
        }
    }
}

/// The mount that was just made on `at`.
fn find(at: &Mountpoint, before: &[MountEntry], after: Vec<MountEntry>) -> Result<MountEntry> {
    let ours = |entry: &MountEntry| entry.is_ours() && at.carries(entry) && !before.contains(entry);
    after
        .into_iter()
        .find(ours)
        .ok_or_else(|| covered(at.path()))
}

/// Unmounts dead mounts that were not there `before`.
fn clear_elsewhere(before: &[MountEntry]) {
    let Ok(after) = mount_table::mounts() else {
        return;
    };
    let new = |entry: &&MountEntry| entry.is_ours() && !before.contains(entry);
    for entry in after.iter().filter(new) {
        let dead = answer(&entry.mountpoint, LOOK) == Answer::Dead;
        let id = MountId::numbered(entry.id);
        if dead && let Err(error) = unmount_exactly(entry, id) {
            log::error!("{}", error.chain());
        }
    }
}

fn covered(at: &Path) -> Error {
    Error::refused(at, "another mount was made here at the same moment")
}

/// For tests: mounts as on a kernel without fsmount(2).
fn in_one_step() -> bool {
    cfg!(debug_assertions) && std::env::var_os("DATASETRT_TEST_MOUNT_IN_ONE_STEP").is_some()
}

impl Mount {
    /// A mount that somebody else made at `mountpoint` and is to end.
    pub(super) fn of_another(mountpoint: &Path) -> Self {
        Self {
            mountpoint: mountpoint.to_path_buf(),
            device: None,
            state: State::Gone,
        }
    }

    /// The directory it is mounted on.
    pub(super) fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// The device number of the mount.
    pub(super) fn device(&self) -> Option<Device> {
        self.device
    }

    /// What a look at the mount needs as long as it lies nowhere.
    pub(super) fn tree(&self) -> Option<Arc<OwnedFd>> {
        match &self.state {
            State::Detached(tree) => Some(Arc::clone(tree)),
            State::Attached(_) | State::Gone => None,
        }
    }

    /// Puts the mount on the directory `at`, and checks that it lies there and nothing over it.
    ///
    /// # Errors
    /// When it does not. Dropping it then leaves nothing.
    pub(super) fn attach(&mut self, at: &Mountpoint) -> Result<()> {
        at.check_in_place()?;
        if let State::Detached(tree) = &self.state {
            root::attach(tree, at)?;
            let id = MountId::of(tree).map_err(|error| Error::io(at.path(), "mount", error))?;
            self.state = State::Attached(id);
        }
        at.check_in_place()?;
        let State::Attached(id) = &self.state else {
            return Ok(());
        };
        let table = mount_table::mounts()?;
        let entry = table.iter().find(|entry| entry.id == id.number);
        let on_top = mount_table::top_at(at.path())?.is_some_and(|top| top.id == id.number);
        match entry {
            Some(entry) if at.carries(entry) && on_top => Ok(()),
            _ => Err(covered(at.path())),
        }
    }

    /// Takes the mount out of the tree, if it still is there. Open files go on working until this
    /// process ends.
    ///
    /// # Errors
    /// When it is there and cannot be unmounted.
    pub(super) fn unmount(&mut self) -> Result<()> {
        match self.entry()? {
            Some((entry, id)) => unmount_exactly(&entry, id),
            None => Ok(()),
        }
    }

    /// Takes the mount out of the tree after its connection has ended, where somebody aborted it. Where
    /// it was unmounted there is nothing to do, and whoever mounts next may have been given the same
    /// numbers: a mount that answers is theirs.
    ///
    /// # Errors
    /// When it is there and cannot be unmounted.
    pub(super) fn clear_dead(&mut self) -> Result<()> {
        match self.entry()? {
            Some((entry, id)) => match answer(&entry.mountpoint, LOOK) {
                Answer::Dead => unmount_exactly(&entry, id),
                Answer::Alive | Answer::Hung => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Its line in the mount table, wherever it is by now; this is asked once.
    fn entry(&mut self) -> Result<Option<(MountEntry, MountId)>> {
        let device = self.device.take();
        // A mount that was not attached is gone with its descriptor.
        let State::Attached(id) = std::mem::replace(&mut self.state, State::Gone) else {
            return Ok(None);
        };
        let mut table = mount_table::mounts()?.into_iter();
        let found = table.find(|entry| entry.id == id.number && Some(entry.device) == device);
        Ok(found.map(|entry| (entry, id)))
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

/// The device number of the mount `tree`. Nothing is asked of who serves it.
fn device_of(tree: BorrowedFd<'_>) -> rustix::io::Result<Device> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(tree, "", flags, StatxFlags::empty())?;
    Ok(Device {
        major: found.stx_dev_major,
        minor: found.stx_dev_minor,
    })
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

/// Takes the mount `entry` out of the tree, lazily, and no other that lies over it or came after it.
///
/// # Errors
/// When this user may not unmount it, or it is covered.
fn unmount_exactly(entry: &MountEntry, id: MountId) -> Result<()> {
    let at = entry.mountpoint.as_path();
    let top = mount_table::top_at(at)?;
    if !top.is_some_and(|top| top.id == entry.id && top.device == entry.device) {
        log::debug!("{}: unmounted, or another mount lies over it", at.display());
        return Ok(());
    }
    if !may_mount() {
        return helper::unmount(at, true).map(drop);
    }
    let failed = |error: io::Error| Error::io(at, "unmount", error);
    let root = match open_directory(at) {
        Ok(root) => root,
        // Who became another user may not look for it, and still unmounts.
        Err(Errno::ACCESS) => return unmount(at, true).map(drop),
        Err(error) => return Err(failed(error.into())),
    };
    if !MountId::of(&root).map_err(failed)?.is(id) {
        return Ok(());
    }
    match rustix::mount::unmount(by_descriptor(root.as_fd()), UnmountFlags::DETACH) {
        // Somebody else did it.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(failed(error.into())),
    }
}
