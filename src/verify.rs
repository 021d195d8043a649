//! Everything that can be checked of caches, and every damage listed: one bad sample never hides
//! another. The mount and this check agree because they use the same code: `Cache::open`, and
//! `Cache::with_record` for each sample.
//!
//! Memory does not grow with the number of samples; findings come in an order that does not depend
//! on the number of threads.

mod budget;
mod finding;
mod layout;
mod opened;
mod plan;
mod sample;

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

pub use budget::{Held, Memory};
pub use finding::{Finding, Kind, Severity};

use crate::cache::FileCheck;
use crate::dataset::{self, Entry, Progress};
use crate::error::{Result, id_twice};
use crate::parallel::in_parallel;
use crate::storage;
use budget::Budget;
use opened::Opened;
use plan::{Piece, Pieces, Plan, Work};
use sample::{SampleCheck, is_unreadable};

/// How much is checked, and by how many threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The structure only: no payload byte is read, no sum computed.
    pub quick: bool,
    /// Number of threads; all cores without it.
    pub jobs: Option<NonZeroUsize>,
}

/// The outcome for one cache.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct CacheSummary {
    /// The folder, as it was given.
    #[serde(serialize_with = "finding::as_text")]
    pub cache: PathBuf,
    /// Its identity in this list, when its manifest can be read. In JSON also the string `id`.
    #[serde(flatten, serialize_with = "id_twice")]
    pub cache_id: Option<u64>,
    /// Number of samples that were checked; `None` when the cache is refused.
    pub samples: Option<u64>,
    /// Bytes of all its files that were hashed.
    pub bytes: u64,
    /// Findings that are damage.
    pub damage: u64,
    /// Findings that are warnings.
    pub warnings: u64,
}

/// Hears of bytes as they are read, may take its time, and says whether to go on. Called from many
/// threads.
pub type Pace<'a> = &'a (dyn Fn(u64) -> ControlFlow<()> + Sync);

/// What [`Verification::run`] tells, in order: the findings of a cache, then its summary.
#[derive(Debug)]
pub enum Event {
    /// Something is wrong.
    Finding(Finding),
    /// A cache is done.
    Cache(CacheSummary),
}

/// Caches opened to be checked.
#[derive(Debug)]
pub struct Verification {
    options: Options,
    caches: Vec<Opened>,
}

impl Verification {
    /// Checks the structure of the caches at `paths`, whose order gives the identities of format-2
    /// caches. What is wrong is told by [`Verification::run`].
    #[must_use]
    pub fn open(paths: &[PathBuf], options: Options) -> Self {
        let opened = dataset::open_each(paths);
        let doubled = dataset::duplicates(opened.iter().flatten());
        let opened: Vec<Mutex<Option<Result<Entry>>>> = opened
            .into_iter()
            .map(|opened| Mutex::new(Some(opened)))
            .collect();
        let caches = in_parallel(paths.len(), |n| {
            let opened = opened.get(n)?.lock();
            let opened = opened.unwrap_or_else(PoisonError::into_inner).take()?;
            Some(Opened::new(paths.get(n)?, n as u64, opened))
        });
        let mut caches: Vec<Opened> = caches.into_iter().flatten().collect();
        for (position, error) in doubled {
            if let Some(cache) = caches.get_mut(position) {
                cache.refuse(error);
            }
        }
        Self { options, caches }
    }

