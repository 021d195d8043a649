//! A second, slow LZ4 block decoder, so that the crate's is not its own witness.

/// What a stored lz4 payload holds; `None` unless its block decodes to exactly the stated length.
#[must_use]
pub fn decode_payload(stored: &[u8]) -> Option<Vec<u8>> {
    let (prefix, block) = stored.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_le_bytes(*prefix)).ok()?;
    let out = decode_block(block)?;
    (out.len() == len).then_some(out)
}

/// A payload stored by literals alone: legal, and longer than the payload.
#[must_use]
pub fn store_literally(payload: &[u8]) -> Vec<u8> {
    let mut stored = u32::try_from(payload.len()).unwrap().to_le_bytes().to_vec();
    match payload.len() {
        len @ 0..15 => stored.push((len as u8) << 4),
        len => {
            stored.push(0xF0);
            stored.extend(std::iter::repeat_n(0xFF, (len - 15) / 255));
            stored.push(((len - 15) % 255) as u8);
        }
    }
    stored.extend_from_slice(payload);
    stored
}

fn decode_block(block: &[u8]) -> Option<Vec<u8>> {
    let mut rest = block;
    let mut out = Vec::new();
    loop {
        let token = take(&mut rest, 1)?[0];
        let literals = length(token >> 4, &mut rest)?;
        out.extend_from_slice(take(&mut rest, literals)?);
        if rest.is_empty() {
            return Some(out);
        }
        let offset = take(&mut rest, 2)?;
        let offset = usize::from(u16::from_le_bytes([offset[0], offset[1]]));
        let matched = length(token & 15, &mut rest)? + 4;
        let start = out.len().checked_sub(offset).filter(|_| offset > 0)?;
        for n in 0..matched {
            out.push(out[start + n]);
        }
    }
}

fn length(nibble: u8, rest: &mut &[u8]) -> Option<usize> {
    let mut length = usize::from(nibble);
    if nibble == 15 {
        loop {
            let more = take(rest, 1)?[0];
            length += usize::from(more);
            if more != 255 {
                break;
            }
        }
    }
    Some(length)
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}
