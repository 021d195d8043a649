//! From a sample id to its payload. Nothing of a payload is given out before the record's envelope
//! agreed with `metadata.arrow`, and every length is compared with what surrounds it first.
//!
//! In the steady state nothing is allocated: each thread keeps its buffers.

mod lengths;
mod scratch;
mod spelling;
mod stream;

use std::path::PathBuf;
use std::sync::Arc;

pub use scratch::release_buffers;
use scratch::{Buffer, NoMemory, Scratch, with_scratch};

use super::{Cache, FileCheck, MOST_CHANGES, RESTLESS};
use crate::error::{Error, Fault, Result};
use crate::format::index::IndexRow;
use crate::format::record::{
    Compression, HEADER_LEN, LZ4_PREFIX_LEN, decode_lz4, decoded_len, longest_lz4, lz4_start,
    metadata_len,
};
use crate::storage::StoredFile;

/// Stored bytes of an lz4 payload that are read together with the record's head.
const LZ4_AHEAD: u64 = 256 << 10;
/// Payload bytes of an uncompressed record that are read together with its head: copying so few
/// costs less than a second call.
const PLAIN_AHEAD: u64 = 16 << 10;
/// Bytes that the header and the envelope of most records fit into; as many are read when only the
/// length of the payload is asked for.
const LIKELY_HEAD: u64 = 512;
/// A record up to this many bytes is read whole when any of it is: its payload may begin on another
/// page than its header, and a cold disk is to be waited for once.
const SMALL_RECORD: u64 = 4 << 10;
/// Bytes of a record that the system is asked for ahead of reading, at most.
const MOST_AHEAD: u64 = 1 << 20;

/// The geometry of a record, from its header.
#[derive(Clone, Copy)]
struct Layout {
    metadata_len: u64,
    /// Where the stored payload starts in the shard.
    payload_offset: u64,
    stored_len: u64,
    decoded_len: u64,
    compression: Compression,
}

/// One sample's record, whose envelope agreed with `metadata.arrow`.
pub struct Record<'a> {
    cache: &'a Cache,
    sample: u64,
    shard: usize,
    file: &'a StoredFile,
    layout: Layout,
    /// The first bytes of the stored payload, as far as they were read with the head.
    ahead: &'a [u8],
    rest: &'a mut Buffer,
    /// Whether it passed, so that what is read of it has to as well.
    admitted: bool,
}

impl Cache {
    /// Has the system read the sample's record ahead, up to 1 MiB of it, so that a cold disk is
    /// waited for once. Says nothing of a record that cannot be read.
    pub fn read_ahead(&self, sample: u64) {
        if let Ok((row, shard)) = self.row(sample)
            && row.length > SMALL_RECORD
            && let Ok(file) = self.shards.get(shard)
        {
            file.read_ahead(row.offset, row.length.min(MOST_AHEAD));
        }
    }

    /// Has the kernel read all of the sample's record, of whatever length, and says how many bytes
    /// that is.
    ///
    /// # Errors
    /// [`Error::NoSuchSample`]; [`Error::Damaged`] when the index was changed in place; [`Error::Io`].
    pub fn read_whole_ahead(&self, sample: u64) -> Result<u64> {
        let (row, shard) = self.row(sample)?;
        let file = self.shards.get(shard)?;
        file.read_ahead(row.offset, row.length);
        Ok(row.length)
    }

    /// How the sample's payload is stored.
    ///
    /// # Errors
    /// [`Error::NoSuchSample`]; [`Error::Damaged`] when the index was changed in place.
    pub fn compression(&self, sample: u64) -> Result<Compression> {
        let (_, shard) = self.row(sample)?;
        let entry = self.manifest.shards.get(shard);
        entry
            .map(|entry| entry.compression)
            .ok_or_else(|| self.no_such_sample(sample))
    }

    /// Whether decoding the sample's payload takes long beside a round trip to the kernel.
    ///
    /// # Errors
    /// [`Error::NoSuchSample`]; [`Error::Damaged`] when the index was changed in place.
    pub fn decodes_slowly(&self, sample: u64) -> Result<bool> {
        let (row, _) = self.row(sample)?;
        Ok(row.length > LZ4_AHEAD && self.compression(sample)? == Compression::Lz4)
    }

