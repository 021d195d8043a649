//! `/.control/log-level`: reading gives how much is logged; a written level holds from then on.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use log::LevelFilter;

use super::VfsError;
use super::control::later_than;

/// The moment of the last change; the level itself is the process's.
#[derive(Debug)]
pub(super) struct LogLevel(Mutex<SystemTime>);

impl LogLevel {
    pub(super) fn new(started: SystemTime) -> Self {
        Self(Mutex::new(started))
    }

    /// The level as a line, and when it was last changed here.
    pub(super) fn text(&self) -> (Arc<[u8]>, SystemTime) {
        let changed = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let level = log::max_level().as_str().to_ascii_lowercase() + "\n";
        (level.into_bytes().into(), changed)
    }

    /// Takes what was written as one whole command.
    pub(super) fn set(&self, word: &[u8]) -> Result<(), VfsError> {
        let level = std::str::from_utf8(word).map_err(|_| VfsError::BadControlWord)?;
        let level: LevelFilter = level
            .trim_ascii()
            .parse()
            .map_err(|_| VfsError::BadControlWord)?;
        if level == LevelFilter::Off {
            return Err(VfsError::BadControlWord);
        }
        let mut changed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log::set_max_level(level);
        *changed = later_than(*changed);
        drop(changed);
        log::warn!(
            "the log level is {} now",
            level.as_str().to_ascii_lowercase()
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_levels_are_taken() {
        let level = LogLevel::new(SystemTime::UNIX_EPOCH);
        for word in [&b"loud"[..], b"", b"\xff", b"off", b"info debug", b"3"] {
            assert!(matches!(level.set(word), Err(VfsError::BadControlWord)));
        }
        let (before, never) = level.text();
        assert_eq!(never, SystemTime::UNIX_EPOCH);
        // Without a logger the level is off, which is no level to ask for.
        let before = match &*before {
            b"off\n" => b"error\n".as_slice().into(),
            _ => before,
        };
        level.set(&before).unwrap();
        let (after, changed) = level.text();
        assert_eq!(after, before);
        assert!(changed > never);
    }
}
