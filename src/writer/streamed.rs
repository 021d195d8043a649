//! Payloads that are stored as they are and too long for memory: they are copied from file to shard.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::source::Place;
use crate::error::{Error, Result};
use crate::format::metadata::Value;
use crate::storage::{ScratchFile, StoredFile};

/// An uncompressed payload from this length on is copied.
pub(super) const STREAMED_FROM: u64 = 8 << 20;
/// Bytes that are copied at once.
pub(super) const PIECE: u64 = 1 << 20;

/// A file of which a part is a payload.
pub(super) enum Stored {
    File { file: Arc<StoredFile>, offset: u64 },
    Spool(Arc<ScratchFile>),
}

impl Stored {
    /// Fills `out` from byte `offset` of the payload on.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self {
            Self::File { file, offset: at } => file.read_exact_at(out, at.saturating_add(offset)),
            Self::Spool(file) => match file.read_at(offset, out)? == out.len() {
                true => Ok(()),
                false => Err(io::ErrorKind::UnexpectedEof.into()),
            },
        }
    }
}

/// A sample of which only the payload is still to be read.
pub(super) struct Streamed {
    /// What stands before the payload in the record.
    pub(super) head: Vec<u8>,
    pub(super) values: Vec<Value>,
    pub(super) stored: Stored,
    /// Of the payload, in bytes.
    pub(super) len: u64,
    pub(super) source: Arc<Path>,
    pub(super) place: Place,
}

impl Streamed {
    /// Of the record, in bytes.
    pub(super) fn record_len(&self) -> u64 {
        self.len.saturating_add(self.head.len() as u64)
    }

    /// Calls `take` with the record piece by piece.
    pub(super) fn pieces(&self, mut take: impl FnMut(Vec<u8>) -> Result<()>) -> Result<()> {
        take(self.head.clone())?;
        let mut offset = 0;
        while offset < self.len {
            let len = PIECE.min(self.len - offset);
            let mut piece = vec![0; usize::try_from(len).unwrap_or_default()];
            self.stored
                .read(offset, &mut piece)
                .map_err(|error| Error::io(&*self.source, format!("read {}", self.place), error))?;
            take(piece)?;
            offset += len;
        }
        Ok(())
    }
}
