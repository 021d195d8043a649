//! One sample: its record is read as the mount reads it, and its payload decoded.

use std::ops::Range;

use super::Pace;
use super::budget::{Memory, SMALL};
use super::finding::{Finding, Subject};
use crate::cache::{Cache, DecodedSums, Record};
use crate::error::{Error, Fault, FaultKind, Result};
use crate::format::record::Compression;

/// A thread gives its decoding buffer back when it is longer than this.
const KEEP_BUFFER: usize = 4 << 20;
/// Progress is told in steps of about this many bytes.
const PROGRESS_STEP: u64 = 1 << 20;
/// Bytes read at once when a payload must be read without being decoded.
const PIECE: u64 = 1 << 20;

/// What the checks of one cache's samples share.
pub(super) struct SampleCheck<'a> {
    pub(super) cache: &'a Cache,
    pub(super) subject: Subject<'a>,
    pub(super) sums: &'a DecodedSums,
    pub(super) memory: &'a dyn Memory,
    pub(super) pace: Pace<'a>,
}

impl SampleCheck<'_> {
    /// Checks `samples` one by one, for as long as the pace says so; `buffer` is working space. The
    /// pace hears of the bytes of compressed records.
    pub(super) fn run(&self, samples: Range<u64>, buffer: &mut Vec<u8>) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut bytes = 0;
        for sample in samples {
            let decoded = self.decode(sample, buffer);
            let decoded_len = match &decoded {
                Ok((len, stored_len)) => {
                    bytes += stored_len;
                    Some(*len)
                }
                // The mount shows a length as long as the header tells one.
                Err(_) => self.cache.payload_len(sample).ok(),
            };
            if let Err(error) = decoded {
                self.subject.add(error, Some(sample), &mut findings);
            }
            // A row that was changed in place has failed above.
            let _ = self.sums.add(self.cache, sample, decoded_len);
            if bytes >= PROGRESS_STEP && (self.pace)(std::mem::take(&mut bytes)).is_break() {
                return findings;
            }
        }
        // Nothing is left to break off.
        let _ = (self.pace)(bytes);
        findings
    }

    /// The decoded length of a sample that is good, and the stored length if it is compressed.
    fn decode(&self, sample: u64, buffer: &mut Vec<u8>) -> Result<(u64, u64)> {
        // Hashing reads the payloads that need no decoding; all others are wanted whole.
        let wanted = match self.cache.compression(sample)? {
            Compression::None => 0,
            Compression::Lz4 => u64::MAX,
        };
        self.cache.with_stored_record(sample, wanted, |record| {
            let len = record.decoded_len();
            if record.compression() == Compression::None {
                return Ok((len, 0));
            }
            let held = len.saturating_add(record.stored_len());
            let held = match held {
                ..=SMALL => None,
                _ => Some(self.memory.take(held)),
            };
            match held {
                Some(None) => record.decode_through(|_| Ok(()))?,
                _ => decode_into(record, buffer)?,
            }
            Ok((len, record.stored_len()))
        })?
    }

    /// Finds the samples of an uncompressed shard whose payloads cannot be read, once the shard as
    /// a whole could not. Samples that fail before their payload are left to [`SampleCheck::run`].
    pub(super) fn unreadable(&self, shard: usize, buffer: &mut Vec<u8>) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (sample, row) in (0_u64..).zip(self.cache.index().rows()) {
            if row.shard != shard as u64 {
                continue;
            }
            let read = self.cache.with_stored_record(sample, 0, |record| {
                if record.compression() == Compression::None {
                    return read_whole(record, buffer);
                }
                Ok(())
            });
            if let Ok(Err(error)) = read {
                self.subject.add(error, Some(sample), &mut findings);
            }
        }
        findings
    }
}

/// Decodes into `buffer`, or where there is no memory for that piece by piece.
fn decode_into(record: &mut Record<'_>, buffer: &mut Vec<u8>) -> Result<()> {
    let len = record.decoded_len();
    let room = usize::try_from(len).ok().filter(|room| {
        buffer
            .try_reserve_exact(room.saturating_sub(buffer.len()))
            .is_ok()
    });
    let Some(room) = room else {
        return record.decode_through(|_| Ok(()));
    };
    if buffer.len() < room {
        buffer.resize(room, 0);
    }
    let result = match record.decode(buffer.get_mut(..room).unwrap_or_default()) {
        Err(Error::NoRoom { .. }) => record.decode_through(|_| Ok(())),
        other => other,
    };
    if buffer.len() > KEEP_BUFFER {
        *buffer = Vec::new();
    }
    result
}

fn read_whole(record: &Record<'_>, buffer: &mut Vec<u8>) -> Result<()> {
    let len = record.decoded_len();
    let mut offset = 0;
    while offset < len {
        let piece = PIECE.min(len - offset);
        let room = usize::try_from(piece).unwrap_or(0);
        buffer.resize(room, 0);
        record.read(offset, buffer)?;
        offset += piece;
    }
    Ok(())
}

/// The fault of an I/O error is told by its path; this one says that a whole file could not be read.
pub(super) fn is_unreadable(error: &Error) -> bool {
    match error {
        Error::Io { .. } => true,
        Error::Damaged {
            fault: Fault { kind, .. },
            ..
        } => *kind == FaultKind::Replaced,
        _ => false,
    }
}
