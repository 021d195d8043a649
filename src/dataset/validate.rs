//! `--validate-cache`: every checksum and every sum of a list, on all cores.

use std::ops::Range;
use std::sync::Arc;

use super::{Dataset, Entry, Validated, several};
use crate::cache::{DecodedSums, FileCheck};
use crate::error::{Error, Result};
use crate::parallel::in_parallel;

/// Hears of bytes as they are read; called from many threads.
pub type Progress<'a> = &'a (dyn Fn(u64) + Sync);

/// Bytes read at once while hashing: large enough to keep the disk busy, small enough for a cache.
const PIECE: usize = 1 << 20;
/// Samples whose headers are read as one piece of work.
const SAMPLES_AT_ONCE: u64 = 1 << 14;

/// A piece of work that any thread may take.
enum Piece {
    File(usize, FileCheck),
    Headers(usize, Range<u64>),
}

impl Dataset {
    /// Bytes that [`Dataset::validate`] hashes.
    #[must_use]
    pub fn validation_len(&self) -> u64 {
        self.entries
            .iter()
            .filter(|entry| entry.validated != Validated::Receipt)
            .flat_map(|entry| entry.cache.file_checks())
            .map(|(_, len)| len)
            .fold(0, u64::saturating_add)
    }

    /// Hashes metadata.arrow and index.bin of every cache that has no receipt now, and has each shard
    /// hashed before it is first served. Caches that failed leave the list if `skip` is set.
    ///
    /// # Errors
    /// Without `skip`: everything that was found wrong.
    pub fn validate_on_access(&mut self, skip: bool) -> Result<()> {
        let has_receipt =
            |n: usize| self.entries.get(n).map(|entry| entry.validated) == Some(Validated::Receipt);
        let results = in_parallel(self.entries.len(), |n| {
            if has_receipt(n) {
                return Ok(());
            }
            self.check_file(n, FileCheck::Metadata, &|_| ())?;
            self.check_file(n, FileCheck::Index, &|_| ())
        });
        let failures = results.into_iter().enumerate();
        let failures = failures.filter_map(|(n, result)| Some((n, result.err()?)));
        self.settle(failures.collect(), skip)?;
        for entry in &mut self.entries {
            // The list was just opened: nobody else holds its caches yet.
            if entry.validated != Validated::Receipt
                && let Some(cache) = Arc::get_mut(&mut entry.cache)
            {
                cache.check_shards_on_access();
                entry.validated = Validated::OnAccess;
            }
        }
        Ok(())
    }

    /// Hashes every file of every cache that has no receipt, compares each shard's sum of decoded
    /// payloads, and marks the caches that passed. Caches that failed leave the list if `skip` is set.
    ///
    /// # Errors
    /// Without `skip`: everything that was found wrong.
    pub fn validate(&mut self, skip: bool, progress: Progress<'_>) -> Result<()> {
        let failures = self.failures(progress);
        self.settle(failures, skip)?;
        for entry in &mut self.entries {
            if entry.validated != Validated::Receipt {
                entry.validated = Validated::Checksums;
            }
        }
        Ok(())
    }

    /// Refuses the list for its failures, or leaves out the caches that have some.
    fn settle(&mut self, failures: Vec<(usize, Error)>, skip: bool) -> Result<()> {
        let mut errors = Vec::new();
        let mut failed = vec![false; self.entries.len()];
        for (n, error) in failures {
            if let Some(failed) = failed.get_mut(n) {
                *failed = true;
            }
            errors.push(error);
        }
        if !skip && !errors.is_empty() {
            return Err(several(errors));
        }
        self.skipped.extend(errors);
        let mut failed = failed.into_iter();
        self.entries.retain(|_| failed.next() == Some(false));
        Ok(())
    }

    /// What is wrong, with the number of the entry concerned, in the order of the list and of the
    /// pieces of work, whichever thread was first.
    fn failures(&self, progress: Progress<'_>) -> Vec<(usize, Error)> {
        let sums: Vec<_> = self
            .entries
            .iter()
            .map(|entry| DecodedSums::new(&entry.cache))
            .collect();
        let pieces: Vec<Piece> = self
            .entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.validated != Validated::Receipt)
            .flat_map(|(n, entry)| pieces(n, entry))
            .collect();
        let results = in_parallel(pieces.len(), |piece| {
            let (entry, result) = match pieces.get(piece)? {
                Piece::File(n, check) => (*n, self.check_file(*n, *check, progress)),
                Piece::Headers(n, samples) => {
                    let (entry, sums) = self.entries.get(*n).zip(sums.get(*n))?;
                    (*n, sums.add_headers(&entry.cache, samples.clone()))
                }
            };
            Some((entry, result.err()?))
        });
        let mut failures: Vec<_> = results.into_iter().flatten().collect();
        for (n, (entry, sums)) in self.entries.iter().zip(&sums).enumerate() {
            if entry.validated != Validated::Receipt
                && let Err(error) = sums.compare(&entry.cache)
            {
                failures.push((n, error));
            }
        }
        failures.sort_by_key(|(n, _)| *n);
        failures
    }

    fn check_file(&self, n: usize, check: FileCheck, progress: Progress<'_>) -> Result<()> {
        let Some(entry) = self.entries.get(n) else {
            return Ok(());
        };
        let mut buf = vec![0; PIECE];
        entry.cache.check_file(check, &mut buf, progress)
    }
}

/// The files first, so that the headers are read from pages that hashing has just brought in.
fn pieces(n: usize, entry: &Entry) -> impl Iterator<Item = Piece> + '_ {
    let files = entry
        .cache
        .file_checks()
        .map(move |(check, _)| Piece::File(n, check));
    let count = entry.cache.sample_count();
    let headers = (0..count.div_ceil(SAMPLES_AT_ONCE)).map(move |piece| {
        let start = piece * SAMPLES_AT_ONCE;
        Piece::Headers(n, start..count.min(start + SAMPLES_AT_ONCE))
    });
    files.chain(headers)
}
