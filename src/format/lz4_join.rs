//! One LZ4 block out of the blocks of its pieces, in the memory of one piece.
//!
//! A block is a row of sequences, each some literals and a match; the last has literals only. So the
//! literals that end one piece become the first of the next piece's first sequence. They may be as long
//! as the payload, so only their number is kept, and they are read again when they are written.

use std::io::{self, Write};

use super::record::lz4_len;

/// Joins blocks in order.
#[derive(Debug, Default)]
pub struct BlockJoiner {
    /// Payload bytes before the piece that comes next.
    done: u64,
    /// How many of them are literals that were not written yet.
    pending: u64,
}

impl BlockJoiner {
    /// Writes what is certain of the block, after the next piece of `piece_len` bytes became `block`.
    /// `copy` writes payload bytes, by offset and number.
    ///
    /// # Errors
    /// What writing and `copy` return; [`io::ErrorKind::InvalidData`] for what is no block.
    pub fn push<W: Write>(
        &mut self,
        piece_len: u64,
        block: &[u8],
        out: &mut W,
        copy: &mut dyn FnMut(&mut W, u64, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut rest = block;
        // Whole sequences that may be written as they are.
        let mut plain = 0;
        loop {
            let start = block.len() - rest.len();
            let (&token, after) = rest.split_first().ok_or_else(no_block)?;
            rest = after;
            let literals = length(token >> 4, &mut rest);
            let (bytes, after) = rest.split_at_checked(literals).ok_or_else(no_block)?;
            if after.is_empty() {
                out.write_all(block.get(plain..start).unwrap_or_default())?;
                self.pending += literals as u64;
                self.done += piece_len;
                return Ok(());
            }
            let tail = after;
            rest = tail.get(2..).ok_or_else(no_block)?;
            length(token & 15, &mut rest);
            if self.pending > 0 {
                let (from, pending) = (self.done - self.pending, self.pending);
                write_literals(token & 15, pending + literals as u64, out)?;
                copy(out, from, pending)?;
                out.write_all(bytes)?;
                let tail = tail.get(..tail.len() - rest.len());
                out.write_all(tail.unwrap_or_default())?;
                self.pending = 0;
                plain = block.len() - rest.len();
            }
        }
    }

    /// Writes the end of the block.
    ///
    /// # Errors
    /// What writing and `copy` return.
    pub fn finish<W: Write>(
        self,
        out: &mut W,
        copy: &mut dyn FnMut(&mut W, u64, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        write_literals(0, self.pending, out)?;
        copy(out, self.done - self.pending, self.pending)
    }
}

/// Writes a token with a number of literals, and what of the number does not fit into it.
fn write_literals(low: u8, literals: u64, out: &mut impl Write) -> io::Result<()> {
    let Some(mut more) = literals.checked_sub(15) else {
        let literals = u8::try_from(literals).unwrap_or_default();
        return out.write_all(&[literals << 4 | low]);
    };
    out.write_all(&[0xF0 | low])?;
    while more >= 255 {
        out.write_all(&[255])?;
        more -= 255;
    }
    out.write_all(&[u8::try_from(more).unwrap_or_default()])
}

/// Takes a length that starts in four bits of a token.
fn length(bits: u8, rest: &mut &[u8]) -> usize {
    let mut input = rest.iter().copied();
    let len = lz4_len(bits, &mut input);
    let left = input.len();
    *rest = rest.get(rest.len() - left..).unwrap_or_default();
    len
}

fn no_block() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not an LZ4 block")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::record::{RecordEncoder, decode_lz4};

    fn joined(payload: &[u8], piece: usize) -> Vec<u8> {
        let (mut joiner, mut encoder, mut out) =
            (BlockJoiner::default(), RecordEncoder::default(), Vec::new());
        let mut copy = |out: &mut Vec<u8>, from: u64, len: u64| {
            let from = usize::try_from(from).unwrap();
            out.extend_from_slice(&payload[from..][..usize::try_from(len).unwrap()]);
            Ok(())
        };
        for piece in payload.chunks(piece) {
            let block = encoder.compress(piece).unwrap().to_vec();
            joiner
                .push(piece.len() as u64, &block, &mut out, &mut copy)
                .unwrap();
        }
        joiner.finish(&mut out, &mut copy).unwrap();
        out
    }

    fn check(payload: &[u8], piece: usize) {
        let block = joined(payload, piece);
        let mut out = vec![0; payload.len()];
        decode_lz4(&block, &mut out).unwrap();
        assert!(out == payload, "{} in pieces of {piece}", payload.len());
    }

    #[test]
    fn pieces_of_any_kind_join() {
        let noise: Vec<u8> = (0..300_000_u64)
            .map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56).to_le_bytes()[0])
            .collect();
        let even = vec![7; 200_000];
        let mixed = [
            &noise[..70_000],
            &even[..],
            &noise[..3],
            &even[..50],
            &noise[..],
        ]
        .concat();
        for payload in [noise, even, mixed] {
            for piece in [1, 7, 13, 100, 65_536, 100_000, 1 << 20] {
                check(&payload[..payload.len().min(piece * 3000)], piece);
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_joined_decodes_to_the_payload(
            payload in proptest::collection::vec(0_u8..3, 1..2000),
            piece in 1_usize..300,
        ) {
            check(&payload, piece);
        }
    }
}
