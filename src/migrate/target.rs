//! One manifest to migrate: what must hold before it is replaced.

use std::collections::HashMap;
use std::path::PathBuf;

use rustix::io::Errno;

use super::report::{ManifestStatus, ManifestUpdateEntry, ManifestUpdateError};
use crate::dataset::Entry;
use crate::error::Error;
use crate::format::MANIFEST_FILE;
use crate::format::manifest::{FormatVersion, MAX_MANIFEST_LEN, Manifest, ManifestFault};
use crate::format::manifest_edit::to_v3;
use crate::storage;

/// Why a manifest was not replaced.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) message: String,
    pub(super) errno: Option<i32>,
}

/// What is to be done with a manifest.
#[derive(Debug)]
pub(super) enum Action {
    /// It has its identity already.
    Keep,
    /// These bytes take its place.
    Replace(Vec<u8>),
}

/// The manifest of one cache of the list.
#[derive(Debug)]
pub(super) struct Target<'a> {
    of: &'a Entry,
    path: PathBuf,
}

impl<'a> Target<'a> {
    pub(super) fn new(of: &'a Entry) -> Self {
        Self {
            of,
            path: of.cache.dir().join(MANIFEST_FILE),
        }
    }

    /// The manifest itself, where it lay when the cache was opened. Another folder may have come there
    /// since, whose manifest is not to be replaced.
    pub(super) fn file(&self) -> Result<PathBuf, Error> {
        self.of.cache.manifest_place().path_now()
    }

    pub(super) fn entry(&self, status: ManifestStatus) -> ManifestUpdateEntry {
        ManifestUpdateEntry {
            path: self.path.clone(),
            cache_id: self.of.cache_id,
            status,
        }
    }

    pub(super) fn error(
        &self,
        refusal: Refusal,
        entries: Vec<ManifestUpdateEntry>,
    ) -> ManifestUpdateError {
        ManifestUpdateError {
            path: Some(self.path.clone()),
            message: refusal.message,
            entries,
            errno: refusal.errno,
        }
    }

    /// What a migration would make of the manifest now; changes nothing.
    pub(super) fn check(&self) -> Result<ManifestStatus, Refusal> {
        match self.inspect()? {
            Action::Keep => Ok(ManifestStatus::Unchanged),
            Action::Replace(_) => {
                storage::check_replaceable(&self.file()?)?;
                Ok(ManifestStatus::WouldUpdate)
            }
        }
    }

    /// Reads the manifest and decides. It must be the one that was loaded, or what a migration
    /// with the same identity has made of that one since.
    pub(super) fn inspect(&self) -> Result<Action, Refusal> {
        let loaded = self.of.cache.manifest();
        let bytes = storage::read_small_at(self.of.cache.manifest_place(), MAX_MANIFEST_LEN)?;
        let found = Manifest::parse(&bytes).map_err(unreadable)?;
        if found.version == FormatVersion::V3 && found.cache_id != Some(self.of.cache_id) {
            return Err(changed(&format!(
                "its cache_id was to be {}, found {}",
                self.of.cache_id,
                found.cache_id.unwrap_or_default()
            )));
        }
        match (loaded.version, found.version) {
            (FormatVersion::V3, FormatVersion::V2) => {
                return Err(changed("it was of format 3 and is of format 2"));
            }
            (FormatVersion::V2, FormatVersion::V3) if self.with_identity(loaded) == found => {
                return Ok(Action::Keep);
            }
            _ if bytes != self.of.cache.manifest_bytes() => {
                return Err(changed("its content is another one"));
            }
            (_, FormatVersion::V3) => return Ok(Action::Keep),
            (FormatVersion::V2, FormatVersion::V2) => {}
        }
        let new = to_v3(&bytes, self.of.cache_id).map_err(Refusal::other)?;
        match Manifest::parse(&new) {
            Ok(manifest) if manifest == self.with_identity(loaded) => Ok(Action::Replace(new)),
            _ => Err(Refusal::other(
                "its text cannot be edited so that nothing but the version and the identity change",
            )),
        }
    }

    /// What the manifest is to say after the migration.
    fn with_identity(&self, loaded: &Manifest) -> Manifest {
        Manifest {
            version: FormatVersion::V3,
            cache_id: Some(self.of.cache_id),
            ..loaded.clone()
        }
    }
}

/// Two caches of the list must have neither one manifest nor one identity.
pub(super) fn refuse_duplicates<'t, 'a: 't>(
    targets: impl Iterator<Item = &'t Target<'a>>,
) -> Result<(), (&'t Target<'a>, Refusal)> {
    let mut by_file = HashMap::new();
    let mut by_id = HashMap::new();
    for target in targets {
        let stamp = target.of.cache.manifest_place().stamp();
        let stamp = stamp.map_err(|error| (target, error.into()))?;
        let file = (stamp.identity.device, stamp.identity.inode);
        if let Some(other) = by_file.insert(file, target) {
            return Err((target, duplicate("is the same file as", other)));
        }
        if let Some(other) = by_id.insert(target.of.cache_id, target) {
            return Err((target, duplicate("has the same cache_id as", other)));
        }
    }
    Ok(())
}

fn duplicate(what: &str, other: &Target<'_>) -> Refusal {
    Refusal {
        message: format!(
            "duplicate migration target: it {what} {}; list each cache once, so that it gets one \
             cache_id",
            other.path.display()
        ),
        errno: Some(Errno::EXIST.raw_os_error()),
    }
}

fn changed(how: &str) -> Refusal {
    Refusal {
        message: format!(
            "the manifest changed since it was loaded: {how}; load the caches again to go on"
        ),
        errno: Some(Errno::STALE.raw_os_error()),
    }
}

fn unreadable(fault: ManifestFault) -> Refusal {
    match fault {
        ManifestFault::Version(found) => changed(&format!("its format version is {found}")),
        ManifestFault::Fault(fault) => changed(&fault.to_string()),
    }
}

impl Refusal {
    fn other(message: impl ToString) -> Self {
        Self {
            message: message.to_string(),
            errno: None,
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::Io { action, source, .. } => Self {
                message: format!("cannot {action}: {source}"),
                errno: source.raw_os_error(),
            },
            // What was a file of sensible length when it was loaded no longer is.
            other => changed(&other.chain()),
        }
    }
}