    /// Calls `work` with the sample's record after its envelope has been compared and its shard
    /// passed, as far as checksums are known. `wanted` says how many payload bytes will be asked
    /// for, so that they can be read along; any number is right.
    ///
    /// # Errors
    /// [`Error::NoSuchSample`]; [`Error::Damaged`] when header, envelope, lengths or a checksum are
    /// wrong; [`Error::Io`].
    pub fn with_record<T>(
        &self,
        sample: u64,
        wanted: u64,
        work: impl FnOnce(&mut Record<'_>) -> T,
    ) -> Result<T> {
        let (_, shard) = self.row(sample)?;
        let mut work = Some(work);
        for _ in 0..MOST_CHANGES {
            let before = self.gates.known(shard);
            let done = self.with_stored_record(sample, wanted, |record| {
                if self.gates.pass(self, shard, record.file)? != before {
                    return Ok(None);
                }
                record.admitted = true;
                Ok(work.take().map(|work| work(record)))
            })??;
            if let Some(done) = done {
                return Ok(done);
            }
        }
        Err(self.restless(shard))
    }

    /// [`Cache::with_record`] whatever checksums say, for whoever checks.
    ///
    /// # Errors
    /// As there, less checksums.
    pub fn with_stored_record<T>(
        &self,
        sample: u64,
        wanted: u64,
        work: impl FnOnce(&mut Record<'_>) -> T,
    ) -> Result<T> {
        let whole = self.both_whole()?;
        let (row, shard) = self.row(sample)?;
        with_scratch(|scratch| {
            let file = self.shards.get(shard)?;
            self.write_usual(sample, row, shard, &file, &mut scratch.usual)?;
            let entry = self.manifest.shards.get(shard);
            let ahead = match entry.map(|entry| entry.compression) {
                _ if row.length <= SMALL_RECORD => row.length,
                _ if wanted == 0 => LZ4_PREFIX_LEN,
                Some(Compression::Lz4) => longest_lz4(wanted).min(LZ4_AHEAD),
                _ if wanted <= PLAIN_AHEAD => wanted,
                _ => 0,
            };
            let likely = HEADER_LEN + scratch.usual.len() as u64 + ahead;
            let layout = self.read_head(sample, row, shard, &file, scratch, likely)?;
            self.compare_envelope(sample, row, shard, &file, scratch, layout)?;
            self.whole_since(whole)?;
            let payload_at = usize::try_from(layout.payload_offset - row.offset).unwrap_or(0);
            let mut record = Record {
                cache: self,
                sample,
                shard,
                file: &file,
                layout,
                ahead: scratch.head.get(payload_at..).unwrap_or_default(),
                rest: &mut scratch.rest,
                admitted: false,
            };
            Ok(work(&mut record))
        })
    }

    /// Reads the record's first `likely` bytes into `scratch.head`, as far as it has them, and takes
    /// its layout from them.
    fn read_head(
        &self,
        sample: u64,
        row: IndexRow,
        shard: usize,
        file: &Arc<StoredFile>,
        scratch: &mut Scratch,
        likely: u64,
    ) -> Result<Layout> {
        let damaged = |fault: Fault, offset| self.in_record(fault, sample, shard, offset);
        let Some(entry) = self.manifest.shards.get(shard) else {
            return Err(self.no_such_sample(sample));
        };
        let head_len = row.length.min(likely);
        let head = scratch
            .head
            .sized(head_len)
            .map_err(|refused| self.no_memory(refused, sample, shard))?;
        self.read_at(shard, file, head, row.offset)?;

        let header = head.first_chunk().copied().unwrap_or_default();
        let metadata_len =
            metadata_len(header, row.length).map_err(|fault| damaged(fault, row.offset))?;
        let payload_at = HEADER_LEN + metadata_len;
        let payload_offset = row.offset + payload_at;
        let stored_len = row.length - payload_at;
        let mut prefix = [0; 4];
        let prefix = match entry.compression {
            Compression::None => &[],
            Compression::Lz4 => {
                let len = stored_len.min(LZ4_PREFIX_LEN);
                let start = usize::try_from(payload_at).unwrap_or(usize::MAX);
                let end = start.saturating_add(usize::try_from(len).unwrap_or(0));
                match head.get(start..end) {
                    Some(bytes) => bytes,
                    None => {
                        let (prefix, _) = prefix.split_at_mut(end - start);
                        self.read_at(shard, file, prefix, payload_offset)?;
                        &*prefix
                    }
                }
            }
        };
        let decoded_len = decoded_len(entry.compression, prefix, stored_len, entry.decoded_len)
            .map_err(|fault| damaged(fault, payload_offset))?;
        Ok(Layout {
            metadata_len,
            payload_offset,
            stored_len,
            decoded_len,
            compression: entry.compression,
        })
    }

    fn compare_envelope(
        &self,
        sample: u64,
        row: IndexRow,
        shard: usize,
        file: &Arc<StoredFile>,
        scratch: &mut Scratch,
        layout: Layout,
    ) -> Result<()> {
        let offset = row.offset + HEADER_LEN;
        let damaged = |fault| self.in_record(fault, sample, shard, offset);
        let start = usize::try_from(HEADER_LEN).unwrap_or(0);
        let usual = scratch.usual.as_slice();
        let json = usize::try_from(layout.metadata_len)
            .ok()
            .and_then(|len| scratch.head.get(start..start.checked_add(len)?));
        let json = match json {
            Some(json) if json == usual => return Ok(()),
            Some(json) => json,
            None => {
                self.envelope
                    .check_len(layout.metadata_len, usual)
                    .map_err(damaged)?;
                let rest = scratch.rest.sized(layout.metadata_len);
                let rest = rest.map_err(|refused| self.no_memory(refused, sample, shard))?;
                self.read_at(shard, file, rest, offset)?;
                &*rest
            }
        };
        self.envelope
            .compare(json, &self.table, sample)
            .map_err(damaged)
    }

    pub(super) fn read_at(
        &self,
        shard: usize,
        file: &StoredFile,
        buf: &mut [u8],
        offset: u64,
    ) -> Result<()> {
        file.read_exact_at(buf, offset).map_err(|source| {
            let action = format!("read {} bytes at offset {offset}", buf.len());
            Error::io(self.shards.path(shard), action, source)
        })?;
        self.gates.see(self, FileCheck::Shard(shard), file);
        Ok(())
    }

    /// [`Cache::read_at`] of bytes that are given out: they are of a state of the shard that passes.
    fn read_admitted(
        &self,
        shard: usize,
        file: &StoredFile,
        buf: &mut [u8],
        offset: u64,
    ) -> Result<()> {
        for _ in 0..MOST_CHANGES {
            let before = self.gates.known(shard);
            self.read_at(shard, file, buf, offset)?;
            if self.gates.pass(self, shard, file)? == before {
                return Ok(());
            }
        }
        Err(self.restless(shard))
    }

    #[cold]
    fn restless(&self, shard: usize) -> Error {
        Error::refused(self.shards.path(shard), RESTLESS)
    }

    #[cold]
    fn no_memory(&self, NoMemory(len): NoMemory, sample: u64, shard: usize) -> Error {
        Error::no_memory(self.shards.path(shard), Some(sample), len)
    }

    fn in_record(&self, fault: Fault, sample: u64, shard: usize, offset: u64) -> Error {
        fault.at(offset).in_sample(&self.shards.path(shard), sample)
    }
}

fn read_payload(
    cache: &Cache,
    admitted: bool,
    shard: usize,
    file: &StoredFile,
    out: &mut [u8],
    offset: u64,
) -> Result<()> {
    match admitted {
        true => cache.read_admitted(shard, file, out, offset),
        false => cache.read_at(shard, file, out, offset),
    }
}

impl Record<'_> {
    /// Length of the decoded payload in bytes.
    #[must_use]
    pub fn decoded_len(&self) -> u64 {
        self.layout.decoded_len
    }

    /// Length of the stored payload in bytes.
    #[must_use]
    pub fn stored_len(&self) -> u64 {
        self.layout.stored_len
    }

    /// The shard that it lies in.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.cache.shards.path(self.shard)
    }

