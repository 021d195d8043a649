//! What a migration did, for programs: `{"Ok":{"entries":[...]}}` or `{"Err":{"path":...,
//! "message":...,"entries":[...]}}` when a `Result` of these is written as JSON.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::{id_twice, printable};
use serde::{Serialize, Serializer};

/// What happened to one manifest.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ManifestStatus {
    /// It is of format 3 now, and a crash does not change that.
    Updated,
    /// It already was of format 3 with this identity; its folder was synced.
    Unchanged,
    /// It is of format 3 now, but its folder could not be synced: a crash may bring the old one
    /// back.
    DurabilityUnknown,
    /// A preview found that it would be updated.
    WouldUpdate,
}

impl ManifestStatus {
    /// The name, as JSON has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Updated => "updated",
            Self::Unchanged => "unchanged",
            Self::DurabilityUnknown => "durability_unknown",
            Self::WouldUpdate => "would_update",
        }
    }
}

/// One manifest of the list.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct ManifestUpdateEntry {
    /// The manifest, below the cache folder as that was given. In JSON, bytes that are not UTF-8
    /// are written as U+FFFD.
    #[serde(serialize_with = "text_of")]
    pub path: PathBuf,
    /// The identity that the manifest has now. In JSON also the string `id`.
    #[serde(flatten, serialize_with = "id_twice")]
    pub cache_id: u64,
    /// What happened to it.
    pub status: ManifestStatus,
}

/// Every manifest of a list that was migrated as a whole, in the order of the list.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct ManifestUpdateReport {
    /// The manifests.
    pub entries: Vec<ManifestUpdateEntry>,
}

/// Why a migration ended early, and what it had done by then.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct ManifestUpdateError {
    /// The manifest at which it ended (spelled as in [`ManifestUpdateEntry::path`]); `None` when
    /// the request itself was refused.
    #[serde(serialize_with = "optional_text_of")]
    pub path: Option<PathBuf>,
    /// What went wrong and what to do.
    pub message: String,
    /// The manifests that are in their final form. The one at which it ended is among them only as
    /// [`ManifestStatus::DurabilityUnknown`].
    pub entries: Vec<ManifestUpdateEntry>,
    /// EINVAL for another version than 3, EEXIST for two caches with one manifest, ESTALE when a
    /// manifest is not what was loaded, EINTR for an interrupt; otherwise what the system said.
    #[serde(skip)]
    pub errno: Option<i32>,
}

impl fmt::Display for ManifestUpdateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", printable(&path.to_string_lossy()))?;
        }
        f.write_str(&printable(&self.message))
    }
}

impl std::error::Error for ManifestUpdateError {}

fn text_of<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

fn optional_text_of<S: Serializer>(
    path: &Option<PathBuf>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => text_of(path, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn json_has_the_result_its_entries_and_every_digit_of_an_id() {
        let entry = |status| ManifestUpdateEntry {
            path: PathBuf::from(OsStr::from_bytes(b"/\xc3\xa9/\xff/manifest.json")),
            cache_id: u64::MAX,
            status,
        };
        let done: Result<_, ManifestUpdateError> = Ok(ManifestUpdateReport {
            entries: vec![entry(ManifestStatus::Updated)],
        });
        assert_eq!(
            serde_json::to_string(&done).unwrap(),
            "{\"Ok\":{\"entries\":[{\"path\":\"/\u{e9}/\u{fffd}/manifest.json\",\
             \"cache_id\":18446744073709551615,\"id\":\"18446744073709551615\",\"status\":\"updated\"}]}}"
        );
        let failed: Result<ManifestUpdateReport, _> = Err(ManifestUpdateError {
            path: None,
            message: "m".to_owned(),
            entries: Vec::new(),
            errno: Some(5),
        });
        assert_eq!(
            serde_json::to_string(&failed).unwrap(),
            r#"{"Err":{"path":null,"message":"m","entries":[]}}"#
        );
        for status in [
            ManifestStatus::Updated,
            ManifestStatus::Unchanged,
            ManifestStatus::DurabilityUnknown,
            ManifestStatus::WouldUpdate,
        ] {
            let json = serde_json::to_value(status).unwrap();
            assert_eq!(json, status.name());
        }
    }
}
