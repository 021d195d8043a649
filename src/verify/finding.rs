//! What a check found, in facts that a person and a program can read.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use crate::error::{Error, Fault, FaultKind, id_twice};
use crate::format::{INDEX_FILE, MANIFEST_FILE};

/// Whether a reader would be hurt.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A cache that is refused, or a sample that is not given out or may hold wrong bytes.
    Damage,
    /// Odd, but every sample reads right.
    Warning,
}

/// Which rule a finding breaks.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// The folder holds no manifest.
    Incomplete,
    /// A format version that this program does not read.
    Version,
    /// `manifest.json` is not what the format asks for.
    Manifest,
    /// A shard's name is not one plain file name.
    ShardName,
    /// A file's length is not what the manifest says.
    Length,
    /// A file's SHA-256 is not what the manifest says.
    Checksum,
    /// The numbers of rows of manifest, index and metadata differ.
    RowCount,
    /// A row of `index.bin` points outside its shard.
    IndexRow,
    /// `metadata.arrow` cannot be read.
    Table,
    /// A record's header contradicts the record's length.
    RecordHeader,
    /// A record's copy of the metadata differs from `metadata.arrow`.
    Envelope,
    /// A stored payload does not decode.
    Payload,
    /// The decoded payloads of a shard do not add up.
    DecodedSum,
    /// A file was replaced while it was being checked.
    Replaced,
    /// The system could not read something.
    Io,
    /// Something that is not what a cache consists of, such as a folder for a shard.
    Refused,
    /// Two caches of the list have the same identity.
    DuplicateId,
    /// Bytes of a shard that belong to no record.
    UnusedBytes,
    /// Records that share bytes.
    Overlap,
    /// A shard of the manifest that holds no record.
    UnreferencedShard,
    /// A file among the shards that the manifest does not name.
    UnlistedFile,
}

impl Kind {
    /// The kind in words, to stand before what was expected and found.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Incomplete => "incomplete cache",
            Self::Version => "unsupported format version",
            Self::Manifest => "bad manifest",
            Self::ShardName => "bad shard name",
            Self::Length => "wrong length",
            Self::Checksum => "checksum mismatch",
            Self::RowCount => "wrong number of rows",
            Self::IndexRow => "bad index row",
            Self::Table => "unreadable metadata table",
            Self::RecordHeader => "bad record header",
            Self::Envelope => "embedded metadata does not match metadata.arrow",
            Self::Payload => "bad payload",
            Self::DecodedSum => "wrong sum of decoded payloads",
            Self::Replaced => "file changed while it was checked",
            Self::Io => "cannot read",
            Self::Refused => "refused",
            Self::DuplicateId => "duplicate cache id",
            Self::UnusedBytes => "unused bytes",
            Self::Overlap => "overlapping records",
            Self::UnreferencedShard => "shard without records",
            Self::UnlistedFile => "file that the manifest does not name",
        }
    }
}

impl From<FaultKind> for Kind {
    fn from(kind: FaultKind) -> Self {
        match kind {
            FaultKind::Manifest => Self::Manifest,
            FaultKind::ShardName => Self::ShardName,
            FaultKind::Length => Self::Length,
            FaultKind::Checksum => Self::Checksum,
            FaultKind::RowCount => Self::RowCount,
            FaultKind::IndexRow => Self::IndexRow,
            FaultKind::Table => Self::Table,
            FaultKind::RecordHeader => Self::RecordHeader,
            FaultKind::Envelope => Self::Envelope,
            FaultKind::Payload => Self::Payload,
            FaultKind::DecodedSum => Self::DecodedSum,
            FaultKind::Replaced => Self::Replaced,
        }
    }
}

/// One thing that is wrong with a cache.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The cache's folder, as it was given.
    #[serde(serialize_with = "as_text")]
    pub cache: PathBuf,
    /// The cache's identity, when its manifest can be read. In JSON also the string `id`.
    #[serde(flatten, serialize_with = "id_twice")]
    pub cache_id: Option<u64>,
    /// The sample concerned, when it is one sample.
    pub sample: Option<u64>,
    /// The file concerned.
    #[serde(serialize_with = "as_text")]
    pub file: PathBuf,
    /// Byte offset in that file where the broken thing starts, when there is one.
    pub offset: Option<u64>,
    /// Which rule it breaks.
    pub kind: Kind,
    /// What the format asks for.
    pub expected: String,
    /// What is there instead.
    pub found: String,
}

/// JSON has no other spelling for a path that is not UTF-8.
pub(super) fn as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// The cache that findings are about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub(super) dir: &'a Path,
    pub(super) cache_id: Option<u64>,
}

impl Subject<'_> {
    /// A finding of the cache `self`.
    pub(super) fn finding(&self, severity: Severity, kind: Kind, file: PathBuf) -> Finding {
        Finding {
            severity,
            cache: self.dir.to_path_buf(),
            cache_id: self.cache_id,
            sample: None,
            file,
            offset: None,
            kind,
            expected: String::new(),
            found: String::new(),
        }
    }

    /// Appends what `error` says. `sample` is the one that was being checked.
    pub(super) fn add(&self, error: Error, sample: Option<u64>, to: &mut Vec<Finding>) {
        if let Error::Several(errors) = error {
            errors
                .into_iter()
                .for_each(|error| self.add(error, sample, to));
            return;
        }
        to.push(self.damage(error, sample));
    }

    fn damage(&self, error: Error, checked: Option<u64>) -> Finding {
        let damage = |kind, file: PathBuf| self.finding(Severity::Damage, kind, file);
        let with = |finding: Finding, expected: &str, found: String| Finding {
            sample: checked,
            expected: expected.to_owned(),
            found,
            ..finding
        };
        match error {
            Error::Damaged {
                path,
                sample,
                fault,
            } => {
                let Fault {
                    kind,
                    offset,
                    expected,
                    found,
                } = fault;
                Finding {
                    sample: sample.or(checked),
                    offset,
                    expected,
                    found,
                    ..damage(kind.into(), path)
                }
            }
            Error::Io {
                path,
                action,
                source,
            } => {
                let expected = match source.kind() {
                    io::ErrorKind::NotFound => "a file that the cache needs",
                    _ => "a file that can be read",
                };
                let found = format!("{source} (tried to {action})");
                with(damage(Kind::Io, path), expected, found)
            }
            Error::Incomplete { cache } => with(
                damage(Kind::Incomplete, cache.join(MANIFEST_FILE)),
                "manifest.json, which is written last",
                "none".to_owned(),
            ),
            Error::UnsupportedVersion { path, found } => {
                with(damage(Kind::Version, path), "2 or 3", found)
            }
            Error::DuplicateCacheId {
                cache_id,
                first,
                second,
            } => with(
                damage(Kind::DuplicateId, second.join(MANIFEST_FILE)),
                "an id of its own for each cache of the list",
                format!("{cache_id}, which {} has too", first.display()),
            ),
            Error::Refused { path, reason } => with(
                damage(Kind::Refused, path),
                "a file as a cache has it",
                reason,
            ),
            Error::NoRoom { path, reason, .. } => {
                with(damage(Kind::Refused, path), "memory to check it", reason)
            }
            Error::NoSuchSample {
                cache,
                sample,
                count,
            } => with(
                damage(Kind::IndexRow, cache.join(INDEX_FILE)),
                &format!("a sample below {count}"),
                sample.to_string(),
            ),
            other @ (Error::Several(_) | Error::View { .. }) => with(
                damage(Kind::Refused, self.dir.to_path_buf()),
                "a good cache",
                other.chain(),
            ),
        }
    }
}
