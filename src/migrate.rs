//! Manifests of format 2 become format 3, each with the identity that its cache has in the list
//! (docs/migration.md).
//!
//! Every manifest of the list is checked before the first one is replaced, and checked again right
//! before its own replacement. Nothing locks: whoever starts a migration sees to it that nobody
//! else changes the manifests meanwhile.

mod control;
mod report;
mod target;

use std::sync::atomic::{AtomicBool, Ordering};

pub use control::{BadControlWord, parse_control_word};
pub use report::{ManifestStatus, ManifestUpdateEntry, ManifestUpdateError, ManifestUpdateReport};

use rustix::io::Errno;

use self::target::{Action, Refusal, Target};
use crate::dataset::Dataset;
use crate::storage::{self, Replaced, StepHook};

/// The only version that manifests can be migrated to.
pub const MIGRATION_TARGET: u32 = 3;

/// Writes the identity of each format-2 cache of `dataset` into a format-3 manifest, in the order
/// of the list. Manifests of format 3 stay as they are; their folders are synced.
///
/// `stop` may be set by another thread or a signal handler: the run then ends before the next
/// manifest, with what was done in the error. After an error the same call on the same `dataset`
/// (or on the same list, in its original order, opened again) does the rest.
///
/// # Errors
/// [`ManifestUpdateError`], with the manifests that were done before it. A `version` other than 3,
/// or a list of which any manifest cannot be replaced, fails before anything is changed.
pub fn update_manifests(
    dataset: &Dataset,
    version: u32,
    stop: &AtomicBool,
) -> Result<ManifestUpdateReport, ManifestUpdateError> {
    update_manifests_with(dataset, version, stop, &mut storage::test_step)
}

/// [`update_manifests`] with a hook that hears of each step before it is taken.
///
/// # Errors
/// As [`update_manifests`]; the hook's errors are those of its step.
#[doc(hidden)]
pub fn update_manifests_with(
    dataset: &Dataset,
    version: u32,
    stop: &AtomicBool,
    hook: &mut StepHook<'_>,
) -> Result<ManifestUpdateReport, ManifestUpdateError> {
    let targets = checked_targets(dataset, version, stop)?;
    let mut entries = Vec::with_capacity(targets.len());
    for (target, _) in &targets {
        let done = match stop.load(Ordering::Relaxed) {
            true => Err(interrupted(entries.len(), targets.len())),
            false => migrate_one(target, hook, &mut entries),
        };
        if let Err(refusal) = done {
            return Err(target.error(refusal, entries));
        }
    }
    Ok(ManifestUpdateReport { entries })
}

/// What [`update_manifests`] would do, found by the checks that precede its first change.
///
/// # Errors
/// What would make it fail before it changes anything.
pub fn preview_manifests(
    dataset: &Dataset,
    version: u32,
    stop: &AtomicBool,
) -> Result<ManifestUpdateReport, ManifestUpdateError> {
    let targets = checked_targets(dataset, version, stop)?;
    let entries = targets.iter().map(|(target, found)| target.entry(*found));
    Ok(ManifestUpdateReport {
        entries: entries.collect(),
    })
}

impl Dataset {
    /// [`update_manifests`] without a way to interrupt it.
    ///
    /// # Errors
    /// As [`update_manifests`].
    pub fn update_manifests(
        &self,
        version: u32,
    ) -> Result<ManifestUpdateReport, ManifestUpdateError> {
        update_manifests(self, version, &AtomicBool::new(false))
    }
}

/// All manifests of the list, each of which could be migrated now, with what would become of it.
fn checked_targets<'a>(
    dataset: &'a Dataset,
    version: u32,
    stop: &AtomicBool,
) -> Result<Vec<(Target<'a>, ManifestStatus)>, ManifestUpdateError> {
    if version != MIGRATION_TARGET {
        return Err(ManifestUpdateError {
            path: None,
            message: format!("cannot migrate to format {version}: 3 is the only target"),
            entries: Vec::new(),
            errno: Some(Errno::INVAL.raw_os_error()),
        });
    }
    let count = dataset.entries().len();
    let mut targets = Vec::with_capacity(count);
    for entry in dataset.entries() {
        let target = Target::new(entry);
        let checked = match stop.load(Ordering::Relaxed) {
            true => Err(interrupted(0, count)),
            false => target.check(),
        };
        match checked {
            Ok(found) => targets.push((target, found)),
            Err(refusal) => return Err(target.error(refusal, Vec::new())),
        }
    }
    target::refuse_duplicates(targets.iter().map(|(target, _)| target))
        .map_err(|(target, refusal)| target.error(refusal, Vec::new()))?;
    Ok(targets)
}

/// Migrates one manifest and adds to `entries` what became of it, also when it got its new form and
/// then could not be synced.
fn migrate_one(
    target: &Target<'_>,
    hook: &mut StepHook<'_>,
    entries: &mut Vec<ManifestUpdateEntry>,
) -> Result<(), Refusal> {
    match target.inspect()? {
        Action::Keep => {
            storage::sync_folder_of(&target.file()?, hook)?;
            entries.push(target.entry(ManifestStatus::Unchanged));
        }
        Action::Replace(bytes) => match storage::replace_file(&target.file()?, &bytes, hook)? {
            Replaced::Durable => entries.push(target.entry(ManifestStatus::Updated)),
            Replaced::Unsynced(error) => {
                entries.push(target.entry(ManifestStatus::DurabilityUnknown));
                return Err(error.into());
            }
        },
    }
    Ok(())
}

fn interrupted(done: usize, all: usize) -> Refusal {
    Refusal {
        message: format!(
            "interrupted before this manifest, {done} of {all} done: run it again with the same \
             list in its original order"
        ),
        errno: Some(Errno::INTR.raw_os_error()),
    }
}
