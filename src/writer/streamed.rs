//! Payloads that are too long for memory: they are copied from file to shard, compressed ones by way of a
//! temporary file.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use super::source::Place;
use crate::error::{Error, Result};
use crate::format::lz4_join::BlockJoiner;
use crate::format::metadata::Value;
use crate::format::record::RecordEncoder;
use crate::storage::{ScratchFile, StoredFile};

/// An uncompressed payload from this length on is copied.
pub(super) const STREAMED_FROM: u64 = 8 << 20;
/// A compressed payload from this length on is made in pieces.
pub(super) const LZ4_STREAMED_FROM: u64 = 32 << 20;
/// Bytes of it that are compressed at once.
const LZ4_PIECE: u64 = 4 << 20;
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

/// Copies payload bytes, by offset and number.
fn copy(stored: &Stored, out: &mut impl Write, from: u64, len: u64) -> io::Result<()> {
    let mut piece = vec![0; usize::try_from(PIECE.min(len)).unwrap_or_default()];
    let mut done = 0;
    while done < len {
        let n = usize::try_from(PIECE.min(len - done)).unwrap_or_default();
        let piece = piece.get_mut(..n).unwrap_or_default();
        stored.read(from + done, piece)?;
        out.write_all(piece)?;
        done += n as u64;
    }
    Ok(())
}

/// Compresses a payload of `len` bytes into one block, in a temporary file.
pub(super) fn compress(
    stored: &Stored,
    len: u64,
    encoder: &mut RecordEncoder,
) -> io::Result<ScratchFile> {
    let out = ScratchFile::create().map_err(|error| io::Error::other(error.chain()))?;
    let mut out = BufWriter::new(out);
    let mut joiner = BlockJoiner::default();
    let mut copy = |out: &mut BufWriter<ScratchFile>, from, len| copy(stored, out, from, len);
    let mut piece = vec![0; usize::try_from(LZ4_PIECE.min(len)).unwrap_or_default()];
    let mut offset = 0;
    while offset < len {
        let n = LZ4_PIECE.min(len - offset);
        let piece = piece.get_mut(..usize::try_from(n).unwrap_or_default());
        let piece = piece.unwrap_or_default();
        stored.read(offset, piece)?;
        let block = encoder.compress(piece);
        let block = block.map_err(|fault| io::Error::other(fault.to_string()))?;
        joiner.push(n, block, &mut out, &mut copy)?;
        offset += n;
    }
    joiner.finish(&mut out, &mut copy)?;
    out.into_inner().map_err(io::IntoInnerError::into_error)
}

/// A sample of which only the payload is still to be read.
pub(super) struct Streamed {
    /// What stands before the payload in the record.
    pub(super) head: Vec<u8>,
    pub(super) values: Vec<Value>,
    pub(super) stored: Stored,
    /// Of the stored payload, in bytes.
    pub(super) len: u64,
    /// Of the payload, in bytes.
    pub(super) decoded_len: u64,
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
