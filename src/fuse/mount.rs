//! Mounting and unmounting: mount(2) as root, fusermount3 for everybody else.
//!
//! No path ever travels inside a mount option, so that commas, backslashes, line breaks and bytes that
//! are not UTF-8 in any path are harmless. A [`Mount`] unmounts when dropped, and only itself: the
//! mount on top at its path must still have the device number that it had.

mod helper;

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use super::mount_table::{self, Device};
use crate::error::{Error, Result};

/// How the mount shows in `/proc/mounts`; also how a leftover is known for ours.
const FSTYPE: &str = "fuse.datasetrt-mount";
/// The source column of the mount table.
const SOURCE: &str = "datasetrt-mount";
pub(super) const DEVICE: &str = "/dev/fuse";

/// How long a look at a path may take before it counts as hung.
const LOOK: Duration = Duration::from_secs(10);

/// Leftovers may lie one over the other; more than this is somebody mounting in a loop.
const MAX_LEFTOVERS: usize = 16;

/// Where and how to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The mountpoint, as [`prepare`] gave it.
    pub mountpoint: PathBuf,
    /// Let other users in (by the mode bits).
    pub allow_other: bool,
    /// Refuse to run programs from the mount.
    pub noexec: bool,
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
        Ok(Some(top)) if top.fstype == FSTYPE => Ok((
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
            unmount(&mountpoint)?;
            Err(error)
        }
    }
}

impl Mount {
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
            Some(top) if top.device == device => unmount(&self.mountpoint),
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

/// `mountpoint` without symlinks. The last component is left alone where the mount on it is dead.
fn resolve(mountpoint: &Path) -> Result<PathBuf> {
    let path = mountpoint.to_path_buf();
    match in_time(move || fs::canonicalize(path)) {
        Some(Ok(resolved)) => Ok(resolved),
        Some(Err(error)) if is_dead(&error) => {
            let parent = mountpoint.parent().unwrap_or(Path::new("/"));
            let name = mountpoint.file_name().unwrap_or_default();
            let parent =
                fs::canonicalize(parent).map_err(|e| Error::io(parent, "look at the folder", e))?;
            Ok(parent.join(name))
        }
        Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => {
            let reason = "the mountpoint does not exist (make it first: mkdir -p)";
            Err(Error::refused(mountpoint, reason))
        }
        Some(Err(source)) => Err(Error::io(mountpoint, "look at the mountpoint", source)),
        None => Err(hung(mountpoint)),
    }
}

/// What a mount answers whose daemon is gone.
fn is_dead(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::NOTCONN, Errno::CONNABORTED]
        .iter()
        .any(|dead| code == Some(dead.raw_os_error()))
}

fn clear_leftovers(mountpoint: &Path) -> Result<()> {
    for _ in 0..MAX_LEFTOVERS {
        let Some(top) = mount_table::top_at(mountpoint)? else {
            return Ok(());
        };
        let ours = top.fstype == FSTYPE;
        let path = mountpoint.to_path_buf();
        match in_time(move || look(&path)) {
            Some(Err(error)) if is_dead(&error) && ours => {
                log::warn!(
                    "{}: unmounting a dead mount that a killed daemon left behind",
                    mountpoint.display()
                );
                unmount(mountpoint)?;
            }
            Some(Err(error)) if is_dead(&error) => {
                let what = top.fstype.to_string_lossy();
                return Err(still_mounted(
                    mountpoint,
                    &format!("a dead mount ({what}) lies here"),
                ));
            }
            None if !ours => return Err(hung(mountpoint)),
            Some(_) if !ours => return Ok(()),
            _ => {
                return Err(still_mounted(
                    mountpoint,
                    "a datasetrt-mount is already mounted here",
                ));
            }
        }
    }
    Err(still_mounted(mountpoint, "many dead mounts lie here"))
}

/// Asks whatever is mounted at `path`. The kernel may know the attributes of a dead mount by heart, but
/// not its numbers of blocks.
fn look(path: &Path) -> io::Result<()> {
    fs::metadata(path)?;
    rustix::fs::statvfs(path)?;
    Ok(())
}

fn still_mounted(mountpoint: &Path, found: &str) -> Error {
    let shown = mountpoint.display();
    Error::refused(
        mountpoint,
        format!("{found}; unmount it first: fusermount3 -u {shown}"),
    )
}

fn hung(mountpoint: &Path) -> Error {
    let shown = quoted(mountpoint);
    let seconds = LOOK.as_secs();
    let reason = format!(
        "no answer in {seconds} s, a hung mount lies here or above; see fusermount3 -uz {shown}"
    );
    Error::refused(mountpoint, reason)
}

/// `path` as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text
        .chars()
        .all(|c| c.is_alphanumeric() || "/._-+:@%,".contains(c))
    {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Runs `look` where it cannot hang us. The thread is given up when it does not come back.
pub(super) fn in_time<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let looker = thread::Builder::new()
        .name("look".to_owned())
        .spawn(move || {
            // Nobody listens any more after the time is over.
            let _ = sender.send(look());
        });
    looker.ok()?;
    receiver.recv_timeout(LOOK).ok()
}

fn open_device() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(DEVICE)
}

fn check_device() -> Result<()> {
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
    let mountpoint = options.mountpoint.as_path();
    match rustix::mount::mount(SOURCE, mountpoint, FSTYPE, flags, data.as_c_str()) {
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

/// Lazily, so that open files are no obstacle.
fn unmount(mountpoint: &Path) -> Result<()> {
    if is_root() {
        let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        rustix::mount::unmount(mountpoint, flags)
            .map_err(|error| Error::io(mountpoint, "unmount", error.into()))
    } else {
        helper::unmount(mountpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_can_be_pasted_into_a_shell() {
        assert_eq!(quoted(Path::new("/mnt/a,b")), "/mnt/a,b");
        assert_eq!(quoted(Path::new("/mnt/it's $x")), r"'/mnt/it'\''s $x'");
    }
}
