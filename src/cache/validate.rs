//! Checks that read every byte: the SHA-256 of each file, and the sums of decoded lengths.
//!
//! The work of one cache is cut into pieces that any thread may take ([`Cache::file_checks`],
//! ranges of samples for [`DecodedSums`]).

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Cache;
use crate::error::{Error, Fault, FaultKind, Result};
use crate::format::digest::{Hasher, Sha256Digest};
use crate::format::manifest::Manifest;
use crate::format::{INDEX_FILE, METADATA_FILE, SHARDS_DIR};
use crate::storage::{self, FileIdentity, StoredFile, with_window};

/// One file of a cache that the manifest has a SHA-256 for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FileCheck {
    /// `metadata.arrow`.
    Metadata,
    /// `index.bin`.
    Index,
    /// The shard at this position of the manifest's list.
    Shard(usize),
}

impl Cache {
    /// All files that have a SHA-256, with their lengths in bytes, large pieces first come first.
    pub fn file_checks(&self) -> impl Iterator<Item = (FileCheck, u64)> + '_ {
        let shards = self.manifest.shards.iter().enumerate();
        shards
            .map(|(n, shard)| (FileCheck::Shard(n), shard.byte_len))
            .chain([
                (FileCheck::Metadata, self.metadata.identity().len),
                (FileCheck::Index, self.index_info().identity.len),
            ])
    }

    /// Hashes one file and compares; what comes out is noted ([`Cache::verified`]). `buf` is working
    /// space; `progress` hears of bytes read.
    ///
    /// # Errors
    /// [`FaultKind::Checksum`]; [`FaultKind::Replaced`] when it is another file than the one that
    /// was opened; [`Error::Io`].
    pub fn check_file(
        &self,
        check: FileCheck,
        buf: &mut [u8],
        progress: &dyn Fn(u64),
    ) -> Result<()> {
        self.check_file_while(check, buf, &|bytes| {
            progress(bytes);
            ControlFlow::Continue(())
        })
    }

    /// [`Cache::check_file`], for as long as `go_on`, which hears of bytes read, says so.
    ///
    /// # Errors
    /// As there; an interruption is an [`Error::Io`] of kind `Interrupted`.
    pub fn check_file_while(
        &self,
        check: FileCheck,
        buf: &mut [u8],
        go_on: &dyn Fn(u64) -> ControlFlow<()>,
    ) -> Result<()> {
        let result = self.hash(check, buf, go_on);
        self.gates.settle(check, &result);
        result
    }

    /// Hashes the file that is being served, which need not be the one at its path any more.
    pub(super) fn hash(
        &self,
        check: FileCheck,
        buf: &mut [u8],
        go_on: &dyn Fn(u64) -> ControlFlow<()>,
    ) -> Result<()> {
        let path = self.file_path(check);
        let open = |seen: FileIdentity| {
            let file = StoredFile::open(&path)?;
            match file.identity() {
                found if found == seen => Ok(Arc::new(file)),
                found => Err(storage::replaced(seen, found).in_file(&path)),
            }
        };
        let file = match check {
            FileCheck::Metadata => open(self.metadata.identity())?,
            FileCheck::Index => open(self.index.identity())?,
            FileCheck::Shard(shard) => self.shards.get(shard)?,
        };
        compare(&path, &file, digest_of(&self.manifest, check), buf, go_on)
    }

    /// Where a file lies; empty for a shard that does not exist.
    pub(super) fn file_path(&self, check: FileCheck) -> PathBuf {
        file_path(&self.dir, &self.manifest, check)
    }
}

/// Hashes one file of the cache in folder `dir` and compares.
pub(super) fn check_file(
    dir: &Path,
    manifest: &Manifest,
    check: FileCheck,
    buf: &mut [u8],
    go_on: &dyn Fn(u64) -> ControlFlow<()>,
) -> Result<()> {
    let path = file_path(dir, manifest, check);
    let file = StoredFile::open(&path)?;
    compare(&path, &file, digest_of(manifest, check), buf, go_on)
}

