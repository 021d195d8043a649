//! Components of the paths of views: as they were stored, but for what no name can be.

use super::escape::push_byte;
use crate::format::digest::Sha256Digest;

/// In front of a component of a path that is not as it was stored. No name has this byte, so that
/// what was escaped and what was stored like that are different components.
pub const MARK: u8 = 0;
/// Longest component that is not as it was stored: what makes it distinct is added to it.
const MARKED_MAX: usize = 230;
/// Longest ending that a shortened name keeps, with its dot.
const ENDING_MAX: usize = 16;

/// Stands for a `%` of a text until the component ends, when it is known whether something else in it
/// is escaped: then it is too, or two texts could become one name. No text has this byte.
const PERCENT: u8 = 0xFF;

/// Appends `text` to a path component as it is, but for `/` and NUL, which no name can have: they
/// become `%2F` and `%00`. Says whether there were any. [`end_component`] must follow.
pub(super) fn push_text(out: &mut Vec<u8>, text: &str) -> bool {
    let unusable = |byte: &u8| matches!(byte, b'/' | b'%' | 0);
    let mut is_escaped = false;
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(unusable) {
        let (usable, after) = rest.split_at(at);
        out.extend_from_slice(usable);
        if let Some((&byte, after)) = after.split_first() {
            match byte {
                b'%' => out.push(PERCENT),
                byte => {
                    push_byte(out, byte);
                    is_escaped = true;
                }
            }
            rest = after;
        }
    }
    out.extend_from_slice(rest);
    is_escaped
}

/// Ends the component that starts at `start`: one that is empty, `.`, `..` or longer than `most` bytes
/// is spelled otherwise, and all that are not as they were stored get a [`MARK`].
pub(super) fn end_component(out: &mut Vec<u8>, start: usize, most: usize, mut is_escaped: bool) {
    match out.get(start..) {
        Some([]) => {
            out.push(b'%');
            is_escaped = true;
        }
        Some([b'.'] | [b'.', b'.']) => {
            let rest = out.split_off(start + 1);
            out.truncate(start);
            push_byte(out, b'.');
            out.extend_from_slice(&rest);
            is_escaped = true;
        }
        _ => {}
    }
    if out.get(start..).is_some_and(|name| name.contains(&PERCENT)) {
        let name = out.split_off(start);
        for byte in name {
            match byte {
                PERCENT if is_escaped => push_byte(out, b'%'),
                PERCENT => out.push(b'%'),
                byte => out.push(byte),
            }
        }
    }
    if is_escaped {
        out.insert(start, MARK);
    }
    let len = out.len() - start - usize::from(is_escaped);
    if len > most || is_escaped && len > MARKED_MAX.min(most) {
        // With the mark, so that what was escaped has another digest than what was stored like that.
        shorten(out, start, MARKED_MAX.min(most));
        if !is_escaped {
            out.insert(start, MARK);
        }
    }
}

/// Cuts the name that starts at `start` to at most `most` bytes: its first characters, `~` with 16
/// digits of its SHA-256, and its ending.
pub fn shorten(out: &mut Vec<u8>, start: usize, most: usize) {
    let name = out.split_off(start.min(out.len()));
    let digest = Sha256Digest::of(&name).to_string();
    let digest = digest.get(..16).unwrap_or(&digest);
    let ending = ending_of(&name);
    let room = most.saturating_sub(1 + digest.len() + ending.len());
    // Not inside a character.
    let cut = (0..=room.min(name.len()))
        .rev()
        .find(|at| name.get(*at).is_none_or(|byte| byte & 0xC0 != 0x80));
    out.extend_from_slice(name.get(..cut.unwrap_or(0)).unwrap_or_default());
    out.push(b'~');
    out.extend_from_slice(digest.as_bytes());
    out.extend_from_slice(ending);
}

/// The ending of a name, with its dot; empty where it has none that is plain and short.
fn ending_of(name: &[u8]) -> &[u8] {
    let dot = name.iter().rposition(|byte| *byte == b'.');
    let ending = dot.filter(|at| *at > 0).and_then(|at| name.get(at..));
    ending
        .filter(|ending| (2..=ENDING_MAX).contains(&ending.len()))
        .filter(|ending| ending.iter().skip(1).all(u8::is_ascii_alphanumeric))
        .unwrap_or_default()
}

/// The component without its [`MARK`], and whether it had one.
#[must_use]
pub fn unmarked(component: &[u8]) -> (&[u8], bool) {
    match component.strip_prefix(&[MARK]) {
        Some(rest) => (rest, true),
        None => (component, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::NAME_MAX;

    fn component(text: &str) -> Vec<u8> {
        let mut out = b"before/".to_vec();
        let start = out.len();
        let is_escaped = push_text(&mut out, text);
        end_component(&mut out, start, NAME_MAX, is_escaped);
        out.split_off(start)
    }

    #[test]
    fn only_what_no_name_can_be_is_spelled_otherwise() {
        for text in [
            "a",
            ".zarray",
            "...",
            ".a",
            "%",
            "%2E",
            "New%20York",
            "a\nb",
            "\x1b[31m",
            "\u{202e}x",
            "é",
            " ",
            &"x".repeat(255),
        ] {
            assert_eq!(component(text), text.as_bytes(), "{text:?}");
        }
        for (text, escaped) in [
            ("", "%"),
            (".", "%2E"),
            ("..", "%2E."),
            ("a/b", "a%2Fb"),
            ("/", "%2F"),
            ("a\0", "a%00"),
            ("a%2F/", "a%252F%2F"),
            ("a/%2F", "a%2F%252F"),
        ] {
            assert_eq!(
                component(text),
                [b"\0", escaped.as_bytes()].concat(),
                "{text:?}"
            );
        }
    }

    #[test]
    fn long_names_are_cut_distinct_and_keep_their_ending() {
        let names = [
            "x".repeat(256),
            "x".repeat(257),
            "é".repeat(200),
            format!("{}.tar.gz", "y".repeat(300)),
            format!("{}.no ending", "y".repeat(300)),
            format!("{}/", "z".repeat(240)),
            format!(".{}", "e".repeat(255)),
        ];
        let cut: Vec<_> = names.iter().map(|name| component(name)).collect();
        for (n, name) in cut.iter().enumerate() {
            let (name, marked) = unmarked(name);
            assert!(marked && name.len() <= MARKED_MAX && name.len() > 200);
            assert!(std::str::from_utf8(name).is_ok());
            assert!(!cut[..n].contains(&cut[n]));
        }
        assert!(cut[3].ends_with(b".gz") && !cut[4].ends_with(b"ending"));
        assert_eq!(component(&names[0]), cut[0], "the same each time");
    }
}
