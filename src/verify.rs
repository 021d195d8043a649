//! Everything that can be checked of caches, and every damage listed: one bad sample never hides
//! another. The mount and this check agree because they use the same code: `Cache::open`, and
//! `Cache::with_record` for each sample.
//!
//! Memory does not grow with the number of samples; findings come in an order that does not depend
//! on the number of threads.

mod budget;
mod finding;
mod layout;
mod plan;
mod sample;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

pub use finding::{Finding, Kind, Severity};

use crate::cache::{Cache, DecodedSums, FileCheck};
use crate::dataset::{self, Entry, Progress};
use crate::error::{Error, Result};
use crate::format::record::Compression;
use budget::Budget;
use finding::Subject;
use layout::{Layout, Slice};
use plan::{Piece, Pieces, Plan, Work};
use sample::{SampleCheck, is_unreadable};

/// Bytes read at once while hashing.
const PIECE: usize = 1 << 20;

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
    /// Its identity in this list, when it could be opened.
    pub cache_id: Option<u64>,
    /// Number of samples, when it could be opened.
    pub samples: Option<u64>,
    /// Bytes of all its files that were hashed.
    pub bytes: u64,
    /// Findings that are damage.
    pub damage: u64,
    /// Findings that are warnings.
    pub warnings: u64,
}

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

#[derive(Debug)]
struct Opened {
    dir: PathBuf,
    /// What the structure check or the list as a whole said against it.
    refused: Vec<Finding>,
    checked: Option<Checked>,
}

#[derive(Debug)]
struct Checked {
    cache: Arc<Cache>,
    cache_id: u64,
    layout: Layout,
    sums: DecodedSums,
}

impl Verification {
    /// Checks the structure of the caches at `paths`, whose order gives the identities of format-2
    /// caches. What is wrong is told by [`Verification::run`].
    #[must_use]
    pub fn open(paths: &[PathBuf], options: Options) -> Self {
        let opened = dataset::open_each(paths);
        let doubled = dataset::duplicates(opened.iter().flatten());
        let mut caches: Vec<Opened> = paths
            .iter()
            .zip(opened)
            .map(|(path, opened)| Opened::new(path, opened))
            .collect();
        for (position, error) in doubled {
            if let Some(cache) = caches.get_mut(position) {
                cache.refuse(error);
            }
        }
        let layouts = dataset::in_parallel(caches.len(), |n| {
            let cache = caches.get(n)?.checked.as_ref()?;
            Some(Layout::scan(&cache.cache))
        });
        for (cache, layout) in caches.iter_mut().zip(layouts) {
            if let (Some(checked), Some(layout)) = (&mut cache.checked, layout) {
                checked.layout = layout;
            }
        }
        Self { options, caches }
    }

    /// Bytes that [`Verification::run`] tells its progress, about.
    #[must_use]
    pub fn work_len(&self) -> u64 {
        if self.options.quick {
            return 0;
        }
        let opened = self.caches.iter().flat_map(|cache| &cache.checked);
        opened
            .map(|checked| {
                let manifest = checked.cache.manifest();
                let shards = manifest.shards.iter();
                shards
                    .filter(|shard| shard.compression == Compression::Lz4)
                    .fold(hashed_len(&checked.cache), |sum, shard| {
                        sum.saturating_add(shard.byte_len)
                    })
            })
            .fold(0, u64::saturating_add)
    }

