//! Records: envelope and stored payload (docs/format.md, "Records"). The only user of lz4_flex.
//!
//! ```text
//! byte 0              8              8+m             length
//!      | m: u64 LE    | JSON object  | stored payload |
//!
//! stored payload, none:  the bytes
//! stored payload, lz4:   | decoded length: u32 LE | one LZ4 block |
//! ```
//!
//! The decoders take nothing on trust: each length is compared with what surrounds it before it is
//! used in arithmetic, as a slice bound or for a buffer.

use lz4_flex::block::CompressTable;

use crate::error::{Fault, FaultKind};

/// Bytes of the field that gives the length of the JSON.
pub const HEADER_LEN: u64 = 8;
/// Bytes of the field that gives the decoded length of an lz4 payload.
pub const LZ4_PREFIX_LEN: u64 = 4;
/// No LZ4 block decodes to more than this many times its own length.
pub const LZ4_MAX_EXPANSION: u64 = 255;

/// What a block may have beyond the bytes that its literals need.
const LZ4_BLOCK_OVERHEAD: u64 = 16;

/// How the payloads of a shard are stored.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Compression {
    /// As they are.
    None,
    /// One LZ4 block each.
    Lz4,
}

impl Compression {
    /// The name in the manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
        }
    }
}

/// Length in bytes of the JSON, from a record's first eight bytes and the record's length.
///
/// # Errors
/// [`FaultKind::RecordHeader`] when the JSON would not fit into the record.
pub fn metadata_len(header: [u8; 8], record_len: u64) -> Result<u64, Fault> {
    let len = u64::from_le_bytes(header);
    let room = record_len.checked_sub(HEADER_LEN);
    match room {
        Some(room) if len <= room => Ok(len),
        _ => Err(Fault::new(
            FaultKind::RecordHeader,
            format!("a metadata length of at most {} bytes", room.unwrap_or(0)),
            len.to_string(),
        )),
    }
}

/// Decoded length in bytes of a stored payload.
///
/// `stored_len` is its length in the shard; `prefix` its first four bytes (fewer when it is
/// shorter), which only lz4 looks at; `shard_decoded_len` the manifest's sum for the whole shard.
///
/// # Errors
/// [`FaultKind::Payload`] when an lz4 payload has no whole prefix, states a length above 255 times
/// its block or above `shard_decoded_len`, or has a block longer than any that decodes to it.
pub fn decoded_len(
    compression: Compression,
    prefix: &[u8],
    stored_len: u64,
    shard_decoded_len: u64,
) -> Result<u64, Fault> {
    if compression == Compression::None {
        return Ok(stored_len);
    }
    let (Some(block_len), Some(&prefix)) = (
        stored_len.checked_sub(LZ4_PREFIX_LEN),
        prefix.first_chunk::<4>(),
    ) else {
        return Err(Fault::new(
            FaultKind::Payload,
            "an lz4 payload of at least 5 bytes",
            format!("{stored_len} bytes"),
        ));
    };
    let len = u64::from(u32::from_le_bytes(prefix));
    let most = block_len
        .saturating_mul(LZ4_MAX_EXPANSION)
        .min(shard_decoded_len);
    if len > most {
        return Err(Fault::new(
            FaultKind::Payload,
            format!(
                "an lz4 payload of at most {most} bytes (its block has {block_len} bytes, its \
                 shard decodes to {shard_decoded_len})"
            ),
            format!("a stated length of {len} bytes"),
        ));
    }
    let longest = longest_lz4(len) - LZ4_PREFIX_LEN;
    if block_len > longest {
        return Err(Fault::new(
            FaultKind::Payload,
            format!("an lz4 block of at most {longest} bytes for {len} decoded bytes"),
            format!("{block_len} bytes"),
        ));
    }
    Ok(len)
}

/// The most bytes that an lz4 payload of `len` decoded bytes has in a shard: a byte of output costs
/// a block one byte, and 1/255 more in a run of literals.
#[must_use]
pub fn longest_lz4(len: u64) -> u64 {
    len.saturating_add(len / LZ4_MAX_EXPANSION)
        .saturating_add(LZ4_BLOCK_OVERHEAD + LZ4_PREFIX_LEN)
}

/// Decodes an LZ4 block into the whole of `out`.
///
/// # Errors
/// [`FaultKind::Payload`] when the block is malformed or gives another number of bytes. `out` then
/// holds bytes that must not be used.
pub fn decode_lz4(block: &[u8], out: &mut [u8]) -> Result<(), Fault> {
    match lz4_flex::block::decompress_into(block, out) {
        Ok(len) if len == out.len() => Ok(()),
        Ok(len) => Err(Fault::new(
            FaultKind::Payload,
            format!("an lz4 block of {} bytes", out.len()),
            format!("one of {len} bytes"),
        )),
        Err(error) => Err(Fault::new(
            FaultKind::Payload,
            format!("an lz4 block of {} bytes", out.len()),
            error.to_string(),
        )),
    }
}

