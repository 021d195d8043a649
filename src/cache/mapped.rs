//! The mapped files of a cache: whole while they are used, and mapped again when they are so again.

use std::ops::{ControlFlow, Deref};
use std::sync::{Mutex, TryLockError};

use super::validate::compare;
use super::{Cache, FileCheck};
use crate::error::Result;
use crate::format::metadata::{Row, Table};
use crate::storage::{MappedFile, Whole};

/// Bytes read at once while a file is hashed.
const PIECE: usize = 128 << 10;

/// Held while a file is mapped again: one at a time.
#[derive(Debug, Default)]
pub(super) struct Mending(Mutex<Failed>);

/// [`crate::storage::StoredFile::changed`] of a file that was hashed in vain: not again before it
/// changes.
#[derive(Debug, Default)]
struct Failed {
    index: Option<i64>,
    metadata: Option<i64>,
}

/// The metadata table, at a moment at which it could be read.
#[derive(Clone, Copy)]
pub struct TableRef<'a> {
    cache: &'a Cache,
    whole: Whole,
}

impl<'a> TableRef<'a> {
    /// The table itself, for as long as there is the cache.
    #[must_use]
    pub fn get(self) -> &'a Table {
        &self.cache.table
    }

    /// The row of `sample`; `None` beyond the last.
    #[must_use]
    pub fn row(self, sample: u64) -> Option<Row<'a>> {
        self.cache.table.row(sample)
    }

    /// Whether what was taken from the table may be believed. To be asked after that.
    ///
    /// # Errors
    /// As [`Cache::table`].
    pub fn check(self) -> Result<()> {
        self.cache.gates.pass_metadata(self.cache)?;
        let whole = self.cache.metadata.whole_since(self.whole);
        whole.map_err(|fault| fault.in_file(self.cache.files.metadata.path()))
    }
}

impl Deref for TableRef<'_> {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.cache.table
    }
}

impl Cache {
    /// The metadata table, unless it was found wrong or has lost bytes. Its values are to be believed
    /// once [`TableRef::check`] was asked after they were taken.
    ///
    /// # Errors
    /// [`crate::error::FaultKind::Checksum`] as long as metadata.arrow is known to be wrong;
    /// [`crate::error::FaultKind::Replaced`] when it was cut.
    pub fn table(&self) -> Result<TableRef<'_>> {
        self.gates.pass_metadata(self)?;
        let whole = self.whole(FileCheck::Metadata, &self.metadata)?;
        Ok(TableRef { cache: self, whole })
    }

    /// Whether both mapped files are whole now, mapped again if they are whole again.
    pub(super) fn both_whole(&self) -> Result<[Whole; 2]> {
        Ok([
            self.whole(FileCheck::Index, &self.index)?,
            self.whole(FileCheck::Metadata, &self.metadata)?,
        ])
    }

    /// Whether what was read of them since `then` may be believed.
    pub(super) fn whole_since(&self, [index, metadata]: [Whole; 2]) -> Result<()> {
        let index = self.index.whole_since(index);
        index.map_err(|fault| fault.in_file(self.files.index.path()))?;
        let metadata = self.metadata.whole_since(metadata);
        metadata.map_err(|fault| fault.in_file(self.files.metadata.path()))
    }

    fn whole(&self, check: FileCheck, map: &MappedFile) -> Result<Whole> {
        if let Ok(whole) = map.whole() {
            return Ok(whole);
        }
        self.mend(check, map);
        let whole = map.whole();
        whole.map_err(|fault| fault.in_file(&self.file_path(check)))
    }

    /// Maps a file again that has lost bytes, if it is the same and its SHA-256 is right.
    #[cold]
    fn mend(&self, check: FileCheck, map: &MappedFile) {
        let mut failed = match self.mending.0.try_lock() {
            Ok(failed) => failed,
            Err(TryLockError::Poisoned(failed)) => failed.into_inner(),
            // Whoever does it may be waiting for the disk.
            Err(TryLockError::WouldBlock) => return,
        };
        let failed = match check {
            FileCheck::Index => &mut failed.index,
            _ => &mut failed.metadata,
        };
        if map.whole().is_ok() {
            return;
        }
        let path = self.file_path(check);
        let Ok(file) = self.stored_file(check) else {
            return;
        };
        if *failed == Some(file.changed_at_open()) {
            return;
        }
        *failed = Some(file.changed_at_open());
        let go_on = |_| ControlFlow::Continue(());
        let buf = &mut vec![0; PIECE];
        let compared = compare(&path, &file, &self.manifest, check, buf, &go_on);
        let right = compared.and_then(|compared| compared.result);
        let mapped = right.map_err(|error| error.chain()).and_then(|()| {
            let mapped = map.map_again(&file);
            mapped.map_err(|error| error.to_string())
        });
        match mapped {
            Ok(()) => {
                *failed = None;
                log::info!("{}: whole again, and right by its SHA-256", path.display());
            }
            Err(why) => log::debug!("{}: not mapped again: {why}", path.display()),
        }
    }
}
