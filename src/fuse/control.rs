//! The mount of the control files alone (`--control-at`), beside one of all files that is read-only
//! for the kernel. It is made before that one and ends with it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::adapter::{Adapter, Mounted};
use super::confine::Confinement;
use super::device::note_own;
use super::mount::{self, Answer, Mount, MountOptions, Mountpoint, answer, unmount};
use super::mount_table;
use super::session::{CONFINE, Event, greet, run};
use crate::error::{Error, Result};
use crate::vfs::Vfs;

/// Event threads; control files are small and rarely used.
pub(super) const THREADS: usize = 2;

/// How long a mount may take to show that it is dead.
const LOOK: std::time::Duration = std::time::Duration::from_secs(2);

/// What the mount table shows as the source of the mount of the control files of `mountpoint`.
fn source(mountpoint: &Path) -> OsString {
    let mut source = OsString::from("control:");
    source.push(mountpoint);
    source
}

/// Where the mount that `source` is of has its samples; `None` for any other source.
pub(super) fn served_by(source: &OsStr) -> Option<PathBuf> {
    let mountpoint = source.as_bytes().strip_prefix(b"control:")?;
    Some(PathBuf::from(OsStr::from_bytes(mountpoint)))
}

/// Unmounts what a daemon that was killed left of the control files of `mountpoint`.
///
/// # Errors
/// When it is there and this user may not unmount it.
pub fn clear_control_of(mountpoint: &Path) -> Result<()> {
    for entry in mount_table::mounts()? {
        let of_this = entry.is_ours() && served_by(&entry.source).as_deref() == Some(mountpoint);
        if of_this && answer(&entry.mountpoint, LOOK) == Answer::Dead {
            log::debug!(
                "{}: clearing the control files of a daemon that is gone",
                entry.mountpoint.display()
            );
            unmount(&entry.mountpoint, true)?;
        }
    }
    Ok(())
}

/// Mounted, and not served yet. Dropping it unmounts.
pub(super) struct Unserved {
    mount: Mount,
    session: fuser::Session<Adapter>,
}

impl Unserved {
    /// Mounts the control files of `vfs`, all of which is mounted with `data` on `mountpoint`, on `at`.
    pub(super) fn mount(
        vfs: &Arc<Vfs>,
        at: &Mountpoint,
        mountpoint: &Mountpoint,
        data: &MountOptions,
    ) -> Result<Self> {
        clear_control_of(mountpoint.path())?;
        let options = MountOptions {
            allow_other: data.allow_other,
            noexec: true,
            read_only: false,
            source: source(mountpoint.path()),
        };
        let (connection, mount) = mount::mount(at, &options)?;
        note_own(&mount);
        let root = vfs.control_dir();
        let session = greet(Arc::clone(vfs), root, connection, THREADS, Mounted::Here)
            .map_err(|source| Error::io(at.path(), "greet the kernel", source))?;
        Ok(Self { mount, session })
    }

    /// Answers the kernel from a confined thread of its own. `ended` hears of the end.
    pub(super) fn serve(self, confinement: Confinement, ended: Sender<Event>) -> Result<Control> {
        let Self { mount, session } = self;
        let notifier = run(session, confinement, move |result| {
            // Nobody listens once the other mount has ended.
            let _ = ended.send(Event::ControlEnded(result));
        })
        .map_err(|source| Error::io(mount.mountpoint(), CONFINE, source))?;
        Ok(Control { mount, notifier })
    }
}

/// A mount of the control files that is served. Dropping it unmounts.
pub(super) struct Control {
    mount: Mount,
    pub(super) notifier: fuser::Notifier,
}

impl Control {
    /// Puts the mount on `at`, where it does not lie there yet.
    ///
    /// # Errors
    /// When it cannot be put there. Dropping it then leaves nothing.
    pub(super) fn attach(&mut self, at: &Mountpoint) -> Result<()> {
        self.mount.attach(at)
    }

    /// Takes the mount out of the tree, if it still is there; `ended` when its connection has ended.
    ///
    /// # Errors
    /// When it is there and cannot be unmounted.
    pub(super) fn unmount(mut self, ended: bool) -> Result<()> {
        if ended {
            self.mount.clear_dead()
        } else {
            self.mount.unmount()
        }
    }
}
