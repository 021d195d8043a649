//! Which mount a descriptor leads to.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{AtFlags, StatxFlags, statx};

/// `STATX_MNT_ID_UNIQUE`, since Linux 6.8.
const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// One mount, as opposed to others that lie, or will lie, at the same place.
#[derive(Clone, Copy, Debug)]
pub(super) struct MountId {
    /// As in the mount table; the kernel gives it to another mount once this one is gone.
    pub(super) number: u64,
    /// Never given again; absent where the kernel has none, or may not tell.
    unique: Option<u64>,
}

impl MountId {
    /// The mount in which `file` lies. Asks the kernel alone, so that a hung mount does not matter.
    ///
    /// # Errors
    /// When neither statx(2) nor /proc has it.
    pub(super) fn of(file: impl AsFd) -> io::Result<Self> {
        let file = file.as_fd();
        let ask = |wanted: StatxFlags| {
            let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
            let found = statx(file, "", flags, wanted).ok()?;
            let known = StatxFlags::from_bits_retain(found.stx_mask).contains(wanted);
            known.then_some(found.stx_mnt_id)
        };
        let number = match ask(StatxFlags::MNT_ID) {
            Some(number) => number,
            None => from_proc(file)?,
        };
        Ok(Self {
            number,
            unique: ask(UNIQUE),
        })
    }

    /// The mount with this number in the mount table.
    pub(super) fn numbered(number: u64) -> Self {
        Self {
            number,
            unique: None,
        }
    }

    /// Whether both are the same mount.
    pub(super) fn is(self, other: Self) -> bool {
        let both = self.unique.zip(other.unique);
        self.number == other.number && both.is_none_or(|(one, two)| one == two)
    }
}

fn from_proc(file: impl AsFd) -> io::Result<u64> {
    let number = file.as_fd().as_raw_fd();
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{number}"))?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    id.and_then(|id| id.trim().parse().ok())
        .ok_or_else(|| io::Error::other("the kernel does not tell in which mount a file lies"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sources_name_the_same_mount_and_two_mounts_differ() {
        let proc = MountId::of(fs::File::open("/proc/self/status").unwrap()).unwrap();
        let file = tempfile::tempfile().unwrap();
        let here = MountId::of(&file).unwrap();
        assert_eq!(from_proc(&file).unwrap(), here.number);
        assert!(here.is(here) && !here.is(proc));
    }
}
