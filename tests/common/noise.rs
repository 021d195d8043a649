//! Payloads that are made from a number, so that another process can make them again.

/// `len` bytes that compress a little and differ at every place, the same for the same seed.
#[must_use]
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let random = |state: &mut u64| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state as u8
    };
    (0..len)
        .map(|n| match n % 3 {
            0 => b'x',
            _ => random(&mut state),
        })
        .collect()
}
