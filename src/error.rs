//! What went wrong, in facts: which file, which record, what was expected, what was found.
//!
//! There is no errno here; `crate::fuse::errno` has the one table. `format` raises [`Fault`]s,
//! which know no file; `storage` and `cache` add the path and the sample and make [`Error`]s.

mod json_id;
mod printable;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use json_id::{cache_twice, id_twice};
pub use printable::{json_line, json_pretty, printable, printable_json};

/// The result of everything that can meet damage or a failing disk.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a cache, a sample or an operation was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error("{}: cannot {action}", path.display())]
    Io {
        /// The file or folder concerned.
        path: PathBuf,
        /// What was tried, as a verb phrase ("open", "read 24 bytes at offset 0").
        action: String,
        /// What the system said.
        source: io::Error,
    },
    /// The folder holds no `manifest.json`: it is not a cache, or not a finished one.
    #[error("{}: incomplete cache: no manifest.json (a finished cache has one; it is written last)", cache.display())]
    Incomplete {
        /// The folder.
        cache: PathBuf,
    },
    /// The manifest's format version is not one that this program reads.
    #[error("{}: unsupported format version: expected 2 or 3, found {found}", path.display())]
    UnsupportedVersion {
        /// The manifest.
        path: PathBuf,
        /// The version as spelled in the file.
        found: String,
    },
    /// Bytes on disk do not satisfy the format.
    #[error("{}{}: {fault}", path.display(), SampleLabel(*sample))]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// The sample concerned, when it is one sample's record.
        sample: Option<u64>,
        /// What is wrong with it.
        fault: Fault,
    },
    /// Two caches of one list resolve to the same identity.
    #[error("duplicate cache_id {cache_id}: {} and {} (leave one out, or list them in the order in which their ids were given)", first.display(), second.display())]
    DuplicateCacheId {
        /// The id that both have.
        cache_id: u64,
        /// The earlier folder of the list.
        first: PathBuf,
        /// The later folder of the list.
        second: PathBuf,
    },
    /// A sample id is not below the cache's sample count.
    #[error("{}: no sample {sample}: the cache has {count}", cache.display())]
    NoSuchSample {
        /// The cache folder.
        cache: PathBuf,
        /// The id asked for.
        sample: u64,
        /// The number of samples.
        count: u64,
    },
    /// A request that cannot be served, with the reason and what to do.
    #[error("{}: {reason}", path.display())]
    Refused {
        /// The file or folder concerned.
        path: PathBuf,
        /// Reason and remedy.
        reason: String,
    },
    /// There is no memory or no disk space for what was asked. The bytes of the cache may be right:
    /// this is no damage.
    #[error("{}{}: {reason}", path.display(), SampleLabel(*sample))]
    NoRoom {
        /// The file concerned.
        path: PathBuf,
        /// The sample concerned, when it is one sample's record.
        sample: Option<u64>,
        /// What there is too little of.
        room: Room,
        /// How much is needed, and which option gives more.
        reason: String,
    },
    /// A view that cannot be shown as asked for.
    #[error("view {view:?}: {reason}")]
    View {
        /// Its name.
        view: String,
        /// What was expected and what was found, naming the samples or the cache.
        reason: String,
    },
    /// Several caches failed; each is named.
    #[error("{}", Lines(.0))]
    Several(Vec<Error>),
}

/// What there may be too little of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Room {
    /// Memory of this process.
    Memory,
    /// Disk space for temporary files.
    Disk,
}

impl Error {
    /// An [`Error::NoRoom`] for memory of `len` bytes for one sample, whose record lies in `path`.
    pub fn no_memory(path: impl Into<PathBuf>, sample: Option<u64>, len: u64) -> Self {
        Self::NoRoom {
            path: path.into(),
            sample,
            room: Room::Memory,
            reason: format!(
                "cannot allocate {len} bytes of memory (a limit of the process, or of the machine)"
            ),
        }
    }

    /// An [`Error::Io`] for `path`.
    pub fn io(path: impl Into<PathBuf>, action: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            path: path.into(),
            action: action.into(),
            source,
        }
    }

    /// An [`Error::Refused`] for `path`.
    pub fn refused(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self::Refused {
            path: path.into(),
            reason: reason.into(),
        }
    }

    /// The fault, when this is damage.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Damaged { fault, .. } => Some(fault),
            _ => None,
        }
    }

    /// This error with its causes, joined by ": ", for one line of a log or of stderr; several errors
    /// have a line each. What is in names stays on its line ([`printable`]).
    #[must_use]
    pub fn chain(&self) -> String {
        if let Self::Several(errors) = self {
            let lines: Vec<_> = errors.iter().map(Self::chain).collect();
            return lines.join("\n");
        }
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        printable(&text).into_owned()
    }
}

/// What kind of rule a [`Fault`] breaks. Tests match on this, never on text.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum FaultKind {
    /// `manifest.json` is not the JSON object that the format asks for.
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
    /// `metadata.arrow` is not a file that this program reads.
    Table,
    /// A record's header contradicts the record's length.
    RecordHeader,
    /// A record's JSON copy of the metadata differs from `metadata.arrow`.
    Envelope,
    /// A stored payload does not decode to what its header says.
    Payload,
    /// The sum of a shard's decoded payloads is not what the manifest says.
    DecodedSum,
    /// A file is not the one that was opened at start.
    Replaced,
}

/// A broken rule of the format, without the file in which it was met.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fault {
    /// Which rule.
    pub kind: FaultKind,
    /// Byte offset in the file where the broken thing starts, when there is one.
    pub offset: Option<u64>,
    /// What the format asks for.
    pub expected: String,
    /// What is there instead.
    pub found: String,
}

impl Fault {
    /// A fault of `kind` with no offset.
    pub fn new(kind: FaultKind, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            kind,
            offset: None,
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// The same fault, at `offset` bytes into its file.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    /// The fault as an error about the file `path`.
    pub fn in_file(self, path: &Path) -> Error {
        Error::Damaged {
            path: path.to_path_buf(),
            sample: None,
            fault: self,
        }
    }

    /// The fault as an error about one sample, whose record lies in `path`.
    pub fn in_sample(self, path: &Path, sample: u64) -> Error {
        Error::Damaged {
            path: path.to_path_buf(),
            sample: Some(sample),
            fault: self,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = match self.kind {
            FaultKind::Manifest => "bad manifest",
            FaultKind::ShardName => "bad shard name",
            FaultKind::Length => "wrong length",
            FaultKind::Checksum => "checksum mismatch",
            FaultKind::RowCount => "wrong number of rows",
            FaultKind::IndexRow => "bad index row",
            FaultKind::Table => "unreadable metadata table",
            FaultKind::RecordHeader => "bad record header",
            FaultKind::Envelope => "embedded metadata does not match metadata.arrow",
            FaultKind::Payload => "bad payload",
            FaultKind::DecodedSum => "wrong sum of decoded payloads",
            FaultKind::Replaced => "file changed since it was opened",
        };
        write!(f, "{rule}")?;
        if let Some(offset) = self.offset {
            write!(f, " at offset {offset}")?;
        }
        write!(f, ": expected {}, found {}", self.expected, self.found)
    }
}

struct SampleLabel(Option<u64>);

impl fmt::Display for SampleLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(sample) => write!(f, " (sample {sample})"),
            None => Ok(()),
        }
    }
}

struct Lines<'a>(&'a [Error]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, error) in self.0.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            f.write_str(&error.chain())?;
        }
        Ok(())
    }
}
