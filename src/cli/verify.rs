//! `datasetrt verify`: checks caches and lists every damage.

use std::io::{self, BufWriter, Stdout, Write};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::cache_list::CacheList;
use super::output::{bytes, counted, plain};
use super::tool::PROGRAM;
use super::{EXIT_REFUSED, refuse};
use crate::error::json_line;
use crate::verify::{CacheSummary, Event, Finding, Options, Severity, Verification};

/// The most threads that may be asked for.
const MOST_JOBS: i64 = 1024;

/// Check everything that can be checked of caches, and list every damage
///
/// Checked are the structure, every SHA-256, each record's copy of its metadata against
/// metadata.arrow, each payload, and the sums of decoded lengths. Bytes that no record uses,
/// overlapping records and shards without records are warnings. A sample is good here if and only if
/// the mount serves it.
///
/// Exit status: 0 good (with or without warnings), 1 damage, 2 wrong usage.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    caches: CacheList,
    /// Check the structure only: no payload is read and no checksum computed
    #[arg(long)]
    quick: bool,
    /// Print one JSON object: `findings`, `caches`, `damage`, `warnings`
    #[arg(long)]
    json: bool,
    /// Number of threads (default: one for each core)
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MOST_JOBS))]
    jobs: Option<u16>,
}

impl Args {
    /// Runs the command.
    #[must_use]
    pub fn run(self) -> ExitCode {
        let paths = match self.caches.expand() {
            Ok(paths) => paths,
            Err(error) => return refuse(PROGRAM, &error.chain(), false),
        };
        let options = Options {
            quick: self.quick,
            jobs: self.jobs.and_then(|jobs| NonZeroUsize::new(jobs.into())),
        };
        let verification = Verification::open(&paths, options);
        let bar = progress_bar(verification.work_len());
        let mut report = Report::new(&self, bar.clone());
        verification.run(&|bytes| bar.inc(bytes), &mut |event| report.hear(event));
        bar.finish_and_clear();
        report.finish()
    }
}

/// A bar on stderr; none when stderr is not a terminal or there is nothing to wait for.
fn progress_bar(len: u64) -> ProgressBar {
    if len == 0 {
        return ProgressBar::hidden();
    }
    let template = "{bar:32} {decimal_bytes} of {decimal_total_bytes}, {decimal_bytes_per_sec}, \
                    {eta} left";
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(len).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Prints what comes out, as it comes out.
struct Report {
    out: BufWriter<Stdout>,
    bar: ProgressBar,
    json: bool,
    quick: bool,
    findings: u64,
    damage: u64,
    warnings: u64,
    summaries: Vec<CacheSummary>,
    /// The first failure to write; nothing is written after it, but the check goes on for the sake
    /// of the exit status.
    failed: Option<io::Error>,
}

impl Report {
    fn new(args: &Args, bar: ProgressBar) -> Self {
        Self {
            out: BufWriter::new(io::stdout()),
            bar,
            json: args.json,
            quick: args.quick,
            findings: 0,
            damage: 0,
            warnings: 0,
            summaries: Vec::new(),
            failed: None,
        }
    }

    fn hear(&mut self, event: Event) {
        let text = match event {
            Event::Finding(finding) => {
                self.findings += 1;
                match finding.severity {
                    Severity::Damage => self.damage += 1,
                    Severity::Warning => self.warnings += 1,
                }
                match self.json {
                    true => self.json_finding(&finding),
                    false => line(&finding),
                }
            }
            Event::Cache(summary) if self.json => {
                self.summaries.push(summary);
                return;
            }
            Event::Cache(summary) => self.summary(&summary),
        };
        self.print(&text);
    }

    fn print(&mut self, text: &str) {
        if self.failed.is_some() {
            return;
        }
        let out = &mut self.out;
        let result = match self.bar.is_hidden() {
            true => out.write_all(text.as_bytes()),
            // Bar and results may share a terminal.
            false => self
                .bar
                .suspend(|| out.write_all(text.as_bytes()).and_then(|()| out.flush())),
        };
        self.failed = result.err();
    }

    /// Opens the list before the first finding. One finding a line, so that line tools work too.
    fn json_finding(&self, finding: &Finding) -> String {
        let before = match self.findings {
            1 => "{\"findings\": [\n",
            _ => ",\n",
        };
        // Texts and numbers always have a JSON spelling.
        let finding = json_line(finding);
        format!("{before}{finding}")
    }

    fn summary(&self, summary: &CacheSummary) -> String {
        let dir = shown(&summary.cache);
        let mut facts = Vec::new();
        facts.extend(summary.cache_id.map(|id| format!("cache_id {id}")));
        facts.push(match summary.samples {
            Some(samples) => counted(samples, "sample"),
            None => "refused as a whole, so its samples were not checked".to_owned(),
        });
        facts.push(match self.quick {
            true => "structure only".to_owned(),
            false => format!("{} hashed", bytes(summary.bytes)),
        });
        let warnings = match summary.warnings {
            0 => String::new(),
            warnings => format!(", {}", counted(warnings, "warning")),
        };
        let verdict = match summary.damage {
            0 => "good".to_owned(),
            damage => format!("DAMAGED: {}", counted(damage, "finding")),
        };
        format!("{dir}: {verdict}{warnings} ({})\n", facts.join(", "))
    }

    fn finish(mut self) -> ExitCode {
        if self.json {
            let start = match self.findings {
                0 => "{\"findings\": [",
                _ => "\n",
            };
            let rest = json!({
                "caches": self.summaries,
                "damage": self.damage,
                "warnings": self.warnings,
                "quick": self.quick,
            });
            let rest = json_line(&rest);
            let rest = rest.strip_prefix('{').unwrap_or_default();
            self.print(&format!("{start}], {rest}\n"));
        }
        if self.failed.is_none() {
            self.failed = self.out.flush().err();
        }
        let verdict = match self.damage {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::from(EXIT_REFUSED),
        };
        super::output::written(PROGRAM, self.failed.map_or(Ok(()), Err), verdict)
    }
}

fn shown(path: &Path) -> String {
    plain(&path.to_string_lossy()).into_owned()
}

/// One finding as one line.
fn line(finding: &Finding) -> String {
    let severity = match finding.severity {
        Severity::Damage => "damage",
        Severity::Warning => "warning",
    };
    let mut text = format!("{severity}: {}", shown(&finding.cache));
    if let Some(id) = finding.cache_id {
        text.push_str(&format!(" (cache_id {id})"));
    }
    if let Some(sample) = finding.sample {
        text.push_str(&format!(": sample {sample}"));
    }
    let file = finding.file.strip_prefix(&finding.cache);
    text.push_str(&format!(": {}", shown(file.unwrap_or(&finding.file))));
    if let Some(offset) = finding.offset {
        text.push_str(&format!(" at byte {offset}"));
    }
    text.push_str(&format!(
        ": {}: expected {}, found {}\n",
        finding.kind.words(),
        plain(&finding.expected),
        plain(&finding.found)
    ));
    text
}
