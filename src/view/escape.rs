//! Any text as one path component, and back.

/// Longest name of a file, in bytes.
pub const NAME_MAX: usize = 255;

/// A text as one path component, reversibly: `%`, `/`, NUL and other control characters, and a
/// leading dot become `%` and two hexadecimal digits. The empty text becomes `%`. A component that
/// would be longer than 255 bytes is `None`.
#[must_use]
pub fn escape_component(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    push_escaped(&mut out, text, true);
    if out.is_empty() {
        out.push(b'%');
    }
    let fits = out.len() <= NAME_MAX;
    String::from_utf8(out).ok().filter(|_| fits)
}

/// The text that [`escape_component`] made `component` of; `None` when it made none like it.
#[must_use]
pub fn unescape_component(component: &str) -> Option<String> {
    if component == "%" {
        return Some(String::new());
    }
    let mut out = Vec::with_capacity(component.len());
    let mut rest = component.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        out.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    let text = String::from_utf8(out).ok()?;
    (escape_component(&text).as_deref() == Some(component)).then_some(text)
}

/// Appends `text` to a path component, escaped. A leading dot is escaped where the text starts the
/// component.
fn push_escaped(out: &mut Vec<u8>, text: &str, starts: bool) {
    let mut rest = text.as_bytes();
    if starts && let Some(after) = rest.strip_prefix(b".") {
        push_byte(out, b'.');
        rest = after;
    }
    while let Some(at) = rest.iter().position(|byte| is_unusable(*byte)) {
        let (usable, after) = rest.split_at(at);
        out.extend_from_slice(usable);
        if let Some((&byte, after)) = after.split_first() {
            push_byte(out, byte);
            rest = after;
        }
    }
    out.extend_from_slice(rest);
}

/// Appends `%` and the byte's two hexadecimal digits.
pub(super) fn push_byte(out: &mut Vec<u8>, byte: u8) {
    out.extend_from_slice(&[b'%', hex_digit(byte >> 4), hex_digit(byte & 15)]);
}

fn is_unusable(byte: u8) -> bool {
    byte.is_ascii_control() || byte == b'%' || byte == b'/'
}

fn hex_digit(value: u8) -> u8 {
    match value {
        0..=9 => b'0' + value,
        _ => b'A' + (value - 10),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escaped_names_are_one_component_and_distinct() {
        let texts = [
            "", "%", ".", "..", ".a", "a.b", "a/b", "a%2Fb", "é", "a\nb", "\0", "%25", "\x7f",
        ];
        let names: Vec<_> = texts
            .iter()
            .map(|text| escape_component(text).unwrap())
            .collect();
        assert_eq!(names[4], "%2Ea");
        assert_eq!(names[5], "a.b");
        assert_eq!(names[6], "a%2Fb");
        assert_eq!(names[8], "é");
        for (n, name) in names.iter().enumerate() {
            assert!(!name.is_empty() && !name.contains(['/', '\0']) && !name.starts_with('.'));
            assert!(!names[..n].contains(name), "{name}");
            assert_eq!(unescape_component(name).as_deref(), Some(texts[n]));
        }
        assert_eq!(escape_component(&"x".repeat(256)), None);
    }

    #[test]
    fn what_no_escape_makes_is_not_unescaped() {
        for name in ["", ".a", "%2", "%zz", "%2f", "%41", "a/b", "%C3"] {
            assert_eq!(unescape_component(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn every_text_comes_back(text in "(?s).{0,80}") {
            if let Some(name) = escape_component(&text) {
                prop_assert!(!name.contains('/') && name != "." && name != "..");
                prop_assert_eq!(unescape_component(&name), Some(text));
            }
        }
    }
}
