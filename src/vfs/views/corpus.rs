//! All samples of a mount under one number each, and the extensions of their payloads.
//!
//! A sample's ordinal counts through the caches in the order of the list, so that ordinals in order
//! are samples in the order in which they lie on disk.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::dataset::Entry;
use crate::format::metadata::{Field, FieldKind, ValueRef};
use crate::parallel::in_parallel;
use crate::view::{self, Extensions, PATH, Subject};

/// Samples whose extensions are found together, by all cores.
const AHEAD: usize = 1024;
/// Samples that one thread looks at before it takes the next ones.
const STEP: usize = 64;

/// The samples of one list of caches.
#[derive(Debug)]
pub(super) struct Corpus {
    entries: Vec<Entry>,
    /// Ordinal of each cache's first sample, and the number of all samples at the end.
    starts: Vec<u32>,
    /// By ordinal: 0 for one that nobody has looked at, else a place in `names` plus one.
    /// By cache: the column with the paths that the samples had when they were packed.
    paths: Vec<Option<usize>>,
    codes: OnceLock<Box<[AtomicU8]>>,
    names: Box<[OnceLock<&'static str>]>,
}

impl Corpus {
    /// `None` for more samples than ordinals can count.
    pub(super) fn new(entries: Vec<Entry>) -> Option<Self> {
        let mut starts = vec![0];
        let mut next = 0_u32;
        for entry in &entries {
            let count = u32::try_from(entry.cache.sample_count()).ok()?;
            // The last ordinal is left free, so that the number of samples is one too.
            next = next.checked_add(count).filter(|next| *next < u32::MAX)?;
            starts.push(next);
        }
        let path_of = |entry: &Entry| {
            let schema = &entry.cache.manifest().schema;
            let is_path = |field: &Field| field.name == PATH && field.kind == FieldKind::String;
            schema.iter().position(is_path)
        };
        Some(Self {
            paths: entries.iter().map(path_of).collect(),
            entries,
            starts,
            codes: OnceLock::new(),
            names: (1..=u8::MAX).map(|_| OnceLock::new()).collect(),
        })
    }

    /// No samples at all.
    pub(super) fn none() -> Self {
        Self {
            entries: Vec::new(),
            paths: Vec::new(),
            starts: vec![0],
            codes: OnceLock::new(),
            names: Box::default(),
        }
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Places of the caches whose metadata is known to be wrong: it puts no sample anywhere.
    pub(super) fn untrusted(&self) -> Vec<usize> {
        let entries = self.entries.iter().enumerate();
        let untrusted = entries.filter(|(_, entry)| entry.cache.table().is_err());
        untrusted.map(|(cache, _)| cache).collect()
    }

    /// Number of samples.
    pub(super) fn len(&self) -> u32 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The samples of the cache at place `cache`, as ordinals.
    pub(super) fn of_cache(&self, cache: usize) -> std::ops::Range<u32> {
        let start = |at: usize| self.starts.get(at).copied().unwrap_or(0);
        start(cache)..start(cache + 1)
    }

    /// The cache that has the sample, by its place.
    fn cache_of(&self, ordinal: u32) -> Option<usize> {
        let after = self.starts.partition_point(|start| *start <= ordinal);
        after.checked_sub(1)
    }

    pub(super) fn subject(&self, ordinal: u32) -> Option<Subject<'_>> {
        self.subjects(&[ordinal]).next()
    }

    /// The samples of `ordinals`, up to one that there is not. Those in a row that are of one cache
    /// cost one search for it.
    pub(super) fn subjects(&self, ordinals: &[u32]) -> impl Iterator<Item = Subject<'_>> {
        let (mut cache, mut its_own) = (0, 0..0);
        ordinals.iter().map_while(move |ordinal| {
            if !its_own.contains(ordinal) {
                cache = self.cache_of(*ordinal)?;
                its_own = self.of_cache(cache);
            }
            Some(Subject {
                cache,
                entry: self.entries.get(cache)?,
                sample: u64::from(ordinal - its_own.start),
            })
        })
    }

