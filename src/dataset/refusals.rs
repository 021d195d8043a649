//! Newcomers whose bytes were found wrong, so that they are not hashed at each look.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::receipt::{FileRecord, files_now, files_of};
use super::{Dataset, Newcomers};
use crate::error::{Error, Fault, Result};

/// The caches that were refused, as they were then.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<HashMap<PathBuf, Refusal>>);

#[derive(Debug)]
struct Refusal {
    files: Vec<FileRecord>,
    damage: Vec<Damage>,
}

/// An [`Error::Damaged`].
#[derive(Clone, Debug)]
struct Damage {
    path: PathBuf,
    sample: Option<u64>,
    fault: Fault,
}

impl Newcomers {
    /// Has `check` leave out the caches whose bytes are wrong. Those that were found wrong before and
    /// have not changed since are left out for the same reason, and not given to `check`.
    ///
    /// # Errors
    /// What `check` gives.
    pub fn check_changed(
        &mut self,
        refusals: &Refusals,
        check: impl FnOnce(&mut Dataset) -> Result<()>,
    ) -> Result<()> {
        let mut known = refusals.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.refuse_each(|entry| {
            let refusal = known.get(entry.cache.dir())?;
            let same = files_of(&entry.cache).is_some_and(|files| files == refusal.files);
            same.then(|| refusal.damage.iter().map(Damage::error).collect())
        });
        let entries = self.dataset.entries.iter();
        let before: Vec<(PathBuf, Option<Vec<FileRecord>>)> = entries
            .map(|entry| (entry.cache.dir().to_path_buf(), files_now(&entry.cache)))
            .collect();
        let told = self.dataset.skipped.len();
        check(&mut self.dataset)?;
        for (dir, files) in before {
            let kept = &mut self.dataset.entries.iter();
            if kept.any(|entry| entry.cache.dir() == dir) {
                known.remove(&dir);
                continue;
            }
            let errors = self.dataset.skipped.iter().skip(told);
            let damage = errors.filter_map(Damage::of);
            let damage: Vec<Damage> = damage
                .filter(|damage| damage.path.starts_with(&dir))
                .collect();
            // What could not be read is tried again.
            if let (Some(files), false) = (files, damage.is_empty()) {
                known.insert(dir, Refusal { files, damage });
            }
        }
        Ok(())
    }
}

impl Damage {
    fn of(error: &Error) -> Option<Self> {
        match error {
            Error::Damaged {
                path,
                sample,
                fault,
            } => Some(Self {
                path: path.clone(),
                sample: *sample,
                fault: fault.clone(),
            }),
            _ => None,
        }
    }

    fn error(&self) -> Error {
        Error::Damaged {
            path: self.path.clone(),
            sample: self.sample,
            fault: self.fault.clone(),
        }
    }
}
