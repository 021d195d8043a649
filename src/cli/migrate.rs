//! `datasetrt migrate`: manifests of format 2 become format 3.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::cache_list::CacheList;
use super::output::{plain, written};
use super::tool::PROGRAM;
use super::{EXIT_REFUSED, refuse};
use crate::dataset::Dataset;
use crate::error::{Error, Result, json_line};
use crate::migrate::{
    ManifestUpdateEntry, ManifestUpdateError, ManifestUpdateReport, parse_control_word,
    preview_manifests, update_manifests,
};

// One line a paragraph: clap breaks lines where the terminal ends.
const DETAILS: &str = "\
THE ORDER OF THE LIST IS THE IDENTITY. A format-2 cache stores no id: wherever it was used, its id \
was its position in the list, counted from 0 over all caches of the list. This command writes that \
number into the manifest for good. So give the same caches, in the same order, as everything that \
already refers to their ids: saved tables, checkpoints, mounts. Nothing in a cache tells whether the \
order is the right one. A folder of caches stands for its children in the bytewise order of their \
names. Caches of format 3 count as positions and keep the id that they have. Afterwards order and \
selection are free, as every cache carries its id.

Only manifest.json is replaced, and in it only the version and the id change; mode, owner, \
attributes, ACLs and symbolic links stay. All manifests are checked before the first one is replaced. If the run fails or \
is interrupted in between, run it again with the same list in the same order: what is done stays \
done. Programs that read only format 2 cannot open a migrated cache.

Status of a manifest:
  updated             of format 3 now, safely on disk
  unchanged           was of format 3 already; its folder was synced again
  durability_unknown  of format 3 now, but not confirmed by the disk: run it again
  would_update        --dry-run: this is what would change

Exit status: 0 done; 1 refused or failed, with the reason on stderr; 2 wrong usage; 129, 130 or 143 \
ended after the current manifest by SIGHUP, Ctrl-C or SIGTERM. What was done is on stdout each time.

Examples:
  datasetrt migrate --to 3 --dry-run /data/a /data/b /data/c
      Show the id that each cache would get
  datasetrt migrate --to 3 --caches-from order.txt --json
      Migrate the list in order.txt and print the report as JSON";

/// Upgrade manifests from format 2 to format 3, each cache keeping its id
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub struct Args {
    /// The format to migrate to; 3 is the only one
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    to: u32,

    #[command(flatten)]
    list: CacheList,

    /// Check everything and show what would change, without changing it
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Print the report as one line of JSON: {"Ok":{"entries":[...]}}, or
    /// {"Err":{"path":...,"message":...,"entries":[...]}}
    #[arg(long)]
    json: bool,
}

type Outcome = std::result::Result<ManifestUpdateReport, ManifestUpdateError>;

impl Args {
    /// Runs the command.
    #[must_use]
    pub fn run(&self) -> ExitCode {
        let opened = self.list.expand().and_then(|list| Dataset::open(&list));
        // From here on a signal ends the run between two manifests; before, it ends the process.
        let watched = opened.and_then(|dataset| Ok((dataset, Interrupt::watch()?)));
        let (dataset, interrupt) = match watched {
            Ok(watched) => watched,
            Err(error) => return self.fail(&error),
        };
        let outcome = if self.dry_run {
            preview_manifests(&dataset, self.to, &interrupt.stop)
        } else {
            update_manifests(&dataset, self.to, &interrupt.stop)
        };
        self.tell(&outcome, &interrupt)
    }

    /// For a list that did not come as far as a migration.
    fn fail(&self, error: &Error) -> ExitCode {
        let outcome = Err(ManifestUpdateError {
            path: None,
            message: error.chain(),
            entries: Vec::new(),
            errno: None,
        });
        self.tell(&outcome, &Interrupt::default())
    }

    fn tell(&self, outcome: &Outcome, interrupt: &Interrupt) -> ExitCode {
        let text = if self.json {
            // Text and numbers only: this has a spelling.
            json_line(outcome) + "\n"
        } else {
            table(match outcome {
                Ok(report) => &report.entries,
                Err(error) => &error.entries,
            })
        };
        let printed = io::stdout().lock().write_all(text.as_bytes());
        let verdict = match outcome {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => {
                refuse(PROGRAM, &error.to_string(), false);
                interrupt.exit_code(error)
            }
        };
        written(PROGRAM, printed, verdict)
    }
}

fn parse_version(text: &str) -> std::result::Result<u32, String> {
    parse_control_word(text.as_bytes()).map_err(|error| error.to_string())
}

/// One line a manifest; nothing for none.
fn table(entries: &[ManifestUpdateEntry]) -> String {
    let rows = entries.iter().map(|entry| {
        [
            entry.cache_id.to_string(),
            entry.status.name().to_owned(),
            plain(&entry.path.to_string_lossy()).into_owned(),
        ]
    });
    let head = ["CACHE_ID", "STATUS", "MANIFEST"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    if entries.is_empty() {
        return String::new();
    }
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(String::len).max().unwrap_or(0)
    };
    let (ids, statuses) = (width(0), width(1));
    rows.iter()
        .map(|[id, status, path]| format!("{id:<ids$}  {status:<statuses$}  {path}\n"))
        .collect()
}

/// The signals that end a run between two manifests.
#[derive(Debug, Default)]
struct Interrupt {
    stop: Arc<AtomicBool>,
    /// Number of the last signal; 0 for none.
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    fn watch() -> Result<Self> {
        let this = Self::default();
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            let number = usize::try_from(signal).unwrap_or(0);
            flag::register_usize(signal, Arc::clone(&this.signal), number)
                .and_then(|_| flag::register(signal, Arc::clone(&this.stop)))
                .map_err(|source| Error::io(PROGRAM, "watch for signals", source))?;
        }
        Ok(this)
    }

    fn exit_code(&self, error: &ManifestUpdateError) -> ExitCode {
        let signal = u8::try_from(self.signal.load(Ordering::Relaxed)).unwrap_or(0);
        if signal != 0 && error.errno == Some(Errno::INTR.raw_os_error()) {
            // As a shell tells that a signal ended a program.
            return ExitCode::from(128 | signal);
        }
        ExitCode::from(EXIT_REFUSED)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::migrate::ManifestStatus;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let entry = |cache_id, status, path: &str| ManifestUpdateEntry {
            path: PathBuf::from(path),
            cache_id,
            status,
        };
        let entries = [
            entry(0, ManifestStatus::Updated, "/a/manifest.json"),
            entry(u64::MAX, ManifestStatus::Unchanged, "/b\nc/manifest.json"),
        ];
        assert_eq!(
            table(&entries),
            "CACHE_ID              STATUS     MANIFEST\n\
             0                     updated    /a/manifest.json\n\
             18446744073709551615  unchanged  /b\\nc/manifest.json\n"
        );
        assert_eq!(table(&[]), "");
    }
}
