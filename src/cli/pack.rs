//! `datasetrt pack`: a new cache from folders, archives or a table.

mod args;
mod progress;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

pub use args::Args;

use super::output::{bytes, counted, plain, written};
use super::tool::PROGRAM;
use super::{EXIT_USAGE, refuse, say};
use crate::error::{Error, Result, json_line};
use crate::fuse;
use crate::storage;
use crate::writer::source::Payload;
use crate::writer::source::plan::Plan;
use crate::writer::{CacheWriter, Pipeline, WriteReport, leftovers};

impl Args {
    /// Runs the command.
    #[must_use]
    pub fn run(self) -> ExitCode {
        if let Err(reason) = self.check_paths() {
            say(format_args!(
                "{PROGRAM}: error: {reason} (see {PROGRAM} pack --help)"
            ));
            return ExitCode::from(EXIT_USAGE);
        }
        let stop = match Stop::on_signals() {
            Ok(stop) => stop,
            Err(error) => {
                return refuse(
                    PROGRAM,
                    &format!("cannot watch for signals: {error}"),
                    false,
                );
            }
        };
        let start = Instant::now();
        match self.pack(&stop) {
            Ok(text) => {
                let text = text.into_line(start.elapsed());
                let printed = std::io::stdout().write_all(text.as_bytes());
                written(PROGRAM, printed, ExitCode::SUCCESS)
            }
            Err(_) if stop.signal() != 0 => {
                say(format_args!(
                    "{PROGRAM}: stopped by a signal; nothing was written"
                ));
                // 128 and the number of the signal, as shells say it.
                ExitCode::from(u8::try_from(128 + stop.signal()).unwrap_or(1))
            }
            Err(error) => refuse(PROGRAM, &error.chain(), false),
        }
    }

    fn pack(&self, stop: &Stop) -> Result<Outcome> {
        let target = self.out().join(self.name.as_str());
        if storage::exists(&target) {
            return Err(storage::already_there(&target));
        }
        for left in leftovers(self.out(), &self.name)? {
            log::warn!(
                "{}: left behind by process {}, which ended before its cache was finished; {}",
                left.dir.display(),
                left.pid,
                if self.dry_run {
                    "a run would remove it"
                } else {
                    "removing it"
                }
            );
            if !self.dry_run {
                left.remove()?;
            }
        }
        let reading = progress::reading();
        let plan = Plan::make(self.sources()?, self.plan_options()?, &|samples| {
            reading.set_position(samples);
            stop.check()
        });
        reading.finish_and_clear();
        let plan = plan?;
        warn(&plan);
        match self.dry_run {
            true => self.look(&plan, stop),
            false => self.write(&plan, stop),
        }
    }

    fn write(&self, plan: &Plan, stop: &Stop) -> Result<Outcome> {
        let fields = plan.fields().to_vec();
        let options = self.writer_options();
        let mut writer = CacheWriter::create(self.out(), self.name.as_str(), fields, options)?;
        let writing = progress::Writing::new(plan.totals().samples);
        let pipeline = Pipeline {
            jobs: self.jobs(),
            stop: &stop.asked,
            progress: &|samples, bytes| writing.add(samples, bytes),
        };
        let run = pipeline.run(&mut writer, |each| plan.visit(each));
        writing.finish();
        run?;
        let report = writer.finish_unless(&stop.asked)?;
        Ok(Outcome {
            report,
            compression: options.compression.name(),
            fields: field_texts(plan),
            dry_run: false,
            json: self.json,
        })
    }

    /// Does everything but writing: converts all metadata and looks at all payload files.
    fn look(&self, plan: &Plan, stop: &Stop) -> Result<Outcome> {
        let mut report = WriteReport {
            dir: self.out().join(self.name.as_str()),
            cache_id: crate::format::digest::cache_id_of(self.name.as_str()),
            samples: 0,
            shards: 0,
            decoded_bytes: 0,
            shard_bytes: 0,
        };
        plan.visit(&mut |work| {
            stop.check()?;
            report.samples += 1;
            report.decoded_bytes += match &work.payload {
                Payload::Bytes(bytes) => bytes.len() as u64,
                Payload::Part { len, .. } => *len,
                Payload::Spooled(file) => file.len(),
                Payload::Left => 0,
                Payload::File(path) => {
                    let file = storage::StoredFile::open(path).map_err(|error| {
                        let reason = format!("{}: {}", work.place, error.chain());
                        Error::refused(&*work.source, reason)
                    })?;
                    file.identity().len
                }
            };
            Ok(())
        })?;
        Ok(Outcome {
            report,
            compression: self.writer_options().compression.name(),
            fields: field_texts(plan),
            dry_run: true,
            json: self.json,
        })
    }
}

