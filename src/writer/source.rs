//! Where samples come from: folders, archives and tables. Each kind gives the same [`Item`]s, one
//! after another, as often as it is asked: first to learn the types of the metadata, then to write.

pub mod archive;
pub mod folder;
pub mod infer;
pub mod join;
pub mod plan;
pub mod spelling;
pub mod table;
pub mod webdataset;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::metadata::Cell;
use crate::storage::{ScratchFile, StoredFile};

/// Where a sample's bytes are.
#[derive(Debug)]
pub enum Payload {
    /// Here.
    Bytes(Vec<u8>),
    /// They are this file.
    File(PathBuf),
    /// They are a part of a file.
    Part {
        /// The open file.
        file: Arc<StoredFile>,
        /// Where they start, in bytes.
        offset: u64,
        /// How many they are.
        len: u64,
    },
    /// They were written to a temporary file, being too many for memory.
    Spooled(Arc<ScratchFile>),
    /// They were not asked for.
    Left,
}

/// Which sample of a source a message is about.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Place {
    /// A row of a table, counted from 1.
    Row(u64),
    /// A member of an archive, or a file of a folder.
    Member(Vec<u8>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row(row) => write!(f, "row {row}"),
            Self::Member(name) => write!(f, "\"{}\"", name.escape_ascii()),
        }
    }
}

/// One sample of a source.
#[derive(Debug)]
pub struct Item {
    /// The payload's path in the source, in its own bytes; empty when it has none.
    pub name: Vec<u8>,
    /// Where the payload is.
    pub payload: Payload,
    /// Length of the payload in bytes, when that is known without opening it.
    pub len: Option<u64>,
    /// Which sample this is, for messages.
    pub place: Place,
    /// The metadata that the source has for it.
    pub cells: Cells,
}

/// Named values, in the order of their source.
pub type Cells = Vec<(Arc<str>, Cell)>;

/// What a source gives.
#[derive(Debug)]
pub enum Found {
    /// A sample.
    Item(Item),
    /// Something that is left out, and what it is.
    Skipped(Place, String),
}

/// Something that samples can be read from.
pub trait Source: Send + Sync + fmt::Debug {
    /// The file or folder, for messages.
    fn path(&self) -> &Path;

    /// Calls `each` for everything in the source, in its order, each time the same. Payloads are
    /// only handed out when `load` is set.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Refused`], naming the file and the place; what `each` gives.
    fn visit(&self, load: bool, each: &mut dyn FnMut(Found) -> Result<()>) -> Result<()>;

    /// Whether samples may lie in folders that name their class.
    fn has_folders(&self) -> bool {
        false
    }

    /// Whether a name that occurs twice is a fault of the source.
    fn names_are_unique(&self) -> bool {
        false
    }
}

/// The refusal of the sample at `place` of the source `path`.
pub fn refuse(path: &Path, place: &Place, reason: impl fmt::Display) -> Error {
    Error::refused(path, format!("{place}: {reason}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    /// A file with a name that ends so, gone when it goes out of use.
    pub(super) fn file(ending: &str, bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::Builder::new().suffix(ending).tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }
}