/// Makes records; keeps the compressor's tables and a buffer between them.
#[derive(Default)]
pub struct RecordEncoder {
    /// For payloads below 65535 bytes: what a block looks like depends on the size of the table.
    small: Option<CompressTable>,
    large: Option<CompressTable>,
    block: Vec<u8>,
}

/// From this length on, in bytes, LZ4 blocks are made with 32-bit table entries.
const LARGE_TABLE_FROM: usize = 0xFFFF;
/// A block buffer above this size is given back after use.
const KEEP_BLOCK: usize = 8 << 20;

impl RecordEncoder {
    /// Appends one record to `out`. On an error `out` is as before.
    ///
    /// # Errors
    /// [`FaultKind::Payload`] when `payload` has 4 GiB or more and the compression is lz4, whose
    /// length field has 32 bits.
    pub fn append(
        &mut self,
        json: &[u8],
        payload: &[u8],
        compression: Compression,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        match compression {
            Compression::None => {
                reserve(out, 8 + json.len() + payload.len())?;
                put_envelope(json, out);
                out.extend_from_slice(payload);
            }
            Compression::Lz4 => {
                let Ok(len) = u32::try_from(payload.len()) else {
                    return Err(Fault::new(
                        FaultKind::Payload,
                        "an lz4 payload below 4 GiB",
                        format!("{} bytes", payload.len()),
                    ));
                };
                let block = self.compress(payload)?;
                reserve(out, 12 + json.len() + block.len())?;
                put_envelope(json, out);
                out.extend_from_slice(&len.to_le_bytes());
                out.extend_from_slice(block);
                if self.block.len() > KEEP_BLOCK {
                    self.block = Vec::new();
                }
            }
        }
        Ok(())
    }

    /// The LZ4 block of a payload.
    ///
    /// # Errors
    /// [`FaultKind::Payload`] when there is no memory for it.
    pub fn compress(&mut self, payload: &[u8]) -> Result<&[u8], Fault> {
        let table = match payload.len() < LARGE_TABLE_FROM {
            true => self.small.get_or_insert_with(CompressTable::small),
            false => self.large.get_or_insert_with(CompressTable::large),
        };
        let most = lz4_flex::block::get_maximum_output_size(payload.len());
        if self.block.len() < most {
            let more = most - self.block.len();
            reserve(&mut self.block, more)?;
            self.block.resize(most, 0);
        }
        lz4_flex::block::compress_into_with_table(payload, &mut self.block, table)
            .ok()
            .and_then(|written| self.block.get(..written))
            .ok_or_else(|| {
                Fault::new(
                    FaultKind::Payload,
                    "a payload that lz4 can compress",
                    format!("{} bytes that it refuses", payload.len()),
                )
            })
    }
}

/// Makes room for `more` bytes, if there is memory for them.
fn reserve(bytes: &mut Vec<u8>, more: usize) -> Result<(), Fault> {
    bytes.try_reserve(more).map_err(|_| {
        Fault::new(
            FaultKind::Payload,
            "a payload that memory suffices for",
            format!("one that takes {more} bytes more"),
        )
    })
}

/// Appends what stands before the stored payload of a record.
pub fn put_envelope(json: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(json.len() as u64).to_le_bytes());
    out.extend_from_slice(json);
}

impl std::fmt::Debug for RecordEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordEncoder").finish_non_exhaustive()
    }
}

/// Appends one record to `out`, as [`RecordEncoder::append`] does.
/// Decodes the first bytes of an LZ4 block, as far as `block`, which may be cut, has them and `out`
/// has room, and says how many they are. For a look at a payload: nothing is said of the rest, and
/// a malformed block just ends early.
pub fn lz4_start(block: &[u8], out: &mut [u8]) -> usize {
    let mut input = block.iter().copied();
    let mut written = 0;
    while let Some(token) = input.next() {
        let literals = lz4_len(token >> 4, &mut input);
        for _ in 0..literals {
            let (Some(slot), Some(byte)) = (out.get_mut(written), input.next()) else {
                return written;
            };
            *slot = byte;
            written += 1;
        }
        let (Some(low), Some(high)) = (input.next(), input.next()) else {
            break;
        };
        let distance = usize::from(u16::from_le_bytes([low, high]));
        let Some(mut from) = written.checked_sub(distance).filter(|_| distance > 0) else {
            break;
        };
        let length = lz4_len(token & 15, &mut input).saturating_add(4);
        for _ in 0..length {
            let byte = out.get(from).copied().unwrap_or_default();
            let Some(slot) = out.get_mut(written) else {
                return written;
            };
            *slot = byte;
            (from, written) = (from + 1, written + 1);
        }
    }
    written
}

