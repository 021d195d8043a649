//! The log: one line per event, whatever is in a path, as text, for the journal, or as JSON.

use std::env;
use std::io::{self, Write};
use std::panic;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use env_logger::{Builder, Target};
use log::{Level, LevelFilter};
use rustix::fs::fstat;
use serde::Serialize;

use super::log_file;
use super::stderr::Stderr;
use crate::error::{json_line, printable};
use crate::vfs::LogLines;

/// How much to log: each `-v` one up, `-q` errors only.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Verbosity {
    /// The number of `-v`.
    pub verbose: u8,
    /// `-q`.
    pub quiet: bool,
}

impl Verbosity {
    /// For libraries, and for us.
    fn levels(self) -> (LevelFilter, LevelFilter) {
        match (self.quiet, self.verbose) {
            (true, _) => (LevelFilter::Error, LevelFilter::Error),
            (false, 0) => (LevelFilter::Warn, LevelFilter::Info),
            (false, 1) => (LevelFilter::Warn, LevelFilter::Debug),
            (false, _) => (LevelFilter::Debug, LevelFilter::Trace),
        }
    }
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum LogFormat {
    /// For people; with a priority for the systemd journal, where stderr is one
    #[default]
    Text,
    /// One JSON object a line: time, level, program, pid, message
    Json,
}

/// What stands before a message.
#[derive(Clone, Copy, Debug)]
enum Style {
    /// The program and the level: for a terminal.
    Program,
    /// The priority in angle brackets, which the journal takes away again; see sd-daemon(3).
    Journal,
    /// The time and the level: for a file.
    Time,
    Json,
}

/// How messages on stderr look, once the log was started.
static ON_STDERR: OnceLock<Style> = OnceLock::new();

/// Where the log goes, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogOptions<'a> {
    /// How much; RUST_LOG overrides.
    pub verbosity: Verbosity,
    /// How lines look.
    pub format: LogFormat,
    /// A file to append to, instead of stderr.
    pub file: Option<&'a Path>,
    /// Where the last lines are kept as well.
    pub kept: Option<&'a Arc<LogLines>>,
}

/// Starts the log of `program`. Its level can be changed later by `log::set_max_level`.
///
/// # Errors
/// When the file cannot be opened for appending.
pub fn start_logging(program: &'static str, options: LogOptions<'_>) -> io::Result<()> {
    let (others, ours) = options.verbosity.levels();
    let mut builder = Builder::new();
    builder
        .filter_level(others)
        // The level that holds is the global one below, so that it can be raised later.
        .filter_module("datasetrt", LevelFilter::Trace);
    let asked = env::var("RUST_LOG").ok().filter(|asked| !asked.is_empty());
    if let Some(asked) = &asked {
        builder.parse_filters(asked);
    }
    let json = options.format == LogFormat::Json;
    let on_stderr = match json {
        true => Style::Json,
        false if is_journal() => Style::Journal,
        false => Style::Program,
    };
    let mut style = on_stderr;
    if let Some(file) = options.file {
        builder.target(Target::Pipe(Box::new(log_file::open(file)?)));
        style = if json { Style::Json } else { Style::Time };
    } else {
        builder.target(Target::Pipe(Box::new(Stderr)));
    }
    // A second call in one process (tests) keeps the first logger.
    let _ = ON_STDERR.set(on_stderr);
    let kept = options.kept.cloned();
    let kept_style = if json { Style::Json } else { Style::Time };
    builder.format(move |out, record| {
        let message = record.args().to_string();
        if let Some(kept) = &kept {
            kept.note(&line(kept_style, program, record.level(), &message));
        }
        writeln!(out, "{}", line(style, program, record.level(), &message))
    });
    if builder.try_init().is_ok() && asked.is_none() {
        log::set_max_level(ours);
    }
    panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        log::error!("{}", text.trim_end());
    }));
    Ok(())
}

/// Says on stderr that `program` failed, in the style of its log.
pub(super) fn say_error(program: &str, reason: &str) {
    let style = ON_STDERR.get().copied().unwrap_or(Style::Program);
    for reason in reason.lines() {
        super::say(format_args!(
            "{}",
            line(style, program, Level::Error, reason)
        ));
    }
}

#[derive(Serialize)]
struct JsonLine<'a> {
    time: &'a str,
    level: &'a str,
    program: &'a str,
    pid: u32,
    message: &'a str,
}

/// One line without its end.
fn line(style: Style, program: &str, level: Level, message: &str) -> String {
    let name = level.as_str().to_ascii_lowercase();
    match style {
        Style::Program => format!("{program}: {name}: {}", printable(message)),
        Style::Journal => {
            let priority = match level {
                Level::Error => 3,
                Level::Warn => 4,
                Level::Info => 6,
                Level::Debug | Level::Trace => 7,
            };
            format!("<{priority}>{}", printable(message))
        }
        Style::Time => format!("{} {name} {}", utc(SystemTime::now()), printable(message)),
        Style::Json => {
            let line = JsonLine {
                time: &utc(SystemTime::now()),
                level: &name,
                program,
                pid: std::process::id(),
                message,
            };
            json_line(&line)
        }
    }
}

/// Whether stderr is the journal; systemd names the device and inode of the stream it has made.
fn is_journal() -> bool {
    let Ok(stream) = env::var("JOURNAL_STREAM") else {
        return false;
    };
    let found = fstat(io::stderr());
    found.is_ok_and(|found| stream == format!("{}:{}", found.st_dev, found.st_ino))
}

/// `2026-08-07T09:05:03.120Z`, as RFC 3339 has it.
fn utc(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Days are counted from 1 March of year 0, so that a leap day is the last of its year; 400 years
    // have 146,097 days.
    let day = days + 719_468;
    let in_era = day % 146_097;
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let in_month = in_year - (153 * month + 2) / 5 + 1;
    let (month, turn) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let year = year + day / 146_097 * 400 + turn;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{in_month:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_path_cannot_forge_a_log_line() {
        for style in [Style::Program, Style::Journal, Style::Time, Style::Json] {
            assert!(!line(style, "p", Level::Warn, "a\n<0>b").contains('\n'));
        }
    }

    #[test]
    fn lines_are_as_their_readers_want_them() {
        let warned = |style| line(style, "datasetrt", Level::Warn, "it \"is\"");
        assert_eq!(warned(Style::Program), "datasetrt: warn: it \"is\"");
        assert_eq!(warned(Style::Journal), "<4>it \"is\"");
        assert!(warned(Style::Time).ends_with("Z warn it \"is\""));
        let json: serde_json::Value = serde_json::from_str(&warned(Style::Json)).unwrap();
        assert_eq!(json["message"], "it \"is\"");
        assert_eq!(json["level"], "warn");
        assert_eq!(json["program"], "datasetrt");
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.120Z"),
            (951_782_399, "2000-02-28T23:59:59.120Z"),
            (951_782_400, "2000-02-29T00:00:00.120Z"),
            (951_868_800, "2000-03-01T00:00:00.120Z"),
            (1_709_164_800, "2024-02-29T00:00:00.120Z"),
            (1_735_689_599, "2024-12-31T23:59:59.120Z"),
            (4_107_542_400, "2100-03-01T00:00:00.120Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_millis(120);
            assert_eq!(utc(time), text);
        }
    }
}