    fn code(&self, subject: Subject<'_>) -> Option<&AtomicU8> {
        let codes = self.codes.get_or_init(|| {
            let len = usize::try_from(self.len()).unwrap_or(0);
            (0..len).map(|_| AtomicU8::new(0)).collect()
        });
        let start = usize::try_from(*self.starts.get(subject.cache)?).ok()?;
        codes.get(start.checked_add(usize::try_from(subject.sample).ok()?)?)
    }

    /// The extension of the path that the sample had when it was packed.
    fn stored_extension<'a>(&self, subject: Subject<'a>) -> Option<&'a str> {
        let column = (*self.paths.get(subject.cache)?)?;
        let row = subject.entry.cache.table().ok()?.row(subject.sample)?;
        match row.value(column).ok()?? {
            ValueRef::String(path) => view::extension_in(path),
            _ => None,
        }
    }

    /// Whether the sample's extension is known without its payload.
    pub(super) fn is_known(&self, subject: Subject<'_>) -> bool {
        if self.stored_extension(subject).is_some() {
            return true;
        }
        let code = self.code(subject);
        code.is_none_or(|code| code.load(Ordering::Relaxed) != 0)
    }

    /// Finds the extensions of the first of `ordinals` now: a listing then
    /// waits for the disk once for many samples, not for one after another.
    pub(super) fn look_ahead(&self, ordinals: &[u32]) {
        let ordinals = ordinals.get(..AHEAD).unwrap_or(ordinals);
        let steps: Vec<_> = ordinals.chunks(STEP).collect();
        in_parallel(steps.len(), |n| {
            for ordinal in steps.get(n).copied().unwrap_or_default() {
                if let Some(subject) = self.subject(*ordinal) {
                    self.extension(subject);
                }
            }
        });
    }
}

impl Extensions for Corpus {
    /// That of the stored path, else looked up in the payload once for each sample; what is found then
    /// stays, so that names do not change.
    fn extension<'a>(&'a self, subject: Subject<'a>) -> &'a str {
        if let Some(extension) = self.stored_extension(subject) {
            return extension;
        }
        let Some(code) = self.code(subject) else {
            return view::UNKNOWN;
        };
        let place = |code: u8| usize::from(code).checked_sub(1);
        let known = place(code.load(Ordering::Relaxed));
        if let Some(name) = known.and_then(|place| self.names.get(place)?.get()) {
            return name;
        }
        let found = sniff(subject);
        // A free place, or the one that has this extension already.
        for (number, name) in (1..=u8::MAX).zip(&self.names) {
            if *name.get_or_init(|| found) == found {
                // Whoever came first decides, also when the second look found something else.
                return match code.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed)
                {
                    Ok(_) => found,
                    Err(first) => place(first)
                        .and_then(|place| self.names.get(place)?.get())
                        .unwrap_or(&found),
                };
            }
        }
        view::UNKNOWN
    }
}

/// The extension that the payload's first bytes ask for; that of unknown ones when it cannot be
/// read, which the reader of the sample will hear about.
fn sniff(subject: Subject<'_>) -> &'static str {
    let mut room = [0; view::FIRST_LEN];
    let first = match read_start(subject, &mut room) {
        Ok(first) => view::extension_of(first),
        Err(error) => {
            log::debug!("{subject}: no extension: {}", error.chain());
            return view::UNKNOWN;
        }
    };
    if !view::is_container(first) {
        return first;
    }
    let mut room = vec![0; view::DEEP_LEN];
    read_start(subject, &mut room).map_or(first, view::extension_of)
}

fn read_start<'a>(subject: Subject<'_>, room: &'a mut [u8]) -> crate::error::Result<&'a [u8]> {
    let cache = &subject.entry.cache;
    let wanted = room.len() as u64;
    let len = cache.with_record(subject.sample, wanted, |record| record.read_start(room))??;
    Ok(room.get(..len).unwrap_or_default())
}
