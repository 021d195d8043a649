//! The mount: the FUSE adapter over [`crate::vfs`], mounting, and the life of a session.
//!
//! Nothing outside this module imports fuser. We mount ourselves, as root with mount(2) and
//! otherwise through fusermount3, and hand the connected descriptor to fuser, because fuser 0.18.0
//! may unmount a newer mount at the same path and takes commas in a path for option separators.

mod adapter;
mod confine;
mod control;
mod convert;
mod device;
mod dispatch;
mod errno;
mod first_look;
mod mount;
mod mount_table;
mod notify;
mod patience;
mod rehearse;
mod replies;
mod session;
mod workers;

pub use confine::{Confinement, User};
pub use control::clear_control_of;
pub use mount::{
    Answer, HELPER_CONFIG, MountOptions, Mountpoint, Unmount, answer, check_device, find_helper,
    others_allowed, prepare, quoted, remount, resolve, unmount, within,
};
pub use mount_table::{Device, MountEntry, around, mounts, top_at};
pub use notify::Notifier;
pub use session::{End, ServeOptions, Session, hangup_is_ignored};
