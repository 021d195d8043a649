//! Source names: the folder of a new cache and the text that its identity is made from.

use std::fmt;

/// Bytes that a folder name may have.
const MAX_LEN: usize = 255;

/// A name that is one plain path segment and that no program keeps for itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SourceName(String);

impl SourceName {
    /// Takes `name` unless it is empty, has more than 255 bytes, contains `/` or NUL, or is `.`,
    /// `..` or `tmp` (a folder that other writers of the format keep beside their caches).
    ///
    /// # Errors
    /// The reason, as a sentence.
    pub fn new(name: &str) -> Result<Self, String> {
        let reason = if name.is_empty() {
            "it is empty".to_owned()
        } else if name.len() > MAX_LEN {
            format!(
                "it has {} bytes, at most {MAX_LEN} are possible",
                name.len()
            )
        } else if name.contains(['/', '\0']) {
            "it contains a slash or a NUL byte".to_owned()
        } else if matches!(name, "." | ".." | "tmp") {
            "this name is reserved".to_owned()
        } else {
            return Ok(Self(name.to_owned()));
        };
        Err(format!(
            "a source name is one plain folder name, and {name:?} is not: {reason}"
        ))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_plain_segment() {
        for good in [
            "a",
            "tmp2",
            "...",
            "a b",
            "\u{e9}",
            "line\nbreak",
            &"x".repeat(255),
        ] {
            assert_eq!(SourceName::new(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            ".",
            "..",
            "tmp",
            "a/b",
            "a/",
            "/",
            "a\0",
            &"x".repeat(256),
        ] {
            assert!(SourceName::new(bad).is_err(), "{bad:?}");
        }
    }
}
