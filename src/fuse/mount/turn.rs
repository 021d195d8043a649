//! One start at a time at each place: a lock on the directory itself, which needs no file.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, openat};
use rustix::io::Errno;

/// How long to wait between two attempts at a lock.
const PAUSE: Duration = Duration::from_millis(20);

/// The right to start at a directory, until dropped. Where the file system has no locks, or somebody
/// who may not mount there holds the lock, nobody is kept from starting: what was mounted is then
/// looked at once more, see `Mount::attach`.
#[derive(Debug)]
pub(super) struct Turn {
    _lock: Option<OwnedFd>,
}

/// What came of an attempt.
enum Attempt {
    Locked(OwnedFd),
    /// Another start has it.
    Taken,
    /// There are no locks here, or none that can be trusted.
    NoLocks,
}

impl Turn {
    /// The right to start at `directory`; `None` while another start has it.
    pub(super) fn take(directory: impl AsFd) -> Option<Self> {
        match attempt(directory.as_fd()) {
            Attempt::Locked(lock) => Some(Self { _lock: Some(lock) }),
            Attempt::NoLocks => Some(Self { _lock: None }),
            Attempt::Taken => None,
        }
    }

    /// The same, waited for until `limit` is over; then without it.
    pub(super) fn wait(directory: impl AsFd, limit: Duration) -> Self {
        let until = Instant::now() + limit;
        loop {
            if let Some(turn) = Self::take(directory.as_fd()) {
                return turn;
            }
            if Instant::now() >= until {
                return Self { _lock: None };
            }
            sleep(PAUSE);
        }
    }
}

fn attempt(directory: impl AsFd) -> Attempt {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let lock = match openat(&directory, ".", flags, Mode::empty()) {
        Ok(lock) => lock,
        Err(error) => {
            log::debug!("starts are not kept apart: the directory cannot be opened: {error}");
            return Attempt::NoLocks;
        }
    };
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Attempt::Locked(lock),
        Err(Errno::WOULDBLOCK) if is_held_by_us(&lock) => Attempt::Taken,
        Err(Errno::WOULDBLOCK) => {
            log::warn!(
                "starts are not kept apart: another user's process has locked the directory"
            );
            Attempt::NoLocks
        }
        Err(error) => {
            log::debug!("starts are not kept apart: {error}");
            Attempt::NoLocks
        }
    }
}

/// Whether root or this user holds the lock: anybody who can open a directory can lock it, and is not
/// to keep others from mounting there by that.
fn is_held_by_us(lock: &OwnedFd) -> bool {
    let (Ok(found), Ok(table)) = (fstat(lock), fs::read_to_string("/proc/locks")) else {
        return true;
    };
    // Without the device: on some file systems the table has another than stat(2).
    let inode = format!(":{}", found.st_ino);
    let me = rustix::process::geteuid().as_raw();
    // `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`; see proc_locks(5).
    let holders = table.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        (fields.next()? == "FLOCK").then_some(())?;
        let holder = fields.nth(2)?;
        fields.next()?.ends_with(&inode).then_some(holder)
    });
    let mut users = holders
        .filter_map(|process| fs::metadata(format!("/proc/{process}")).ok())
        .map(|process| process.uid());
    users.any(|user| user == 0 || user == me)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_start_has_no_turn_until_the_first_gives_it_up() {
        let dir = tempfile::tempdir().unwrap();
        let directory = fs::File::open(dir.path()).unwrap();
        let first = Turn::take(&directory).unwrap();
        assert!(first._lock.is_some());
        assert!(Turn::take(&directory).is_none());
        drop(first);
        let second = Turn::wait(&directory, Duration::from_secs(60));
        assert!(second._lock.is_some());
    }
}
