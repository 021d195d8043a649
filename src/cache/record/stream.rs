//! Payloads that are decoded piece by piece, in little memory.

use super::{NoMemory, Record, read_payload};
use crate::error::{Error, Result};
use crate::format::lz4_stream::{LZ4_WORKING_SPACE, decode_lz4_through};
use crate::format::record::{Compression, LZ4_PREFIX_LEN};
use crate::storage::Buffer;

/// Bytes of an uncompressed payload that are read at once.
const PIECE: u64 = 256 << 10;

impl Record<'_> {
    /// Calls `write` with the decoded payload, piece by piece. Takes some hundred KiB of memory,
    /// however long the payload is, and more time than [`Record::decode`].
    ///
    /// # Errors
    /// As [`Record::decode`]: what was written must not be used then. [`Error::NoRoom`]. What `write`
    /// returns.
    pub fn decode_through(&mut self, mut write: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let refused = |len| self.cache.no_memory(NoMemory(len), self.sample, self.shard);
        if self.layout.compression == Compression::None {
            let mut piece = Buffer::zeroed(PIECE).map_err(|_| refused(PIECE))?;
            let mut offset = 0;
            while offset < self.layout.stored_len {
                let len = PIECE.min(self.layout.stored_len - offset);
                let len = usize::try_from(len).unwrap_or_default();
                let piece = piece.get_mut(..len).unwrap_or_default();
                self.read(offset, piece)?;
                write(piece)?;
                offset += len as u64;
            }
            return Ok(());
        }
        let space = LZ4_WORKING_SPACE as u64;
        let mut space = Buffer::zeroed(space).map_err(|_| refused(space))?;
        let block_at = self.layout.payload_offset + LZ4_PREFIX_LEN;
        let mut read = |offset: u64, buf: &mut [u8]| -> Result<()> {
            let offset = block_at.saturating_add(offset);
            read_payload(
                self.cache,
                self.admitted,
                self.shard,
                self.file,
                buf,
                offset,
            )
        };
        let damaged = |fault| -> Error { self.damaged(fault) };
        decode_lz4_through(
            self.layout.stored_len.saturating_sub(LZ4_PREFIX_LEN),
            self.layout.decoded_len,
            &mut space,
            &mut read,
            &mut write,
            &damaged,
        )
    }
}
