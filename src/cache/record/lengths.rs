//! How long a sample's decoded payload is, as its record says, and what is remembered of that.

use super::{LIKELY_HEAD, with_scratch};
use crate::cache::Cache;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::format::envelope::Envelope;
use crate::format::record::HEADER_LEN;

impl Cache {
    /// Length of the sample's decoded payload in bytes, from its record's header. The envelope of
    /// a sample of zero bytes is checked too, since nobody will read from it.
    ///
    /// # Errors
    /// [`Error::NoSuchSample`]; [`Error::Damaged`] or [`Error::Io`] when the length cannot be known.
    pub fn payload_len(&self, sample: u64) -> Result<u64> {
        let (row, shard) = self.row(sample)?;
        let len = with_scratch(|scratch| -> Result<u64> {
            let file = self.shards.get(shard)?;
            self.read_head(sample, row, shard, &file, scratch, LIKELY_HEAD)
                .map(|layout| layout.decoded_len)
        })?;
        if len == 0 {
            self.with_record(sample, 0, |record| record.decode(&mut []))??;
        }
        Ok(len)
    }

    /// [`Cache::payload_len`], and whether it can be believed: the envelope agreed, so that it is the
    /// right record and its header is right. No checksum is looked at.
    ///
    /// # Errors
    /// As [`Cache::payload_len`]; also when what the header calls the envelope is no JSON object, since
    /// nobody knows then where the payload starts.
    pub fn payload_len_and_trust(&self, sample: u64) -> Result<(u64, bool)> {
        match self.with_stored_record(sample, 0, |record| record.decoded_len()) {
            Ok(len) if len > 0 => return Ok((len, true)),
            Err(error) if !self.has_object(sample)? => return Err(error),
            _ => {}
        }
        // An empty one is checked to its end.
        self.payload_len(sample).map(|len| (len, len == 0))
    }

    /// Whether the sample's record has some JSON object as its envelope.
    #[cold]
    fn has_object(&self, sample: u64) -> Result<bool> {
        let (row, shard) = self.row(sample)?;
        with_scratch(|scratch| {
            let file = self.shards.get(shard)?;
            let written = self.write_usual(sample, row, shard, &file, &mut scratch.usual);
            if written.is_err() {
                scratch.usual.clear();
            }
            let layout = self.read_head(sample, row, shard, &file, scratch, LIKELY_HEAD)?;
            let offset = row.offset + HEADER_LEN;
            let damaged = |fault| self.in_record(fault, sample, shard, offset);
            self.envelope
                .check_len(layout.metadata_len, &scratch.usual)
                .map_err(damaged)?;
            let json = scratch.rest.sized(layout.metadata_len);
            let json = json.map_err(|refused| self.no_memory(refused, sample, shard))?;
            self.read_at(shard, &file, json, offset)?;
            Ok(Envelope::is_object(json))
        })
    }

    /// [`Cache::payload_len_and_trust`], but from memory where a length that can be believed was asked
    /// for before.
    ///
    /// # Errors
    /// As there.
    pub fn remembered_len(&self, sample: u64) -> Result<(u64, bool)> {
        if let Some(len) = self.sizes.get(sample) {
            return Ok((len, true));
        }
        let (len, trusted) = self.payload_len_and_trust(sample)?;
        if trusted {
            self.sizes.note(sample, len);
        }
        Ok((len, trusted))
    }

    /// Takes the length of a payload that was found right. If another one was remembered, that is
    /// returned, and the right one is from now on.
    pub fn correct_len(&self, sample: u64, len: u64) -> Option<u64> {
        let other = self.sizes.get(sample).filter(|known| *known != len)?;
        self.sizes.forget(sample);
        self.sizes.note(sample, len);
        Some(other)
    }

    /// Whether [`Cache::remembered_len`] has the sample's length in memory.
    #[must_use]
    pub fn remembers_len(&self, sample: u64) -> bool {
        self.sizes.get(sample).is_some()
    }
}