    /// Takes caches that are in use. What comes out of hashing them is known to them afterwards
    /// ([`crate::cache::Cache::verified`]).
    #[must_use]
    pub fn in_use<'a>(entries: impl IntoIterator<Item = &'a Entry>, options: Options) -> Self {
        Self {
            options,
            caches: entries.into_iter().map(Opened::in_use).collect(),
        }
    }

    /// Bytes that [`Verification::run`] tells its progress, about.
    #[must_use]
    pub fn work_len(&self) -> u64 {
        if self.options.quick {
            return 0;
        }
        let caches = self.caches.iter();
        caches.fold(0, |sum, cache| sum.saturating_add(cache.work_len()))
    }

    /// Does all checks and tells `hear` what comes out, in the order of the list: for each cache
    /// its files, how its records lie, then each shard and its samples. `progress` hears of bytes.
    pub fn run(&self, progress: Progress<'_>, hear: &mut (dyn FnMut(Event) + Send)) {
        let pace = |bytes| {
            progress(bytes);
            ControlFlow::Continue(())
        };
        self.run_while(&pace, &Budget::new(), hear);
    }

    /// [`Verification::run`] for as long as `pace` says so, with `memory` for large payloads. Summaries
    /// of caches that were not checked to their end are not told.
    pub fn run_while(
        &self,
        pace: Pace<'_>,
        memory: &dyn Memory,
        hear: &mut (dyn FnMut(Event) + Send),
    ) {
        let mut tally = Tally {
            verification: self,
            current: None,
            hear,
        };
        let plan = Plan::new(
            self.pieces(),
            Box::new(move |piece, findings| tally.take(piece, findings)),
        );
        let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = self.options.jobs.map_or_else(cores, NonZeroUsize::get);
        let work = || {
            let mut buffer = Vec::new();
            while let Some((number, piece)) = plan.take() {
                let findings = self.work(piece, memory, pace, &mut buffer);
                plan.done(number, findings);
                if pace(0).is_break() {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
    }

    fn pieces(&self) -> Pieces {
        let mut pieces = Pieces::default();
        for (n, cache) in self.caches.iter().enumerate() {
            cache.add_pieces(n, self.options.quick, &mut pieces);
        }
        pieces
    }

    fn start(&self, opened: &Opened) -> CacheSummary {
        let checked = opened.checked();
        CacheSummary {
            cache: opened.dir.clone(),
            cache_id: opened.cache_id,
            samples: checked.map(|checked| checked.cache.sample_count()),
            bytes: match self.options.quick {
                true => 0,
                false => opened.hashed_len(),
            },
            damage: 0,
            warnings: 0,
        }
    }

    fn work(
        &self,
        piece: &Piece,
        memory: &dyn Memory,
        pace: Pace<'_>,
        buffer: &mut Vec<u8>,
    ) -> Vec<Finding> {
        let Some(opened) = self.caches.get(piece.cache) else {
            return Vec::new();
        };
        let subject = opened.subject();
        let samples = opened.checked().map(|checked| SampleCheck {
            cache: &checked.cache,
            subject,
            sums: &checked.sums,
            memory,
            pace,
        });
        let mut findings = Vec::new();
        match (&piece.work, samples, opened.checked()) {
            (Work::Hash(check), samples, _) => {
                if let Err(error) = opened.check_file(*check, buffer, pace)
                    && pace(0).is_continue()
                {
                    let unreadable = is_unreadable(&error);
                    subject.add(error, None, &mut findings);
                    if let (true, FileCheck::Shard(shard), Some(samples)) =
                        (unreadable, check, samples)
                    {
                        findings.extend(samples.unreadable(*shard, buffer));
                    }
                }
            }
            (Work::Layout, _, Some(checked)) => {
                findings = checked.layout.findings(&checked.cache, subject);
            }
            (Work::Samples(range), Some(samples), _) => {
                findings = storage::with_window(|| samples.run(range.clone(), buffer));
            }
            _ => {}
        }
        findings
    }
}

/// Counts the findings of the cache whose turn it is and passes them on.
struct Tally<'a> {
    verification: &'a Verification,
    current: Option<(usize, CacheSummary)>,
    hear: &'a mut (dyn FnMut(Event) + Send),
}

impl Tally<'_> {
    fn take(&mut self, piece: &Piece, findings: Vec<Finding>) {
        let Some(opened) = self.verification.caches.get(piece.cache) else {
            return;
        };
        let (mut summary, first) = match self.current.take() {
            Some((n, summary)) if n == piece.cache => (summary, Vec::new()),
            _ => (self.verification.start(opened), opened.refused.clone()),
        };
        let mut last = Vec::new();
        if let (Work::End, Some(checked), false) = (
            &piece.work,
            opened.checked(),
            self.verification.options.quick,
        ) {
            let subject = opened.subject();
            for error in checked.sums.mismatches(&checked.cache) {
                subject.add(error, None, &mut last);
            }
        }
        for finding in first.into_iter().chain(findings).chain(last) {
            match finding.severity {
                Severity::Damage => summary.damage += 1,
                Severity::Warning => summary.warnings += 1,
            }
            (self.hear)(Event::Finding(finding));
        }
        match piece.work {
            Work::End => (self.hear)(Event::Cache(summary)),
            _ => self.current = Some((piece.cache, summary)),
        }
    }
}
