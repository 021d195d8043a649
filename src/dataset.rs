//! The ordered list of caches: folders expanded, identities resolved, duplicates refused.

mod newcomers;
mod receipt;
mod refusals;
mod validate;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use newcomers::Newcomers;
pub use receipt::Receipts;
pub use refusals::Refusals;
pub use validate::Progress;

use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::format::{INDEX_FILE, MANIFEST_FILE, METADATA_FILE, SHARDS_DIR, STAGING_SUFFIX};
use crate::parallel::in_parallel;
use crate::storage::{self, OpenFileLimit};

/// One cache of a list.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its zero-based position in the list, counting refused caches too.
    pub position: usize,
    /// Its identity: the stored one in format 3, the position in format 2.
    pub cache_id: u64,
    /// The cache.
    pub cache: Arc<Cache>,
    /// Which of its checksums were compared when the list was opened.
    pub validated: Validated,
}

/// How far the checksums of a cache have been compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Validated {
    /// Not at all: its structure was checked.
    Structure,
    /// Those of metadata.arrow and index.bin; each shard's is, before it is first served.
    OnAccess,
    /// All.
    Checksums,
    /// All, at an earlier time; no file has changed since ([`Receipts`]).
    Receipt,
}

/// A list of caches, each opened and with an identity of its own.
#[derive(Debug)]
pub struct Dataset {
    entries: Vec<Entry>,
    skipped: Vec<Error>,
    /// By place in the list, also of those that were left out; see [`Dataset::sample_counts`].
    sample_counts: Vec<u64>,
    /// Shared by all caches of the list, and by those that join it.
    limit: Arc<OpenFileLimit>,
}

impl Dataset {
    /// Opens the caches at `paths`, in parallel. The order of `paths` gives the identities of
    /// format-2 caches.
    ///
    /// # Errors
    /// What is wrong with each refused cache ([`Error::Several`] when there are more than one), or
    /// [`Error::DuplicateCacheId`].
    pub fn open(paths: &[PathBuf]) -> Result<Self> {
        let dataset = Self::open_valid(paths)?;
        match dataset.skipped.is_empty() {
            true => Ok(dataset),
            false => Err(several(dataset.skipped)),
        }
    }

    /// As [`Dataset::open`], but leaves out caches that are refused; positions do not change by
    /// that. [`Dataset::skipped`] says what was wrong with them.
    ///
    /// # Errors
    /// [`Error::DuplicateCacheId`].
    pub fn open_valid(paths: &[PathBuf]) -> Result<Self> {
        let dataset = Self::open_listed(paths);
        match duplicates(&dataset.entries).into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(dataset),
        }
    }

    /// All that can be opened, whatever their identities.
    fn open_listed(paths: &[PathBuf]) -> Self {
        let limit = OpenFileLimit::for_process();
        let opened = open_within(paths, 0, &limit);
        let mut dataset = Self {
            entries: Vec::new(),
            skipped: Vec::new(),
            sample_counts: Vec::with_capacity(paths.len()),
            limit,
        };
        for (opened, path) in opened.into_iter().zip(paths) {
            match opened {
                Ok(entry) => {
                    dataset.sample_counts.push(entry.cache.sample_count());
                    dataset.entries.push(entry);
                }
                Err(error) => {
                    dataset.sample_counts.push(stated_count(path));
                    dataset.skipped.push(error);
                }
            }
        }
        dataset
    }

    /// As [`Dataset::open_valid`], but of caches with the same identity leaves out all but the first.
    #[must_use]
    pub fn open_skipping(paths: &[PathBuf]) -> Self {
        let mut dataset = Self::open_listed(paths);
        let (later, errors): (HashSet<usize>, Vec<Error>) =
            duplicates(&dataset.entries).into_iter().unzip();
        dataset.skipped.extend(errors);
        let entries = &mut dataset.entries;
        entries.retain(|entry| !later.contains(&entry.position));
        dataset
    }

    /// As [`Dataset::open`], but of caches with the same identity leaves out all but the first.
    ///
    /// # Errors
    /// As there, less [`Error::DuplicateCacheId`].
    pub fn open_distinct(paths: &[PathBuf]) -> Result<Self> {
        let mut dataset = Self::open_skipping(paths);
        let is_duplicate = |error: &Error| matches!(error, Error::DuplicateCacheId { .. });
        if dataset.skipped.iter().all(is_duplicate) {
            return Ok(dataset);
        }
        let skipped = std::mem::take(&mut dataset.skipped);
        let refused = skipped.into_iter().filter(|error| !is_duplicate(error));
        Err(several(refused.collect()))
    }

    /// The caches, in the order of the list.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// How many samples each cache of the list has, also those that were left out, as far as their
    /// manifests can be read.
    pub(crate) fn sample_counts(&self) -> &[u64] {
        &self.sample_counts
    }

    /// What was wrong with the caches that were left out.
    #[must_use]
    pub fn skipped(&self) -> &[Error] {
        &self.skipped
    }

    /// The cache with identity `cache_id`.
    #[must_use]
    pub fn entry(&self, cache_id: u64) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.cache_id == cache_id)
    }
}