    /// How the payload is stored.
    #[must_use]
    pub fn compression(&self) -> Compression {
        self.layout.compression
    }

    /// Fills `out` with the bytes of an uncompressed payload from `offset` on, which must lie
    /// inside it.
    ///
    /// # Errors
    /// [`Error::Io`] for a failed or short read.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let ahead = usize::try_from(offset)
            .ok()
            .and_then(|start| self.ahead.get(start..start.checked_add(out.len())?));
        if let Some(bytes) = ahead {
            out.copy_from_slice(bytes);
            return Ok(());
        }
        let end = offset.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > self.layout.stored_len) {
            let fault = Fault::new(
                crate::error::FaultKind::Payload,
                format!("{} bytes", self.layout.stored_len),
                format!("a read of {} bytes at offset {offset}", out.len()),
            );
            return Err(self.damaged(fault));
        }
        let offset = self.layout.payload_offset + offset;
        read_payload(
            self.cache,
            self.admitted,
            self.shard,
            self.file,
            out,
            offset,
        )
    }

    /// Decodes the whole payload into `out`, whose length must be [`Record::decoded_len`].
    ///
    /// # Errors
    /// [`Error::Damaged`] when the payload does not decode to exactly that; `out` then holds bytes
    /// that must not be used. [`Error::Io`] for a failed or short read.
    pub fn decode(&mut self, out: &mut [u8]) -> Result<()> {
        if self.layout.compression == Compression::None {
            return self.read(0, out);
        }
        let stored_len = usize::try_from(self.layout.stored_len).unwrap_or(usize::MAX);
        let stored = match self.ahead.get(..stored_len) {
            Some(stored) => stored,
            None => {
                let rest = self.rest.sized(self.layout.stored_len);
                let rest =
                    rest.map_err(|refused| self.cache.no_memory(refused, self.sample, self.shard))?;
                let offset = self.layout.payload_offset;
                let (cache, admitted) = (self.cache, self.admitted);
                read_payload(cache, admitted, self.shard, self.file, rest, offset)?;
                &*rest
            }
        };
        let block = stored.get(4..).unwrap_or_default();
        decode_lz4(block, out).map_err(|fault| self.damaged(fault))
    }

    /// Puts the first bytes of the decoded payload into `out` and says how many there are:
    /// `out.len()`, or the whole payload when it is shorter. They are for a look at what it is: a
    /// compressed payload is not decoded to its end, so that damage further on is not seen, and a
    /// damaged block may give fewer.
    ///
    /// # Errors
    /// [`Error::Io`] for a failed or short read.
    pub fn read_start(&mut self, out: &mut [u8]) -> Result<usize> {
        let len = usize::try_from(self.layout.decoded_len).unwrap_or(usize::MAX);
        let len = len.min(out.len());
        let out = out.get_mut(..len).unwrap_or_default();
        if self.layout.compression == Compression::None {
            return self.read(0, out).map(|()| len);
        }
        let needed = longest_lz4(out.len() as u64).min(self.layout.stored_len);
        let stored = match usize::try_from(needed)
            .ok()
            .and_then(|len| self.ahead.get(..len))
        {
            Some(stored) => stored,
            None => {
                let rest = self.rest.sized(needed);
                let rest =
                    rest.map_err(|refused| self.cache.no_memory(refused, self.sample, self.shard))?;
                let offset = self.layout.payload_offset;
                let (cache, admitted) = (self.cache, self.admitted);
                read_payload(cache, admitted, self.shard, self.file, rest, offset)?;
                &*rest
            }
        };
        Ok(lz4_start(stored.get(4..).unwrap_or_default(), out))
    }

    fn damaged(&self, fault: Fault) -> Error {
        self.cache
            .in_record(fault, self.sample, self.shard, self.layout.payload_offset)
    }
}