/// A length that starts in four bits of a token and goes on, when they are all set, in bytes.
pub(super) fn lz4_len(bits: u8, input: &mut impl Iterator<Item = u8>) -> usize {
    let mut len = usize::from(bits);
    if bits == 15 {
        for byte in input {
            len = len.saturating_add(usize::from(byte));
            if byte != u8::MAX {
                break;
            }
        }
    }
    len
}

/// Appends one record to `out`.
///
/// # Errors
/// As there.
pub fn encode_record(
    json: &[u8],
    payload: &[u8],
    compression: Compression,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    RecordEncoder::default().append(json, payload, compression, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metadata_length_fits_into_its_record() {
        assert_eq!(metadata_len(2_u64.to_le_bytes(), 10), Ok(2));
        for (len, record) in [(3, 10), (u64::MAX, 10), (u64::MAX - 8, 10), (0, 7)] {
            let fault = metadata_len(u64::to_le_bytes(len), record).unwrap_err();
            assert_eq!(fault.kind, FaultKind::RecordHeader, "{len} {record}");
        }
    }

    #[test]
    fn an_lz4_length_is_bounded_by_block_and_shard() {
        let len = |prefix: u32, stored, shard| {
            decoded_len(Compression::Lz4, &prefix.to_le_bytes(), stored, shard)
        };
        assert_eq!(len(0, 5, 0), Ok(0));
        assert_eq!(len(510, 6, 510), Ok(510));
        assert!(len(511, 6, 4096).is_err(), "above 255 times the block");
        assert!(len(510, 6, 509).is_err(), "above the shard's sum");
        assert!(len(u32::MAX, 6, u64::MAX).is_err());
        assert!(decoded_len(Compression::Lz4, &[0; 3], 3, 9).is_err());
        assert_eq!(decoded_len(Compression::None, &[], 7, 0), Ok(7));
    }

    #[test]
    fn a_record_holds_what_it_was_given() {
        for payload in [&b""[..], b"a", &[7; 100_000], b"abcabcabcabcabcabcabc"] {
            let mut record = Vec::new();
            encode_record(b"{}", payload, Compression::Lz4, &mut record).unwrap();
            assert_eq!(record[..10], *b"\x02\0\0\0\0\0\0\0{}");
            let stored = &record[10..];
            let len = decoded_len(
                Compression::Lz4,
                stored,
                stored.len() as u64,
                payload.len() as u64,
            );
            let mut out = vec![0; usize::try_from(len.unwrap()).unwrap()];
            decode_lz4(&stored[4..], &mut out).unwrap();
            assert_eq!(out, payload);
        }
    }

    #[test]
    fn the_start_of_a_block_is_the_start_of_its_payload() {
        let mixed: Vec<u8> = (0..100_000_u32)
            .map(|n| u8::try_from((n.wrapping_mul(n) / 7 + n % 13) % 251).unwrap())
            .collect();
        for payload in [
            &b""[..],
            b"a",
            &[7; 100_000],
            b"abcabcabcabcabcabcabc",
            &mixed,
        ] {
            let mut record = Vec::new();
            encode_record(b"", payload, Compression::Lz4, &mut record).unwrap();
            let block = &record[12..];
            for len in [0, 1, 3, 20, 512, 70_000] {
                let mut out = vec![0; len];
                let n = lz4_start(block, &mut out);
                assert_eq!(n, len.min(payload.len()));
                assert_eq!(out[..n], payload[..n]);
                let cut = lz4_start(&block[..block.len() / 2], &mut out);
                assert_eq!(out[..cut], payload[..cut]);
            }
        }
        let mut out = [0; 40];
        for bad in [
            &b"\x10A\0\0PBBBBB"[..],
            b"\x10A\x09\0PBBBBB",
            b"\xff",
            b"\x0f\x01",
        ] {
            assert!(lz4_start(bad, &mut out) <= 1, "{bad:?}");
        }
    }

    #[test]
    fn match_offsets_outside_the_output_are_refused() {
        for block in [
            &b"\x10A\0\0PBBBBB"[..],
            b"\x10A\x09\0PBBBBB",
            b"\xf0\xffa",
            b"",
        ] {
            let mut out = [b'S'; 20];
            assert!(decode_lz4(block, &mut out).is_err(), "{block:?}");
        }
    }
}