    /// Does all checks and tells `hear` what comes out, in the order of the list: for each cache
    /// its files, how its records lie, then each shard and its samples. `progress` hears of bytes.
    pub fn run(&self, progress: Progress<'_>, hear: &mut (dyn FnMut(Event) + Send)) {
        let mut tally = Tally {
            verification: self,
            current: None,
            hear,
        };
        let plan = Plan::new(
            self.pieces(),
            Box::new(move |piece, findings| tally.take(piece, findings)),
        );
        let budget = Budget::new();
        let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = self.options.jobs.map_or_else(cores, NonZeroUsize::get);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut buffer = Vec::new();
                    while let Some((number, piece)) = plan.take() {
                        let findings = self.work(piece, &budget, progress, &mut buffer);
                        plan.done(number, findings);
                    }
                });
            }
        });
    }

    fn pieces(&self) -> Pieces {
        let mut pieces = Pieces::default();
        for (n, cache) in self.caches.iter().enumerate() {
            if let Some(checked) = &cache.checked {
                pieces.add(n, None, [Work::Layout]);
                if !self.options.quick {
                    checked.add_pieces(n, &mut pieces);
                }
            }
            pieces.end(n);
        }
        pieces
    }

    fn start(&self, opened: &Opened) -> CacheSummary {
        let checked = opened.checked.as_ref();
        CacheSummary {
            cache: opened.dir.clone(),
            cache_id: checked.map(|checked| checked.cache_id),
            samples: checked.map(|checked| checked.cache.sample_count()),
            bytes: checked
                .filter(|_| !self.options.quick)
                .map_or(0, |checked| hashed_len(&checked.cache)),
            damage: 0,
            warnings: 0,
        }
    }

    fn work(
        &self,
        piece: &Piece,
        budget: &Budget,
        progress: Progress<'_>,
        buffer: &mut Vec<u8>,
    ) -> Vec<Finding> {
        let checked = self
            .caches
            .get(piece.cache)
            .and_then(|c| c.checked.as_ref());
        let Some(checked) = checked else {
            return Vec::new();
        };
        let cache = &*checked.cache;
        let subject = Subject::of(cache, checked.cache_id);
        let samples = SampleCheck {
            cache,
            subject,
            sums: &checked.sums,
            budget,
            progress,
        };
        match &piece.work {
            Work::Hash(check) => {
                buffer.resize(PIECE, 0);
                let mut findings = Vec::new();
                if let Err(error) = cache.check_file(*check, buffer, progress) {
                    let unreadable = is_unreadable(&error);
                    subject.add(error, None, &mut findings);
                    if let (true, FileCheck::Shard(shard)) = (unreadable, check) {
                        findings.extend(samples.unreadable(*shard, buffer));
                    }
                }
                findings
            }
            Work::Layout => checked.layout.findings(cache, subject),
            Work::Samples(range) => samples.run(range.clone(), buffer),
            Work::End => Vec::new(),
        }
    }
}

impl Opened {
    fn new(path: &Path, opened: Result<Entry>) -> Self {
        let mut cache = Self {
            dir: path.to_path_buf(),
            refused: Vec::new(),
            checked: None,
        };
        match opened {
            Ok(entry) => {
                cache.checked = Some(Checked {
                    sums: DecodedSums::new(&entry.cache),
                    layout: Layout::default(),
                    cache_id: entry.cache_id,
                    cache: entry.cache,
                });
            }
            Err(error) => cache.refuse(error),
        }
        cache
    }

    fn refuse(&mut self, error: Error) {
        let subject = Subject {
            dir: &self.dir,
            cache_id: self.checked.as_ref().map(|checked| checked.cache_id),
        };
        subject.add(error, None, &mut self.refused);
    }
}

impl Checked {
    fn add_pieces(&self, n: usize, pieces: &mut Pieces) {
        let (shards, tables): (Vec<_>, Vec<_>) = self
            .cache
            .file_checks()
            .partition(|(check, _)| matches!(check, FileCheck::Shard(_)));
        for (check, len) in tables {
            pieces.add(n, Some((Work::Hash(check), len)), []);
        }
        let slices: &[Slice] = &self.layout.slices;
        let mut slices = slices.iter().peekable();
        for (check, len) in shards {
            let mut rest = Vec::new();
            if let FileCheck::Shard(shard) = check
                && self.layout.grouped
            {
                while let Some(slice) = slices.next_if(|slice| slice.shard <= shard) {
                    rest.push(Work::Samples(slice.samples.clone()));
                }
            }
            pieces.add(n, Some((Work::Hash(check), len)), rest);
        }
        let rest = slices.map(|slice| Work::Samples(slice.samples.clone()));
        pieces.add(n, None, rest);
    }
}

fn hashed_len(cache: &Cache) -> u64 {
    let files = cache.file_checks();
    files.map(|(_, len)| len).fold(0, u64::saturating_add)
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
            &opened.checked,
            self.verification.options.quick,
        ) {
            let subject = Subject::of(&checked.cache, checked.cache_id);
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
