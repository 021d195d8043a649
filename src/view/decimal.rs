//! Numbers in decimal, without formatting: names are made of them all the time.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Spells numbers without allocating.
#[derive(Default)]
pub struct Decimal {
    digits: [u8; 20],
}

impl Decimal {
    /// The digits of `number`.
    pub fn digits(&mut self, number: u64) -> &[u8] {
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
        self.digits.get(start..).unwrap_or_default()
    }

    /// Appends the digits of `number` to `out`, after zeros that make them `width` bytes.
    pub fn push(number: u64, width: usize, out: &mut Vec<u8>) {
        let mut decimal = Self { digits: [b'0'; 20] };
        let len = decimal.digits(number).len().max(width);
        let spare = len.saturating_sub(decimal.digits.len());
        if spare > 0 {
            out.resize(out.len() + spare, b'0');
        }
        // What stands before the digits are zeros.
        let start = decimal.digits.len() - (len - spare);
        out.extend_from_slice(decimal.digits.get(start..).unwrap_or_default());
    }

    /// The name of `number`.
    pub fn name(&mut self, number: u64) -> &OsStr {
        OsStr::from_bytes(self.digits(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spelled_as_usual() {
        for number in [0, 7, 10, 99, 123_456_789, u64::MAX - 1, u64::MAX] {
            let spelled = number.to_string();
            assert_eq!(Decimal::default().digits(number), spelled.as_bytes());
            for width in [0, 1, 3, 19, 20, 21, 255] {
                let mut out = b"x".to_vec();
                Decimal::push(number, width, &mut out);
                assert_eq!(
                    String::from_utf8(out).unwrap(),
                    format!("x{number:0width$}")
                );
            }
        }
    }
}