fn compare(
    path: &Path,
    file: &StoredFile,
    expected: Option<Sha256Digest>,
    buf: &mut [u8],
    go_on: &dyn Fn(u64) -> ControlFlow<()>,
) -> Result<()> {
    let Some(expected) = expected else {
        return Ok(());
    };
    let mut hasher = Hasher::new();
    file.read_through(buf, |bytes| {
        hasher.update(bytes);
        go_on(bytes.len() as u64)
    })
    .map_err(|source| Error::io(path, "read", source))?;
    let found = hasher.finish();
    if found == expected {
        return Ok(());
    }
    let fault = Fault::new(
        FaultKind::Checksum,
        format!("SHA-256 {expected}"),
        found.to_string(),
    );
    Err(fault.in_file(path))
}

fn file_path(dir: &Path, manifest: &Manifest, check: FileCheck) -> PathBuf {
    match check {
        FileCheck::Metadata => dir.join(METADATA_FILE),
        FileCheck::Index => dir.join(INDEX_FILE),
        FileCheck::Shard(n) => manifest.shards.get(n).map_or_else(PathBuf::new, |shard| {
            dir.join(SHARDS_DIR).join(shard.name.as_str())
        }),
    }
}

fn digest_of(manifest: &Manifest, check: FileCheck) -> Option<Sha256Digest> {
    match check {
        FileCheck::Metadata => Some(manifest.metadata_sha256),
        FileCheck::Index => Some(manifest.index_sha256),
        FileCheck::Shard(n) => manifest.shards.get(n).map(|shard| shard.sha256),
    }
}

/// Sums of decoded payload lengths, one for each shard, gathered from any number of threads.
#[derive(Debug)]
pub struct DecodedSums(Vec<ShardSum>);

#[derive(Debug, Default)]
struct ShardSum {
    bytes: AtomicU64,
    /// A sample of the shard is damaged: it is refused by itself, and the sum says nothing.
    unknown: AtomicBool,
}

impl DecodedSums {
    /// Nothing summed yet.
    #[must_use]
    pub fn new(cache: &Cache) -> Self {
        let shards = cache.manifest.shards.iter();
        Self(shards.map(|_| ShardSum::default()).collect())
    }

    /// Adds the payload of one sample, or `None` when its length cannot be known.
    ///
    /// # Errors
    /// [`Error::NoSuchSample`], or [`Error::Damaged`] when the index was changed in place.
    pub fn add(&self, cache: &Cache, sample: u64, decoded_len: Option<u64>) -> Result<()> {
        let (_, shard) = cache.row(sample)?;
        if let Some(sum) = self.0.get(shard) {
            match decoded_len {
                // Saturates, so that a sum can never come back to the right value by wrapping.
                Some(len) => {
                    let add = |sum: u64| Some(sum.saturating_add(len));
                    let _ = sum
                        .bytes
                        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
                }
                None => sum.unknown.store(true, Ordering::Relaxed),
            }
        }
        Ok(())
    }

    /// Adds the payloads of `samples`, whose lengths are read from their records' headers.
    ///
    /// # Errors
    /// As [`DecodedSums::add`].
    pub fn add_headers(&self, cache: &Cache, samples: Range<u64>) -> Result<()> {
        with_window(|| {
            for sample in samples {
                self.add(cache, sample, cache.payload_len(sample).ok())?;
            }
            Ok(())
        })
    }

    /// Compares with the manifest, once all samples were added.
    ///
    /// # Errors
    /// [`FaultKind::DecodedSum`] for the first shard that differs.
    pub fn compare(&self, cache: &Cache) -> Result<()> {
        self.mismatches(cache).next().map_or(Ok(()), Err)
    }

    /// A [`FaultKind::DecodedSum`] for each shard that differs, once all samples were added.
    pub fn mismatches<'a>(&'a self, cache: &'a Cache) -> impl Iterator<Item = Error> + 'a {
        let shards = self.0.iter().zip(&cache.manifest.shards).enumerate();
        shards.filter_map(|(n, (sum, shard))| {
            let found = sum.bytes.load(Ordering::Relaxed);
            if found == shard.decoded_len || sum.unknown.load(Ordering::Relaxed) {
                return None;
            }
            let fault = Fault::new(
                FaultKind::DecodedSum,
                format!("{} bytes (uncompressed_byte_len)", shard.decoded_len),
                format!("{found} bytes, decoded as {}", shard.compression.name()),
            );
            Some(fault.in_file(&cache.shards.path(n)))
        })
    }
}
