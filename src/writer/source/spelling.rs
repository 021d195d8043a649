//! Names of files as text.
//!
//! A name is any bytes; metadata is UTF-8. A name that is UTF-8 without a backslash is spelled as it
//! is. In any other name a backslash is spelled `\\` and a byte that belongs to no UTF-8 character
//! `\xNN`, with two lower-case hexadecimal digits. So two names never have one spelling, and
//! [`bytes_of`] gives the name back.

/// The spelling of `name`. With `lossy`, backslashes stay as they are and what is not UTF-8 becomes
/// U+FFFD.
#[must_use]
pub fn spell(name: &[u8], lossy: bool) -> String {
    if lossy {
        return String::from_utf8_lossy(name).into_owned();
    }
    match std::str::from_utf8(name) {
        Ok(text) if !text.contains('\\') => text.to_owned(),
        _ => escape(name),
    }
}

fn escape(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len() + 16);
    for chunk in name.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// The name that [`spell`] (not lossy) spells as `text`; `None` when it spells no name so.
#[must_use]
pub fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            name.push(byte);
            continue;
        }
        match rest {
            [b'\\', after @ ..] => {
                name.push(b'\\');
                rest = after;
            }
            [b'x', high, low, after @ ..] => {
                let digit = |digit: u8| char::from(digit).to_digit(16);
                let byte = digit(*high)? * 16 + digit(*low)?;
                name.push(u8::try_from(byte).ok()?);
                rest = after;
            }
            _ => return None,
        }
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_are_reversible_and_distinct() {
        for (name, spelling) in [
            (&b"a/b c.png"[..], "a/b c.png"),
            (b"\xdcber", "\\xdcber"),
            (b"\xff\xfe", "\\xff\\xfe"),
            (b"\\xdcber", "\\\\xdcber"),
            (b"line\nbreak", "line\nbreak"),
            ("e\u{301}".as_bytes(), "e\u{301}"),
            ("\u{e9}".as_bytes(), "\u{e9}"),
            (b"\xc3", "\\xc3"),
            (b"\xe2\x82x\\", "\\xe2\\x82x\\\\"),
        ] {
            assert_eq!(spell(name, false), spelling);
            assert_eq!(bytes_of(spelling).as_deref(), Some(name));
        }
        assert_eq!(spell(b"\xdcber\\", true), "\u{fffd}ber\\");
        assert_eq!(bytes_of("\\q"), None);
    }
}
