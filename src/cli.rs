//! What the commands share: exit codes, logging, sizes.

pub mod cache_list;
pub mod cat;
pub mod demo;
pub mod doctor;
pub mod info;
mod log_file;
mod logging;
pub mod ls;
pub mod migrate;
pub mod mount;
mod output;
pub mod pack;
mod stderr;
pub mod tool;
pub mod top;
pub mod umount;
pub mod verify;

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use crate::error::printable;
use logging::say_error;
pub use logging::{LogFormat, LogOptions, Verbosity, start_logging};

/// Damage was found, or the work was refused.
pub const EXIT_REFUSED: u8 = 1;
/// The command line is wrong.
pub const EXIT_USAGE: u8 = 2;

/// Says on stderr why `program` could not do its work, and gives the exit code for it. `logged` is
/// for the case that a log file is to have the reason as well.
pub fn refuse(program: &str, reason: &str, logged: bool) -> ExitCode {
    if logged {
        log::error!("{reason}");
    }
    say_error(program, reason);
    ExitCode::from(EXIT_REFUSED)
}

/// Says one line on stderr. Where that is full or closed there is nobody to tell.
fn say(message: fmt::Arguments<'_>) {
    let message = message.to_string();
    let line = format!("{}\n", printable(&message));
    let _ = stderr::Stderr.write_all(line.as_bytes());
}

/// Reads a size such as `4096`, `64MiB`, `64M` (the same) or `64MB` (millions).
///
/// # Errors
/// When it is not a whole number with one of these endings, or does not fit 64 bits.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|_| format!("`{text}` does not start with a whole number"))?;
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        other => {
            return Err(format!(
                "`{other}` is not a unit (K, M, G, T, KiB, MiB, GiB, TiB, kB, MB, GB, TB)"
            ));
        }
    };
    number
        .checked_mul(factor)
        .ok_or_else(|| format!("`{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("64 MB"), Ok(64_000_000));
        assert_eq!(parse_size("0"), Ok(0));
        for bad in ["", "M", "-1", "1.5G", "1X", "99999999999T"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
