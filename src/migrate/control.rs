//! The word that asks for a migration through a control file.

use super::MIGRATION_TARGET;

/// The longest word that is looked at, white space included, in bytes.
const MAX_WORD_LEN: usize = 64;

/// What was written is not the word that starts a migration.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("expected 3, the only format that manifests can be migrated to")]
pub struct BadControlWord;

/// Reads a format version that manifests can be migrated to: its decimal digits with optional
/// ASCII white space around them, and nothing else.
///
/// # Errors
/// [`BadControlWord`] for everything else, other versions included.
pub fn parse_control_word(word: &[u8]) -> Result<u32, BadControlWord> {
    if word.len() <= MAX_WORD_LEN && word.trim_ascii() == MIGRATION_TARGET.to_string().as_bytes() {
        Ok(MIGRATION_TARGET)
    } else {
        Err(BadControlWord)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_the_version_with_white_space_around() {
        for word in [
            "3",
            "3\n",
            " \t3\r\n",
            "3\n\n",
            "\x0c3",
            &" ".repeat(63).replacen(' ', "3", 1),
        ] {
            assert_eq!(parse_control_word(word.as_bytes()), Ok(3), "{word:?}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        let long = format!("{}3", " ".repeat(64));
        for word in [
            "", " ", "\n", "2", "4", "-1", "-3", "+3", "03", "33", "3 3", "3.0", "3e0", "0x3",
            "\"3\"", "'3'", "3\0", "\0", "\u{a0}3", "3;", "three", "A", &long,
        ] {
            assert_eq!(
                parse_control_word(word.as_bytes()),
                Err(BadControlWord),
                "{word:?}"
            );
        }
        assert!(parse_control_word(&[0xff]).is_err());
    }
}
