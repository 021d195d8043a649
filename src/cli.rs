//! What the commands share: exit codes, logging, sizes.

pub mod cache_list;
pub mod cat;
pub mod demo;
pub mod info;
pub mod ls;
pub mod migrate;
pub mod mount;
mod output;
pub mod pack;
pub mod tool;
pub mod verify;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::panic;
use std::path::Path;
use std::process::ExitCode;

use env_logger::{Builder, Env, Target};
use log::LevelFilter;

/// Damage was found, or the work was refused.
pub const EXIT_REFUSED: u8 = 1;
/// The command line is wrong.
pub const EXIT_USAGE: u8 = 2;

/// How much to log: each `-v` one up, `-q` errors only.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Verbosity {
    /// The number of `-v`.
    pub verbose: u8,
    /// `-q`.
    pub quiet: bool,
}

impl Verbosity {
    fn levels(self) -> (LevelFilter, LevelFilter) {
        match (self.quiet, self.verbose) {
            (true, _) => (LevelFilter::Error, LevelFilter::Error),
            (false, 0) => (LevelFilter::Warn, LevelFilter::Info),
            (false, 1) => (LevelFilter::Warn, LevelFilter::Debug),
            (false, _) => (LevelFilter::Debug, LevelFilter::Trace),
        }
    }
}

/// Sends the log of `program` to `file`, or to stderr when there is none: one line per event,
/// whatever is in a path. RUST_LOG overrides `verbosity`.
///
/// # Errors
/// When `file` cannot be opened for appending.
pub fn start_logging(
    program: &'static str,
    verbosity: Verbosity,
    file: Option<&Path>,
) -> io::Result<()> {
    let (others, ours) = verbosity.levels();
    let mut builder = Builder::new();
    builder
        .filter_level(others)
        .filter_module("datasetrt", ours);
    builder.parse_env(Env::default());
    if let Some(file) = file {
        let file = OpenOptions::new().create(true).append(true).open(file)?;
        builder.target(Target::Pipe(Box::new(file)));
        builder.format(|out, record| {
            let level = record.level().as_str().to_ascii_lowercase();
            let time = out.timestamp_millis();
            writeln!(
                out,
                "{time} {level} {}",
                one_line(&record.args().to_string())
            )
        });
    } else {
        builder.format(move |out, record| {
            let level = record.level().as_str().to_ascii_lowercase();
            writeln!(
                out,
                "{program}: {level}: {}",
                one_line(&record.args().to_string())
            )
        });
    }
    // A second call in one process (tests) keeps the first logger.
    let _ = builder.try_init();
    panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        log::error!("{}", text.trim_end());
    }));
    Ok(())
}

/// `text` without line breaks, so that no file name can forge a line of the log.
fn one_line(text: &str) -> String {
    text.replace('\n', "\\n").replace('\r', "\\r")
}

/// Says on stderr why `program` could not do its work, and gives the exit code for it. `logged` is
/// for the case that a log file is to have the reason as well.
pub fn refuse(program: &str, reason: &str, logged: bool) -> ExitCode {
    if logged {
        log::error!("{reason}");
    }
    for line in reason.lines() {
        eprintln!("{program}: error: {line}");
    }
    ExitCode::from(EXIT_REFUSED)
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

    #[test]
    fn a_path_cannot_forge_a_log_line() {
        assert_eq!(one_line("a\nb\r"), "a\\nb\\r");
    }
}
