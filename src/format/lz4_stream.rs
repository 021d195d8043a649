//! One LZ4 block of any length, decoded in little memory: a match reaches back at most 64 KiB, so a
//! window of the decoded bytes is enough. Accepts exactly the blocks that
//! [`decode_lz4`](super::record::decode_lz4) accepts, which is faster where both fit into memory.

use crate::error::{Error, Fault, FaultKind, Result};

/// The furthest that a match reaches back.
const HISTORY: usize = 64 << 10;
/// Decoded bytes that are handed on at once.
const PIECE: usize = 192 << 10;
/// Bytes of the block that are read at once.
const INPUT: usize = 128 << 10;
/// The shortest match.
const MIN_MATCH: u64 = 4;

/// Bytes of working space that [`decode_lz4_through`] takes.
pub const LZ4_WORKING_SPACE: usize = HISTORY + PIECE + INPUT;

/// Decodes a block of `block_len` bytes that gives `len`. `read` fills a buffer from an offset of the
/// block on; `write` gets the decoded bytes in order; `damaged` makes an error of a fault; `space` has
/// [`LZ4_WORKING_SPACE`] bytes.
///
/// # Errors
/// [`FaultKind::Payload`] when the block is malformed or gives another number of bytes: what was
/// written must not be used then. What `read` and `write` return.
pub fn decode_lz4_through(
    block_len: u64,
    len: u64,
    space: &mut [u8],
    read: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
    write: &mut dyn FnMut(&[u8]) -> Result<()>,
    damaged: &dyn Fn(Fault) -> Error,
) -> Result<()> {
    let (window, input) = space.split_at_mut_checked(HISTORY + PIECE).ok_or_else(|| {
        damaged(Fault::new(
            FaultKind::Payload,
            format!("{LZ4_WORKING_SPACE} bytes of working space"),
            "fewer",
        ))
    })?;
    let mut decoder = Decoder {
        block: Block {
            buffer: input,
            filled: 0,
            at: 0,
            offset: 0,
            left: block_len,
            read,
            damaged,
        },
        window: Window {
            bytes: window,
            filled: 0,
            written: 0,
            write,
        },
        len,
    };
    decoder.run()
}

struct Decoder<'a> {
    block: Block<'a>,
    window: Window<'a>,
    len: u64,
}

impl Decoder<'_> {
    fn run(&mut self) -> Result<()> {
        let mut produced: u64 = 0;
        loop {
            let token = self.block.byte()?;
            let literals = self.length(token >> 4)?;
            self.check_room(produced, literals)?;
            let mut left = literals;
            while left > 0 {
                let bytes = self.block.some(left)?;
                self.window.push(bytes)?;
                left -= bytes.len() as u64;
            }
            produced += literals;
            if self.block.is_empty() {
                break;
            }
            let distance = u16::from_le_bytes([self.block.byte()?, self.block.byte()?]);
            if distance == 0 || u64::from(distance) > produced {
                return Err(self.block.fault("a match inside the decoded bytes"));
            }
            let matched = self.length(token & 15)?.saturating_add(MIN_MATCH);
            self.check_room(produced, matched)?;
            self.window.repeat(usize::from(distance), matched)?;
            produced += matched;
        }
        if produced != self.len {
            let expected = format!("an lz4 block of {} bytes", self.len);
            let found = format!("one of {produced} bytes");
            return Err((self.block.damaged)(Fault::new(
                FaultKind::Payload,
                expected,
                found,
            )));
        }
        self.window.flush()
    }

    /// A length that starts in four bits of a token and goes on, when they are all set, in bytes.
    fn length(&mut self, bits: u8) -> Result<u64> {
        let mut len = u64::from(bits);
        if bits == 15 {
            loop {
                let byte = self.block.byte()?;
                len = len.saturating_add(u64::from(byte));
                if byte != u8::MAX {
                    break;
                }
            }
        }
        Ok(len)
    }

    fn check_room(&self, produced: u64, more: u64) -> Result<()> {
        match more <= self.len.saturating_sub(produced) {
            true => Ok(()),
            false => Err(self
                .block
                .fault(&format!("an lz4 block of {} bytes", self.len))),
        }
    }
}

/// The block's bytes in order.
struct Block<'a> {
    buffer: &'a mut [u8],
    filled: usize,
    at: usize,
    /// Of the bytes after those in the buffer, in the block.
    offset: u64,
    /// Bytes after those in the buffer.
    left: u64,
    read: &'a mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
    damaged: &'a dyn Fn(Fault) -> Error,
}

impl Block<'_> {
    fn is_empty(&self) -> bool {
        self.at >= self.filled && self.left == 0
    }

    fn byte(&mut self) -> Result<u8> {
        let bytes = self.some(1)?;
        Ok(bytes.first().copied().unwrap_or_default())
    }

    /// Up to `most` bytes, and at least one.
    fn some(&mut self, most: u64) -> Result<&[u8]> {
        if self.at >= self.filled {
            self.fill()?;
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let end = self.filled.min(self.at.saturating_add(most));
        let bytes = self.buffer.get(self.at..end).unwrap_or_default();
        self.at = end;
        Ok(bytes)
    }

    fn fill(&mut self) -> Result<()> {
        let len = self.left.min(self.buffer.len() as u64);
        let Some(buffer) = usize::try_from(len)
            .ok()
            .filter(|len| *len > 0)
            .and_then(|len| self.buffer.get_mut(..len))
        else {
            return Err(self.fault("another byte of the lz4 block"));
        };
        (self.read)(self.offset, buffer)?;
        (self.at, self.filled) = (0, buffer.len());
        self.offset += len;
        self.left -= len;
        Ok(())
    }

    #[cold]
    fn fault(&self, expected: &str) -> Error {
        let unread = (self.filled - self.at) as u64;
        let found = format!("none at byte {} of the block", self.offset - unread);
        (self.damaged)(Fault::new(FaultKind::Payload, expected, found))
    }
}

