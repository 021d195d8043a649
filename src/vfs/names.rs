//! Names of the tree: decimal ids, and source names as one path component.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Longest name of a file, in bytes.
pub(super) const NAME_MAX: usize = 255;

/// The number that a name spells in plain decimal: no sign, no leading zero.
pub(super) fn parse_decimal(name: &OsStr) -> Option<u64> {
    let digits = name.as_bytes();
    let plain = digits.iter().all(u8::is_ascii_digit)
        && (digits.len() == 1 || digits.first() != Some(&b'0'));
    if !plain {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Spells numbers without allocating.
#[derive(Default)]
pub(super) struct Decimal {
    digits: [u8; 20],
}

impl Decimal {
    /// The name of `number`.
    pub(super) fn name(&mut self, number: u64) -> &OsStr {
        let mut start = self.digits.len();
        let mut rest = number;
        for digit in self.digits.iter_mut().rev() {
            *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            start -= 1;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        OsStr::from_bytes(self.digits.get(start..).unwrap_or_default())
    }
}

/// A text as one path component, reversibly: `%`, `/`, NUL and other control characters, and a
/// leading dot become `%` and two hexadecimal digits. The empty text becomes `%`. A component that
/// would be longer than 255 bytes is `None`.
pub(super) fn escape_component(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    for (n, character) in text.chars().enumerate() {
        let unusable = matches!(character, '%' | '/') || character.is_ascii_control();
        if unusable || (n == 0 && character == '.') {
            out.push_str(&format!("%{:02X}", u32::from(character)));
        } else {
            out.push(character);
        }
    }
    if out.is_empty() {
        out.push('%');
    }
    (out.len() <= NAME_MAX).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_decimals_are_numbers() {
        for good in [0, 7, 10, 123_456_789, u64::MAX] {
            let name = good.to_string();
            assert_eq!(parse_decimal(OsStr::new(&name)), Some(good));
            assert_eq!(Decimal::default().name(good), OsStr::new(&name));
        }
        for bad in [
            "",
            "00",
            "01",
            "+0",
            "-0",
            "0x1",
            "1 ",
            "1_0",
            "18446744073709551616",
            "٣",
        ] {
            assert_eq!(parse_decimal(OsStr::new(bad)), None, "{bad:?}");
        }
    }

    #[test]
    fn escaped_names_are_one_component_and_distinct() {
        let texts = [
            "", "%", ".", "..", ".a", "a.b", "a/b", "a%2Fb", "é", "a\nb", "\0", "%25",
        ];
        let names: Vec<_> = texts
            .iter()
            .map(|text| escape_component(text).unwrap())
            .collect();
        assert_eq!(names[5], "a.b");
        assert_eq!(names[6], "a%2Fb");
        assert_eq!(names[8], "é");
        for (n, name) in names.iter().enumerate() {
            assert!(!name.is_empty() && !name.contains(['/', '\0']) && !name.starts_with('.'));
            assert!(!names[..n].contains(name), "{name}");
        }
        assert_eq!(escape_component(&"x".repeat(256)), None);
    }
}
