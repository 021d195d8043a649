//! `/.control/verify`: a check of everything behind the running mount, by the code of
//! `datasetrt verify`. What it finds wrong is listed and not served any more.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::control::later_than;
use super::damage::MOST_LISTED;
use super::log_limit::LineKind;
use super::names::parse_decimal;
use super::payloads::{Payloads, Reservation};
use super::{Ino, Mounted, Node, Vfs, VfsError, Written};
use crate::error::{Error, json_pretty};
use crate::verify::{
    CacheSummary, Event, Finding, Held, Kind, Memory, Options, Severity, Verification,
};

/// Findings that a report lists; more are counted.
const MOST_FINDINGS: usize = 10_000;

/// What the kernel keeps of a node and is not right any more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stale {
    /// Its attributes.
    Attributes,
    /// Its attributes and its bytes.
    Everything,
}

/// Tells the kernel to forget what it keeps of a node.
#[derive(Default)]
pub(super) struct Forget(OnceLock<Box<dyn Fn(Ino, Stale) + Send + Sync>>);

impl std::fmt::Debug for Forget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Forget {{ set: {} }}", self.0.get().is_some())
    }
}

impl Forget {
    /// Does so, if there is a kernel to tell.
    pub(super) fn forget(&self, ino: Ino, stale: Stale) {
        if let Some(forget) = self.0.get() {
            forget(ino, stale);
        }
    }
}

/// The one check that may run at a time, and the report of the last.
#[derive(Debug)]
pub(super) struct Scrub {
    /// Bytes per second; 0 without a limit.
    rate: u64,
    state: Mutex<State>,
    /// Signalled when a run is to stop, and when it has ended.
    turned: Condvar,
    /// Grows when a run starts and when it ends.
    changes: AtomicU64,
}

#[derive(Debug)]
struct State {
    run: Option<Arc<Run>>,
    /// JSON of the last run, written once: it may be long, and is looked at often.
    report: Arc<[u8]>,
    /// What the file held when it was last looked at.
    shown: Arc<[u8]>,
    /// Since when.
    since: SystemTime,
}

/// A run, as far as it has come.
#[derive(Debug)]
struct Run {
    target: Target,
    started: SystemTime,
    stop: AtomicBool,
    bytes: AtomicU64,
    total: AtomicU64,
    damage: AtomicU64,
    warnings: AtomicU64,
}

/// What is checked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Target {
    All,
    Cache(u64),
}

fn json_text(value: &Value) -> Arc<[u8]> {
    (json_pretty(value) + "\n").into_bytes().into()
}

enum Command {
    Start(Target),
    Stop,
}

fn parse(word: &[u8]) -> Option<Command> {
    let word = word.trim_ascii();
    match word {
        b"all" => Some(Command::Start(Target::All)),
        b"stop" => Some(Command::Stop),
        _ => {
            let id = parse_decimal(std::str::from_utf8(word).ok()?.as_ref())?;
            Some(Command::Start(Target::Cache(id)))
        }
    }
}

impl Scrub {
    pub(super) fn new(rate: u64, started: SystemTime) -> Self {
        Self {
            rate,
            state: Mutex::new(State {
                run: None,
                report: json_text(&json!({"state": "never run"})),
                shown: Arc::default(),
                since: started,
            }),
            turned: Condvar::new(),
            changes: AtomicU64::new(0),
        }
    }

    /// A number that differs after each start and each end.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// JSON, and since when the file holds it: how far the run is, or the report of the last.
    pub(super) fn text(&self) -> (Arc<[u8]>, SystemTime) {
        let mut state = self.lock();
        let text = match &state.run {
            Some(run) => json_text(&run.facts("running")),
            None => Arc::clone(&state.report),
        };
        if !Arc::ptr_eq(&state.shown, &text) && state.shown != text {
            state.shown = text;
            state.since = later_than(state.since);
        }
        (Arc::clone(&state.shown), state.since)
    }