/// Opens each of `paths`, in parallel; the results are in their order, and each entry has the
/// identity that its place gives it. Equal identities are not looked for ([`duplicates`]).
pub(crate) fn open_each(paths: &[PathBuf]) -> Vec<Result<Entry>> {
    open_within(paths, 0, &OpenFileLimit::for_process())
}

/// As [`open_each`], for the places from `first` on of a list that shares one `limit`.
fn open_within(paths: &[PathBuf], first: usize, limit: &Arc<OpenFileLimit>) -> Vec<Result<Entry>> {
    let opened = in_parallel(paths.len(), |n| {
        paths.get(n).map(|path| Cache::open(path, limit))
    });
    let opened = opened.into_iter().flatten().zip(first..);
    opened
        .map(|(cache, position)| {
            let cache = cache?;
            Ok(Entry {
                position,
                cache_id: cache.manifest().cache_id.unwrap_or(position as u64),
                cache: Arc::new(cache),
                validated: Validated::Structure,
            })
        })
        .collect()
}

/// How many samples a cache that is refused states; 0 when it states none or beyond all reason.
fn stated_count(path: &Path) -> u64 {
    const MOST: u64 = 1 << 30;
    let stated = Cache::read_manifest(path).map(|(manifest, _)| manifest.sample_count);
    stated.ok().filter(|count| *count <= MOST).unwrap_or(0)
}

/// An [`Error::DuplicateCacheId`] for each entry whose identity an earlier one has, with the entry's
/// position.
pub(crate) fn duplicates<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<(usize, Error)> {
    let mut first: HashMap<u64, &Entry> = HashMap::new();
    let mut errors = Vec::new();
    for entry in entries {
        let earlier = *first.entry(entry.cache_id).or_insert(entry);
        if earlier.position != entry.position {
            let error = Error::DuplicateCacheId {
                cache_id: entry.cache_id,
                first: earlier.cache.dir().to_path_buf(),
                second: entry.cache.dir().to_path_buf(),
            };
            errors.push((entry.position, error));
        }
    }
    errors
}

/// One error for all of `errors`, which is not empty.
fn several(mut errors: Vec<Error>) -> Error {
    match (errors.len(), errors.pop()) {
        (1, Some(only)) => only,
        (_, last) => {
            errors.extend(last);
            Error::Several(errors)
        }
    }
}

/// The list that command-line arguments stand for: each is a cache, or a folder whose children are
/// caches, taken in bytewise order of their names. Children without a manifest are left out with a
/// warning; a folder that is itself an unfinished cache stays in the list, to be refused by name.
///
/// # Errors
/// [`Error::Io`] for a path that cannot be listed, [`Error::Refused`] for a folder without caches.
pub fn expand(arguments: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for argument in arguments {
        paths.extend(expand_one(argument, log::Level::Warn)?);
    }
    Ok(paths)
}

/// As [`expand`], for one argument; unfinished caches are told of at `level`.
fn expand_one(argument: &Path, level: log::Level) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    if looks_like_cache(argument) {
        paths.push(argument.to_path_buf());
    } else {
        if !storage::stat(argument)?.is_dir {
            return Err(Error::refused(
                argument,
                "expected a cache folder or a folder of caches, found a file",
            ));
        }
        for child in storage::list_dir(argument)? {
            if storage::exists(&child.join(MANIFEST_FILE)) && !is_staging(&child) {
                paths.push(child);
            } else if storage::stat(&child).is_ok_and(|info| info.is_dir) {
                log::log!(
                    level,
                    "{}: skipped: no {MANIFEST_FILE}, so not a finished cache",
                    child.display()
                );
            }
        }
        if paths.is_empty() {
            return Err(Error::refused(
                argument,
                format!(
                    "no caches in this folder: expected {MANIFEST_FILE} in it or in a folder in it"
                ),
            ));
        }
    }
    Ok(paths)
}

fn looks_like_cache(dir: &Path) -> bool {
    [MANIFEST_FILE, METADATA_FILE, INDEX_FILE, SHARDS_DIR]
        .iter()
        .any(|name| storage::exists(&dir.join(name)))
}

fn is_staging(dir: &Path) -> bool {
    dir.as_os_str()
        .as_encoded_bytes()
        .ends_with(STAGING_SUFFIX.as_bytes())
}
