//! The device number of a fresh mount: who has to know it, and what is set by it.

use std::fs;

use rustix::fs::makedev;

use super::mount::Mount;
use super::mount_table::Device;
use crate::storage::note_own_device;

/// What root sets as the kernel's readahead: one READ of 1 MiB where the default makes eight.
const READ_AHEAD_KB: &str = "1024";

/// To be called before the first request of `mount` is answered.
pub(super) fn note_own(mount: &Mount) {
    if let Some(Device { major, minor }) = mount.device() {
        note_own_device(makedev(major, minor));
    }
}

/// Has the kernel read ahead further than it does by itself; where that may not be asked for, it does
/// not. To be called after the greeting, which sets it.
pub(super) fn set_read_ahead(mount: &Mount) {
    if let Some(Device { major, minor }) = mount.device() {
        let file = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
        if let Err(error) = fs::write(&file, READ_AHEAD_KB) {
            log::debug!("{file} stays as it is: {error}");
        }
    }
}
