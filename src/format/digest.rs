//! SHA-256 as the manifest spells it, and the identity of new caches (docs/format.md, "Identity").

use std::fmt;

use sha2::{Digest as _, Sha256};

/// A SHA-256 digest.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Sha256Digest([u8; 32]);

impl Sha256Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(bytes);
        hasher.finish()
    }

    /// Reads exactly 64 lower-case hexadecimal digits; anything else is `None`.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let &[high, low] = pair else { return None };
            *byte = (nibble(high)? << 4) | nibble(low)?;
        }
        Some(Self(bytes))
    }

    /// The 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sha256Digest({self})")
    }
}

/// SHA-256 over bytes that arrive in pieces.
#[derive(Clone, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// A hasher that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes taken.
    #[must_use]
    pub fn finish(self) -> Sha256Digest {
        Sha256Digest(self.0.finalize().into())
    }
}

/// The identity of a new format-3 cache: the first eight bytes of the SHA-256 of the name's exact
/// UTF-8 bytes, big-endian, with the highest bit cleared. The name is not normalised.
#[must_use]
pub fn cache_id_of(source_name: &str) -> u64 {
    let digest = Sha256Digest::of(source_name.as_bytes());
    digest
        .as_bytes()
        .iter()
        .take(8)
        .fold(0_u64, |id, &byte| (id << 8) | u64::from(byte))
        & (u64::MAX >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_have_their_known_ids() {
        assert_eq!(cache_id_of("source"), 4_742_122_821_122_130_104);
        assert_eq!(cache_id_of("\u{e9}"), 5_375_421_630_974_772_051);
        assert_eq!(cache_id_of("e\u{301}"), 4_544_825_244_877_739_698);
    }

    #[test]
    fn hex_is_exactly_64_lower_case_digits() {
        let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Sha256Digest::from_hex(text).unwrap().to_string(), text);
        assert_eq!(Sha256Digest::from_hex(text), Some(Sha256Digest::of(b"")));
        for bad in [
            "",
            "zz",
            &text[1..],
            &text.to_uppercase(),
            &format!("{text}0"),
        ] {
            assert_eq!(Sha256Digest::from_hex(bad), None, "{bad}");
        }
    }
}
