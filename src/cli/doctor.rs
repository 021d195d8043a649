//! `datasetrt doctor`: looks at everything that a mount needs, and says what to do where it is amiss.

mod caches;
mod mountpoint;
mod system;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{self, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use super::EXIT_REFUSED;
use super::output::{plain, written};
use super::tool::PROGRAM;
use crate::error::json_line;

// One line a paragraph: clap breaks lines where the terminal ends.
const DETAILS: &str = "\
Nothing is mounted and nothing is changed. Without paths only the machine is looked at: the FUSE \
device, fusermount3, fuse.conf, the kernel, limits, and mounts of datasetrt-mount that are dead or \
hang. With a mountpoint also that, and with caches before it, as for datasetrt-mount, also these: \
each is opened and its structure checked, but no checksum (see datasetrt verify).

ok is as it should be; warn works, or works for some; fail does not, for the user who runs this.

Exit status: 0 nothing failed; 1 something did; 2 wrong usage.

Examples:
  datasetrt doctor
  datasetrt doctor /data/caches /mnt/data
  datasetrt doctor --json /data/caches /mnt/data | jq '.checks[] | select(.status != \"ok\")'";

/// Find out why a mount does not work, before or after trying it
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_long_help = DETAILS,
    override_usage = "datasetrt doctor [--json] [[CACHES]... MOUNTPOINT]"
)]
pub struct Args {
    /// Cache folders, or folders whose children are caches; the last path is the mountpoint
    #[arg(value_name = "PATHS")]
    paths: Vec<PathBuf>,

    /// Print one JSON object: {"failed":0,"checks":[{"check":...,"status":"ok"|"warn"|"fail",
    /// "found":...,"fix":...}]}
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Warn,
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
struct Check {
    check: &'static str,
    status: Status,
    found: String,
    fix: Option<String>,
}

impl Check {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            check,
            status: Status::Ok,
            found: found.into(),
            fix: None,
        }
    }

    fn warn(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            check,
            status: Status::Warn,
            found: found.into(),
            fix: Some(fix.into()),
        }
    }

    fn fail(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            status: Status::Fail,
            ..Self::warn(check, found, fix)
        }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    failed: usize,
    checks: Vec<Check>,
}

impl Args {
    /// Runs the command.
    #[must_use]
    pub fn run(&self) -> ExitCode {
        let absolute = |path: &PathBuf| path::absolute(path).unwrap_or_else(|_| path.clone());
        let mut caches: Vec<PathBuf> = self.paths.iter().map(absolute).collect();
        let mountpoint = caches.pop();
        let mut checks = system::checks(mountpoint.as_deref());
        if let Some(mountpoint) = &mountpoint {
            let (found, opened) = caches::checks(&caches);
            checks.extend(mountpoint::checks(mountpoint, opened.as_ref()));
            checks.extend(found);
        }
        let failed = checks.iter().filter(|check| check.status == Status::Fail);
        let report = Report {
            failed: failed.count(),
            checks,
        };
        let text = match self.json {
            true => json_line(&report) + "\n",
            false => report.text(),
        };
        let code = match report.failed {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::from(EXIT_REFUSED),
        };
        written(PROGRAM, std::io::stdout().write_all(text.as_bytes()), code)
    }
}

impl Report {
    /// A line for each check, and one below it for what to do.
    fn text(&self) -> String {
        let names = self.checks.iter().map(|check| check.check.len());
        let width = names.max().unwrap_or(0);
        let mut text = String::new();
        for check in &self.checks {
            let status = match check.status {
                Status::Ok => "ok",
                Status::Warn => "warn",
                Status::Fail => "FAIL",
            };
            let _ = writeln!(
                text,
                "{status:<4}  {:<width$}  {}",
                check.check,
                plain(&check.found)
            );
            if let Some(fix) = &check.fix {
                let _ = writeln!(text, "{:<4}  {:<width$}  -> {}", "", "", plain(fix));
            }
        }
        text
    }
}
