//! Names of the tree that spell decimal ids.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

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
}
