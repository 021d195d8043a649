//! Names and texts of caches in messages: whatever they hold, they stay on their line, move no
//! cursor and turn no text around. A cache may be somebody else's.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::Serialize;

/// Whether a terminal or a reader of lines would take the character for more than itself: control
/// characters, other ends of lines, and those that change the direction of what follows.
fn is_active(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        )
        || matches!(character, '\u{2066}'..='\u{2069}')
}

/// `text` with such characters escaped, as `\n` and `\u{1b}`.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_active) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\n' | '\r' | '\t' | '\0' => escaped.extend(character.escape_debug()),
            active if is_active(active) => escaped.extend(active.escape_unicode()),
            character => escaped.push(character),
        }
    }
    Cow::Owned(escaped)
}

/// The value as JSON on one line, with such characters in its texts escaped as JSON escapes them.
#[must_use]
pub fn json_line(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).unwrap_or_default();
    printable_json(&json).into_owned()
}

/// As [`json_line`], on many lines for people.
#[must_use]
pub fn json_pretty(value: &impl Serialize) -> String {
    let json = serde_json::to_string_pretty(value).unwrap_or_default();
    printable_json(&json).into_owned()
}

/// `json` with such characters in its texts escaped as JSON escapes them: serde_json leaves some as they
/// are. Outside of texts there are none but ends of lines.
#[must_use]
pub fn printable_json(json: &str) -> Cow<'_, str> {
    let is_left = |character| character != '\n' && is_active(character);
    if !json.contains(is_left) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        match is_left(character) {
            // All of them are below U+10000. Writing into memory does not fail.
            true => drop(write!(escaped, "\\u{:04x}", u32::from(character))),
            false => escaped.push(character),
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str =
        "a\n\r\t\0\u{1b}[2J\u{7f}\u{85}\u{9b}\u{2028}\u{202e}\u{2066}\u{200f}\u{61c}z";

    #[test]
    fn nothing_active_is_left_in_a_text() {
        assert_eq!(
            printable("a \u{e9} %2F \\n \u{1f600}"),
            "a \u{e9} %2F \\n \u{1f600}"
        );
        let text = printable(HOSTILE);
        assert!(!text.contains(is_active), "{text:?}");
        assert!(text.starts_with("a\\n\\r\\t\\0\\u{1b}[2J") && text.ends_with("\\u{61c}z"));
    }

    #[test]
    fn json_means_the_same() {
        let value = serde_json::json!({ HOSTILE: [HOSTILE, 1] });
        for json in [json_line(&value), json_pretty(&value)] {
            assert!(!json.replace('\n', "").contains(is_active), "{json:?}");
            assert_eq!(
                serde_json::from_str::<serde_json::Value>(&json).unwrap(),
                value
            );
        }
        assert_eq!(json_line(&value).lines().count(), 1);
    }
}