    /// Gives the file a later time: the kernel may have put what was written into its pages, and
    /// drops them by this.
    fn touch(&self) {
        let mut state = self.lock();
        state.since = later_than(state.since);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a new run, unless one is running.
    fn begin(&self, target: Target) -> Option<Arc<Run>> {
        let mut state = self.lock();
        if state.run.is_some() {
            return None;
        }
        let run = Arc::new(Run {
            target,
            started: SystemTime::now(),
            stop: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            total: AtomicU64::new(0),
            damage: AtomicU64::new(0),
            warnings: AtomicU64::new(0),
        });
        state.run = Some(Arc::clone(&run));
        self.changes.fetch_add(1, Ordering::Relaxed);
        Some(run)
    }

    fn end(&self, report: &Value) {
        let report = json_text(report);
        let mut state = self.lock();
        state.run = None;
        state.report = report;
        self.changes.fetch_add(1, Ordering::Relaxed);
        drop(state);
        self.turned.notify_all();
    }

    /// Has the run end, if there is one, and waits for that.
    fn stop(&self) {
        let mut state = self.lock();
        while let Some(run) = &state.run {
            run.stop.store(true, Ordering::Relaxed);
            self.turned.notify_all();
            state = self
                .turned
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until `until`, or until the run is to stop.
    fn wait_until(&self, run: &Run, until: Instant) {
        let mut state = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || run.stop.load(Ordering::Relaxed) {
                return;
            }
            (state, _) = self
                .turned
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Run {
    fn facts(&self, state: &str) -> Value {
        json!({
            "state": state,
            "target": match self.target {
                Target::All => json!("all"),
                Target::Cache(id) => json!(id),
            },
            "seconds": self.started.elapsed().unwrap_or_default().as_secs(),
            "bytes": self.bytes.load(Ordering::Relaxed),
            "total_bytes": self.total.load(Ordering::Relaxed),
            "damage": self.damage.load(Ordering::Relaxed),
            "warnings": self.warnings.load(Ordering::Relaxed),
        })
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A run on its thread. Dropped without a report, by a panic, it ends the run as failed.
struct Running {
    vfs: Arc<Vfs>,
    run: Arc<Run>,
    done: bool,
}

impl Running {
    fn end(mut self, report: Value) {
        self.done = true;
        self.vfs.scrub.end(&report);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.done {
            self.vfs.scrub.end(&self.run.facts("failed"));
        }
    }
}

/// Bytes at no more than a number per second. A pause is not made up for.
struct Limiter {
    rate: u64,
    next: Mutex<Instant>,
}

impl Limiter {
    /// When to go on after `bytes` more; `None` for at once.
    fn take(&self, bytes: u64) -> Option<Instant> {
        if self.rate == 0 || bytes == 0 {
            return None;
        }
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let from = (*next).max(Instant::now());
        *next = from.checked_add(cost).unwrap_or(from);
        Some(*next)
    }
}

impl Held for Reservation {}

impl Memory for Payloads {
    fn take(&self, len: u64) -> Option<Box<dyn Held + '_>> {
        let reserved = self.reserve(len)?;
        Some(Box::new(reserved))
    }
}

/// What a run has found so far.
#[derive(Default)]
struct Found {
    findings: Vec<Finding>,
    /// Findings that there was no room for.
    unlisted: u64,
    caches: Vec<CacheSummary>,
    /// The damaged samples, by slot.
    samples: HashSet<(u64, u64)>,
}

impl Vfs {
    /// From now on calls `forget` with each node of which the kernel may keep what is not right any
    /// more. With [`Stale::Everything`] it is called from threads that serve no request.
    pub fn on_forget(&self, forget: impl Fn(Ino, Stale) + Send + Sync + 'static) {
        // The first one stays: there is one mount.
        let _ = self.forget.0.set(Box::new(forget));
    }

    /// Takes what was written to the control file as one whole command.
    pub(super) fn command_scrub(self: &Arc<Self>, word: &[u8]) -> Result<Written, VfsError> {
        self.scrub.touch();
        match parse(word).ok_or(VfsError::BadControlWord)? {
            Command::Stop => {
                let vfs = Arc::clone(self);
                Ok(Written::Later(Box::new(move || {
                    vfs.scrub.stop();
                    Ok(())
                })))
            }
            Command::Start(Target::Cache(id)) if self.caches.by_id(id).is_none() => {
                Err(VfsError::BadControlWord)
            }
            Command::Start(target) => self.start_scrub(target).map(|()| Written::All),
        }
    }

    fn start_scrub(self: &Arc<Self>, target: Target) -> Result<(), VfsError> {
        let run = self.scrub.begin(target).ok_or(VfsError::Busy)?;
        let running = Running {
            vfs: Arc::clone(self),
            run,
            done: false,
        };
        let started = thread::Builder::new()
            .name("scrub".to_owned())
            .spawn(move || {
                let (vfs, run) = (Arc::clone(&running.vfs), Arc::clone(&running.run));
                running.end(vfs.check_everything(&run));
            });
        started.map(drop).map_err(|source| {
            let error = Error::io(".control/verify", "start a thread", source);
            log::error!("{}", error.chain());
            VfsError::Damaged(Arc::new(error))
        })
    }

    /// Has a running check end, and does not wait for that: the disk that it reads may hang.
    pub fn stop_scrub(&self) {
        if let Some(run) = &self.scrub.lock().run {
            run.stop.store(true, Ordering::Relaxed);
        }
        self.scrub.turned.notify_all();
    }

    fn check_everything(&self, run: &Run) -> Value {
        let targets: Vec<&Mounted> = self
            .caches
            .iter()
            .filter(|mounted| match run.target {
                Target::All => true,
                Target::Cache(id) => mounted.entry.cache_id == id,
            })
            .collect();
        log::info!("check of {} caches started", targets.len());
        let options = Options {
            quick: false,
            // One: the others belong to the readers.
            jobs: std::num::NonZeroUsize::new(1),
        };
        let entries = targets.iter().map(|mounted| &mounted.entry);
        let verification = Verification::in_use(entries, options);
        run.total.store(verification.work_len(), Ordering::Relaxed);
        let limiter = Limiter {
            rate: self.scrub.rate,
            next: Mutex::new(Instant::now()),
        };
        let pace = |bytes| {
            run.bytes.fetch_add(bytes, Ordering::Relaxed);
            if let Some(next) = limiter.take(bytes) {
                self.scrub.wait_until(run, next);
            }
            match run.is_stopped() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let mut found = Found::default();
        verification.run_while(&pace, &self.payloads, &mut |event| match event {
            Event::Finding(finding) => self.take_finding(run, finding, &mut found),
            Event::Cache(summary) => found.caches.push(summary),
        });
        let ended = match run.is_stopped() {
            true => "stopped",
            false => "done",
        };
        if !run.is_stopped() {
            targets
                .iter()
                .for_each(|mounted| self.heal_all(mounted, &found));
        }
        let damage = run.damage.load(Ordering::Relaxed);
        let level = match damage {
            0 => log::Level::Info,
            _ => log::Level::Error,
        };
        log::log!(level, "check {ended}: {damage} findings of damage");
        let mut report = run.facts(ended);
        if let Some(report) = report.as_object_mut() {
            report.insert("findings".to_owned(), json!(found.findings));
            report.insert("unlisted_findings".to_owned(), json!(found.unlisted));
            report.insert("caches".to_owned(), json!(found.caches));
        }
        report
    }

    /// Lists what is damaged, and has the kernel forget what it keeps of it.
    fn take_finding(&self, run: &Run, finding: Finding, found: &mut Found) {
        let count = match finding.severity {
            Severity::Damage => &run.damage,
            Severity::Warning => &run.warnings,
        };
        count.fetch_add(1, Ordering::Relaxed);
        let mounted = finding.cache_id.and_then(|id| self.caches.by_id(id));
        if let (Severity::Damage, Some(mounted)) = (finding.severity, mounted) {
            let message = message(&finding);
            if self.may_log(mounted.slot(), LineKind::Damaged) {
                log::error!("cache {}: {message}", mounted.entry.cache_id);
            }
            let mut damaged = |sample| self.take_damaged(mounted, sample, &message, found);
            match finding.sample {
                Some(sample) => damaged(sample),
                None if finding.kind == Kind::Checksum => {
                    samples_in(mounted, &finding).for_each(&mut damaged);
                    if mounted.cache().table().is_err() {
                        self.forget_tables(mounted);
                    }
                }
                // It does not say which samples, and they are served as long as they are right.
                None => {}
            }
        }
        match found.findings.len() < MOST_FINDINGS {
            true => found.findings.push(finding),
            false => found.unlisted += 1,
        }
    }

    fn take_damaged(&self, mounted: &Mounted, sample: u64, message: &str, found: &mut Found) {
        let slot = mounted.slot();
        self.damage.note(slot, sample, message.to_owned());
        if found.samples.len() < MOST_LISTED {
            found.samples.insert((slot, sample));
        }
        let ino = self.ino(Node::Sample(slot, sample));
        self.forget.forget(ino, Stale::Everything);
    }

    /// Has the kernel forget the files that hold values of the cache's metadata.
    fn forget_tables(&self, mounted: &Mounted) {
        let views = (0..self.view_count()).filter_map(|view| u32::try_from(view).ok());
        let nodes = [Node::Metadata(mounted.slot()), Node::JoinedTable];
        for node in nodes.into_iter().chain(views.map(Node::ViewLines)) {
            self.forget.forget(self.ino(node), Stale::Everything);
        }
    }

    /// Takes samples from the list that were found right.
    fn heal_all(&self, mounted: &Mounted, found: &Found) {
        if found.samples.len() >= MOST_LISTED {
            return;
        }
        let slot = mounted.slot();
        for sample in self.damage.samples(slot) {
            if !found.samples.contains(&(slot, sample)) {
                self.heal(slot, sample);
            }
        }
    }
}

/// The finding as a line of `/.control/damaged` says it, without the sample.
fn message(finding: &Finding) -> String {
    let offset = finding
        .offset
        .map_or_else(String::new, |offset| format!(" at offset {offset}"));
    format!(
        "{}: {}{offset}: expected {}, found {}",
        finding.file.display(),
        finding.kind.words(),
        finding.expected,
        finding.found
    )
}

/// The samples whose bytes depend on the file of a finding: those of a shard, or all.
fn samples_in<'a>(mounted: &'a Mounted, finding: &Finding) -> impl Iterator<Item = u64> + 'a {
    let cache = mounted.cache();
    let mut shards = 0..cache.manifest().shards.len();
    let shard = shards.find(|shard| cache.shard_path(*shard) == finding.file);
    let rows = (0..).zip(cache.index().rows());
    rows.filter(move |(_, row)| shard.is_none_or(|shard| row.shard == shard as u64))
        .map(|(sample, _)| sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_commands_are_taken() {
        assert!(matches!(
            parse(b" all\n"),
            Some(Command::Start(Target::All))
        ));
        assert!(matches!(parse(b"stop"), Some(Command::Stop)));
        assert!(matches!(
            parse(b"17\n"),
            Some(Command::Start(Target::Cache(17)))
        ));
        for bad in [
            &b""[..],
            b"\n",
            b"ALL",
            b"all all",
            b"+1",
            b"01",
            b"-1",
            b"\xff",
        ] {
            assert!(parse(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn a_limiter_spaces_bytes_and_does_not_make_up_for_a_pause() {
        let start = Instant::now();
        let limiter = Limiter {
            rate: 1000,
            next: Mutex::new(start - Duration::from_secs(100)),
        };
        let first = limiter.take(1000).unwrap();
        assert!(first >= start + Duration::from_secs(1));
        let second = limiter.take(500).unwrap();
        assert_eq!(second - first, Duration::from_millis(500));
        assert_eq!(limiter.take(0), None);
    }
}
