//! One cache of the list: open and to be checked, or refused and only to be hashed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Pace;
use super::finding::{Finding, Subject};
use super::layout::{Layout, Slice};
use super::plan::{Pieces, Work};
use crate::cache::{Cache, DecodedSums, FileCheck, Survey};
use crate::dataset::Entry;
use crate::error::{Error, Fault, FaultKind, Result};
use crate::format::MANIFEST_FILE;
use crate::format::manifest::Manifest;
use crate::format::record::Compression;

/// Bytes read at once while hashing: few calls, and still in the processor's cache when hashed.
const PIECE: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Opened {
    pub(super) dir: PathBuf,
    pub(super) cache_id: Option<u64>,
    /// What the structure check or the list as a whole said against it.
    pub(super) refused: Vec<Finding>,
    state: State,
}

/// How far a cache can be checked.
#[derive(Debug)]
enum State {
    Open(Checked),
    /// Its files can still be hashed.
    Refused(Survey),
}

/// A cache whose samples can be checked.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) cache: Arc<Cache>,
    pub(super) layout: Layout,
    pub(super) sums: DecodedSums,
}

impl Opened {
    /// Takes the cache in folder `dir` as opening it went.
    pub(super) fn new(dir: &Path, position: u64, opened: Result<Entry>) -> Self {
        match opened {
            Ok(entry) => Self {
                dir: dir.to_path_buf(),
                cache_id: Some(entry.cache_id),
                refused: Vec::new(),
                state: State::Open(Checked {
                    sums: DecodedSums::new(&entry.cache),
                    layout: Layout::scan(&entry.cache),
                    cache: entry.cache,
                }),
            },
            Err(error) => Self::refused(dir, position, error),
        }
    }

    /// Takes a cache that is in use, whose manifest may have changed since it was opened: a migration
    /// may have done that, and nobody else.
    pub(super) fn in_use(entry: &Entry) -> Self {
        let dir = entry.cache.dir();
        let mut opened = Self::new(dir, entry.position as u64, Ok(entry.clone()));
        opened.cache_id = Some(entry.cache_id);
        let loaded = entry.cache.manifest();
        let result = entry.cache.manifest_now().and_then(|(found, _)| {
            let same = Manifest {
                version: loaded.version,
                cache_id: loaded.cache_id,
                ..found.clone()
            };
            let id = found.cache_id.unwrap_or(entry.cache_id);
            if same == *loaded && id == entry.cache_id {
                return Ok(());
            }
            let fault = Fault::new(
                FaultKind::Replaced,
                "the manifest that was loaded, or its migrated form",
                "another one",
            );
            Err(fault.in_file(&dir.join(MANIFEST_FILE)))
        });
        if let Err(error) = result {
            opened.refuse(error);
        }
        opened
    }

    fn refused(dir: &Path, position: u64, error: Error) -> Self {
        let mut survey = Survey::of(dir);
        let mut errors = std::mem::take(&mut survey.errors);
        if errors.is_empty() {
            // What was wrong when it was opened is right by now.
            errors.push(error);
        }
        let mut refused = Self {
            dir: dir.to_path_buf(),
            cache_id: survey.cache_id(position),
            refused: Vec::new(),
            state: State::Refused(survey),
        };
        errors.into_iter().for_each(|error| refused.refuse(error));
        refused
    }

    /// Notes a reason why the cache cannot be used as it is given.
    pub(super) fn refuse(&mut self, error: Error) {
        let mut findings = Vec::new();
        self.subject().add(error, None, &mut findings);
        self.refused.append(&mut findings);
    }

    pub(super) fn subject(&self) -> Subject<'_> {
        Subject {
            dir: &self.dir,
            cache_id: self.cache_id,
        }
    }

    pub(super) fn checked(&self) -> Option<&Checked> {
        match &self.state {
            State::Open(checked) => Some(checked),
            State::Refused(_) => None,
        }
    }

    /// The files that are hashed, metadata and index first.
    fn file_checks(&self) -> Vec<(FileCheck, u64)> {
        let mut checks: Vec<_> = match &self.state {
            State::Open(checked) => checked.cache.file_checks().collect(),
            State::Refused(survey) => survey.file_checks().collect(),
        };
        checks.sort_by_key(|(check, _)| matches!(check, FileCheck::Shard(_)));
        checks
    }

    /// Hashes one file; `buffer` is working space.
    ///
    /// # Errors
    /// As [`Cache::check_file_while`].
    pub(super) fn check_file(
        &self,
        check: FileCheck,
        buffer: &mut Vec<u8>,
        pace: Pace<'_>,
    ) -> Result<()> {
        buffer.resize(PIECE, 0);
        match &self.state {
            State::Open(checked) => checked.cache.check_file_while(check, buffer, pace),
            State::Refused(survey) => survey.check_file_while(check, buffer, pace),
        }
    }

    /// Bytes that are hashed.
    pub(super) fn hashed_len(&self) -> u64 {
        let checks = self.file_checks().into_iter();
        checks.fold(0, |sum, (_, len)| sum.saturating_add(len))
    }

    /// Bytes that are hashed, and those of compressed shards once more: decoding takes time too.
    pub(super) fn work_len(&self) -> u64 {
        let manifest = self.checked().map(|checked| checked.cache.manifest());
        let shards = manifest.into_iter().flat_map(|manifest| &manifest.shards);
        shards
            .filter(|shard| shard.compression == Compression::Lz4)
            .fold(self.hashed_len(), |sum, shard| {
                sum.saturating_add(shard.byte_len)
            })
    }

    /// Cuts the work on the cache, number `n` of the list, into pieces.
    pub(super) fn add_pieces(&self, n: usize, quick: bool, pieces: &mut Pieces) {
        let layout = self.checked().map(|checked| &checked.layout);
        if layout.is_some() {
            pieces.add(n, None, [Work::Layout]);
        }
        if !quick {
            let slices: &[Slice] = layout.map_or(&[], |layout| &layout.slices);
            let grouped = layout.is_some_and(|layout| layout.grouped);
            self.add_reading(n, slices, grouped, pieces);
        }
        pieces.end(n);
    }

    fn add_reading(&self, n: usize, slices: &[Slice], grouped: bool, pieces: &mut Pieces) {
        let mut slices = slices.iter().peekable();
        for (check, len) in self.file_checks() {
            let mut rest = Vec::new();
            if let FileCheck::Shard(shard) = check
                && grouped
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