/// The decoded bytes: the last ones that were written, and those that are to be.
struct Window<'a> {
    bytes: &'a mut [u8],
    filled: usize,
    /// How many of them were written.
    written: usize,
    write: &'a mut dyn FnMut(&[u8]) -> Result<()>,
}

impl Window<'_> {
    fn flush(&mut self) -> Result<()> {
        let new = self.bytes.get(self.written..self.filled);
        (self.write)(new.unwrap_or_default())?;
        self.written = self.filled;
        Ok(())
    }

    /// Makes room for at least one byte and says for how many there is.
    fn room(&mut self) -> Result<usize> {
        if self.filled >= self.bytes.len() {
            self.flush()?;
            let from = self.filled.saturating_sub(HISTORY);
            self.bytes.copy_within(from..self.filled, 0);
            self.filled -= from;
            self.written = self.filled;
        }
        Ok(self.bytes.len() - self.filled)
    }

    fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let n = self.room()?.min(bytes.len());
            let (now, later) = bytes.split_at(n);
            if let Some(to) = self.bytes.get_mut(self.filled..self.filled + n) {
                to.copy_from_slice(now);
            }
            self.filled += n;
            bytes = later;
        }
        Ok(())
    }

    /// Repeats the bytes from `distance` back on, `len` of them, of which the last may be new ones.
    fn repeat(&mut self, distance: usize, len: u64) -> Result<()> {
        let mut left = len;
        // A multiple of the distance: the last so many bytes repeat themselves.
        let mut span = distance;
        while left > 0 {
            let room = self.room()?;
            let n = usize::try_from(left).unwrap_or(usize::MAX);
            let n = n.min(span).min(room);
            let from = self.filled.saturating_sub(span);
            self.bytes.copy_within(from..from + n, self.filled);
            self.filled += n;
            left -= n as u64;
            if n < span {
                span = distance;
            } else if span <= HISTORY / 2 {
                span *= 2;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::format::record::{Compression, decode_lz4, encode_record};

    fn stream(block: &[u8], len: usize) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let mut space = vec![7; LZ4_WORKING_SPACE];
        let decoded = decode_lz4_through(
            block.len() as u64,
            len as u64,
            &mut space,
            &mut |offset, buf| {
                let start = usize::try_from(offset).unwrap();
                buf.copy_from_slice(&block[start..start + buf.len()]);
                Ok(())
            },
            &mut |bytes| {
                out.extend_from_slice(bytes);
                Ok(())
            },
            &|fault| fault.in_file(Path::new("it")),
        );
        decoded.ok().map(|()| out)
    }

    fn whole(block: &[u8], len: usize) -> Option<Vec<u8>> {
        let mut out = vec![0; len];
        decode_lz4(block, &mut out).ok().map(|()| out)
    }

    fn block_of(payload: &[u8]) -> Vec<u8> {
        let mut record = Vec::new();
        encode_record(b"", payload, Compression::Lz4, &mut record).unwrap();
        record.split_off(12)
    }

    #[test]
    fn payloads_longer_than_the_window_come_out_as_they_were() {
        let mixed: Vec<u8> = (0..3_000_000_u32)
            .map(|n| u8::try_from((n.wrapping_mul(n) / 7 + n % 13 + n / 70_000) % 251).unwrap())
            .collect();
        let distant: Vec<u8> = mixed.iter().copied().cycle().take(900_000).collect();
        let far: Vec<u8> = mixed[..65_000]
            .iter()
            .copied()
            .cycle()
            .take(900_000)
            .collect();
        let short = b"abc".iter().copied().cycle().take(700_001).collect();
        for payload in [Vec::new(), vec![7; 2_000_000], short, far, distant, mixed] {
            let block = block_of(&payload);
            assert!(stream(&block, payload.len()).unwrap() == payload);
            assert!(stream(&block, payload.len() + 1).is_none());
            assert!(stream(&block[..block.len() - 1], payload.len()).is_none());
            if !payload.is_empty() {
                assert!(stream(&block, payload.len() - 1).is_none());
            }
        }
    }

    proptest! {
        #[test]
        fn both_decoders_accept_the_same_blocks(
            payload in proptest::collection::vec(0_u8..4, 0..400),
            changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..3),
            cut in 0_usize..3,
        ) {
            let mut block = block_of(&payload);
            for (at, byte) in changes {
                let at = usize::from(at) % block.len();
                block[at] = byte;
            }
            block.truncate(block.len().saturating_sub(cut));
            for len in [payload.len(), payload.len() + 1] {
                prop_assert_eq!(stream(&block, len), whole(&block, len));
            }
        }

        #[test]
        fn both_decoders_accept_the_same_noise(block in proptest::collection::vec(0_u8..40, 0..30), len in 0_usize..60) {
            prop_assert_eq!(stream(&block, len), whole(&block, len));
        }
    }
}