fn field_texts(plan: &Plan) -> Vec<(String, &'static str)> {
    let fields = plan.fields().iter();
    fields
        .map(|field| (field.name.clone(), field.kind.name()))
        .collect()
}

/// Says what is left out.
fn warn(plan: &Plan) {
    for (what, (count, first)) in &plan.totals().skipped {
        log::warn!(
            "left out: {what}, {} (the first is {first})",
            counted(*count, "time")
        );
    }
    if plan.totals().unused_rows > 0 {
        let rows = counted(plan.totals().unused_rows, "row");
        log::warn!("{rows} of the metadata table belong to no sample");
    }
}

/// Signals that ask to stop.
struct Stop {
    asked: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Stop {
    fn on_signals() -> std::io::Result<Self> {
        let stop = Self {
            asked: Arc::new(AtomicBool::new(false)),
            signal: Arc::new(AtomicUsize::new(0)),
        };
        // Under nohup a closed terminal is no reason to stop.
        let hangup = (!fuse::hangup_is_ignored()).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
            let number = usize::try_from(signal).unwrap_or(0);
            // The number first: whoever sees the request can tell what asked for it.
            signal_hook::flag::register_usize(signal, Arc::clone(&stop.signal), number)?;
            signal_hook::flag::register(signal, Arc::clone(&stop.asked))?;
        }
        Ok(stop)
    }

    fn signal(&self) -> usize {
        self.signal.load(Ordering::SeqCst)
    }

    fn check(&self) -> Result<()> {
        match self.asked.load(Ordering::Relaxed) {
            true => Err(Error::refused("", "stopped")),
            false => Ok(()),
        }
    }
}

/// What came out of it.
struct Outcome {
    report: WriteReport,
    compression: &'static str,
    fields: Vec<(String, &'static str)>,
    dry_run: bool,
    json: bool,
}

impl Outcome {
    fn into_line(self, elapsed: Duration) -> String {
        let report = &self.report;
        let dir = report.dir.display().to_string();
        if self.json {
            let fields = self.fields.iter();
            let fields: Vec<_> = fields
                .map(|(name, kind)| json!({"name": name, "kind": kind}))
                .collect();
            let line = json!({
                "cache": dir,
                "cache_id": report.cache_id,
                "id": report.cache_id.to_string(),
                "dry_run": self.dry_run,
                "samples": report.samples,
                "decoded_bytes": report.decoded_bytes,
                "shard_bytes": report.shard_bytes,
                "shards": report.shards,
                "compression": self.compression,
                "metadata_schema": fields,
                "seconds": elapsed.as_secs_f64(),
            });
            return json_line(&line) + "\n";
        }
        let fields: Vec<String> = self
            .fields
            .iter()
            .map(|(name, kind)| format!("{} {kind}", plain(name)))
            .collect();
        let fields = match fields.is_empty() {
            true => "no metadata".to_owned(),
            false => format!("metadata: {}", fields.join(", ")),
        };
        let (dir, samples) = (plain(&dir), counted(report.samples, "sample"));
        let (decoded, seconds) = (bytes(report.decoded_bytes), elapsed.as_secs_f64());
        match self.dry_run {
            true => format!(
                "would write {dir}: {samples}, {decoded}; {fields}; cache_id {}\n",
                report.cache_id
            ),
            false => format!(
                "{dir}: {samples}, {decoded} stored as {} in {} ({}); {fields}; cache_id {}; \
                 {seconds:.2} s\n",
                bytes(report.shard_bytes),
                counted(report.shards, "shard"),
                self.compression,
                report.cache_id
            ),
        }
    }
}
