//! Results on stdout: numbers and texts as people read them, and readers that go away.

use std::io::{self, ErrorKind};
use std::process::ExitCode;

use super::refuse;
pub(super) use crate::error::printable as plain;

/// Exit code of a command whose last step was writing its result. A reader that has seen enough
/// and went away is success.
pub(super) fn written(program: &str, result: io::Result<()>, good: ExitCode) -> ExitCode {
    match result {
        Ok(()) => good,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => good,
        Err(error) => refuse(program, &format!("stdout: cannot write: {error}"), false),
    }
}

/// `number` with a comma before each group of three digits.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `number` of something: `1 sample`, `2 samples`.
pub(super) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(number))
}

/// A number of bytes with three digits: `12 B`, `1.23 kB`, `45.6 MB`.
pub(super) fn bytes(number: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if number < 1000 {
        return format!("{number} B");
    }
    // A display of three digits needs no more than a float has.
    #[allow(clippy::cast_precision_loss)]
    let mut value = number as f64 / 1000.0;
    let mut unit = "kB";
    for next in UNITS.iter().skip(1) {
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_bytes_have_three_digits() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(count(number), text);
        }
        for (number, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (45_600_000, "45.6 MB"),
            (999_499, "999 kB"),
            (999_600, "1.00 MB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(bytes(number), text);
        }
        assert_eq!(counted(1, "sample"), "1 sample");
        assert_eq!(counted(2000, "sample"), "2,000 samples");
    }
}
