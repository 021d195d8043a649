//! Checks that read every byte: the SHA-256 of each file. Any thread may take any file
//! ([`Cache::file_checks`]).

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Cache;
use crate::error::{Error, Fault, FaultKind, Result};
use crate::format::digest::{Hasher, Sha256Digest};
use crate::format::index::ROW_LEN_U64;
use crate::format::manifest::Manifest;
use crate::format::{INDEX_FILE, METADATA_FILE, SHARDS_DIR};
use crate::storage::{Place, StoredFile};

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
    /// [`FaultKind::Checksum`]; [`FaultKind::Length`] when it cannot be right by its length;
    /// [`FaultKind::Replaced`] when it is another file than the one that was opened; [`Error::Io`],
    /// also when it changes meanwhile.
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
        let compared = self.hash(check, buf, go_on)?;
        self.gates.settle(check, &compared);
        compared.result
    }

    /// Hashes the file that is being served, which need not be the one at its path any more. Notes
    /// nothing.
    pub(super) fn hash(
        &self,
        check: FileCheck,
        buf: &mut [u8],
        go_on: &dyn Fn(u64) -> ControlFlow<()>,
    ) -> Result<Compared> {
        let path = self.file_path(check);
        let file = self.stored_file(check)?;
        compare(&path, &file, &self.manifest, check, buf, go_on)
    }

    /// The file that is being served, if it is still at its place.
    pub(super) fn stored_file(&self, check: FileCheck) -> Result<Arc<StoredFile>> {
        match check {
            FileCheck::Metadata => Ok(Arc::new(self.files.metadata.open()?)),
            FileCheck::Index => Ok(Arc::new(self.files.index.open()?)),
            FileCheck::Shard(shard) => self.shards.get(shard),
        }
    }

    /// Where a file lies; empty for a shard that does not exist.
    pub(super) fn file_path(&self, check: FileCheck) -> PathBuf {
        file_path(&self.dir, &self.manifest, check)
    }
}

/// Hashes the file at `place`, one of a cache, and compares.
pub(super) fn check_file(
    place: &Place,
    manifest: &Manifest,
    check: FileCheck,
    buf: &mut [u8],
    go_on: &dyn Fn(u64) -> ControlFlow<()>,
) -> Result<()> {
    compare(place.path(), &place.open()?, manifest, check, buf, go_on)?.result
}

/// What a comparison said.
#[derive(Debug)]
pub(super) struct Compared {
    /// [`StoredFile::changed`] of the file all the while.
    pub(super) changed: i64,
    /// [`FaultKind::Checksum`] when it is wrong; [`FaultKind::Length`] when it was not hashed.
    pub(super) result: Result<()>,
}

/// Hashes a file, unless its length is wrong already.
pub(super) fn compare(
    path: &Path,
    file: &StoredFile,
    manifest: &Manifest,
    check: FileCheck,
    buf: &mut [u8],
    go_on: &dyn Fn(u64) -> ControlFlow<()>,
) -> Result<Compared> {
    let failed = |source| Error::io(path, "read", source);
    let changed = file.look_for_changes().map_err(failed)?;
    let compared = |result| Ok(Compared { changed, result });
    let Some(expected) = digest_of(manifest, check) else {
        return compared(Ok(()));
    };
    let len = file.identity().len;
    if let Err(fault) = check_len(manifest, check, len) {
        return compared(Err(fault.in_file(path)));
    }
    let mut hasher = Hasher::new();
    let mut left = len;
    let read = file.read_through(buf, |bytes| {
        hasher.update(bytes);
        match left.checked_sub(bytes.len() as u64) {
            Some(rest) => left = rest,
            None => return ControlFlow::Break(()),
        }
        go_on(bytes.len() as u64)
    });
    if read.is_ok() && file.look_for_changes().map_err(failed)? != changed {
        let reason = "it changed while it was hashed; it can be checked once nobody writes it";
        return Err(failed(io::Error::other(reason)));
    }
    read.map_err(failed)?;
    let found = hasher.finish();
    if found == expected {
        return compared(Ok(()));
    }
    let expected = format!("SHA-256 {expected}");
    let fault = Fault::new(FaultKind::Checksum, expected, found.to_string());
    compared(Err(fault.in_file(path)))
}

/// Whether a file can be what the manifest says, by its length. Nothing states that of
/// metadata.arrow, but its values stand in the records of the shards once more.
pub(super) fn check_len(manifest: &Manifest, check: FileCheck, len: u64) -> Result<(), Fault> {
    let bound = |expected: String, fits: bool| match fits {
        true => Ok(()),
        false => {
            let found = format!("{len} bytes");
            Err(Fault::new(FaultKind::Length, expected, found))
        }
    };
    let exactly = |wanted: Option<u64>, why| {
        let wanted = wanted.unwrap_or(u64::MAX);
        bound(format!("{wanted} bytes ({why})"), len == wanted)
    };
    match check {
        FileCheck::Index => exactly(
            manifest.sample_count.checked_mul(ROW_LEN_U64),
            "sample_count of the manifest",
        ),
        FileCheck::Shard(n) => {
            let shard = manifest.shards.get(n);
            let len = shard.map_or(0, |shard| shard.byte_len);
            exactly(Some(len), "byte_len of the manifest")
        }
        FileCheck::Metadata => {
            let most = longest_metadata(manifest);
            bound(format!("at most {most} bytes for its samples"), len <= most)
        }
    }
}

/// Bytes that metadata.arrow cannot have, whoever wrote it: the text of its values is no longer than
/// the shards, and the rest is so much for a row, a value and the file.
fn longest_metadata(manifest: &Manifest) -> u64 {
    const FILE: u64 = 64 << 20;
    const ROW: u64 = 4 << 10;
    const VALUE: u64 = 256;
    let row = VALUE.saturating_mul(manifest.schema.len() as u64);
    let rows = manifest
        .sample_count
        .saturating_mul(row.saturating_add(ROW));
    let shards = manifest.shards.iter().map(|shard| shard.byte_len);
    shards.fold(FILE.saturating_add(rows), u64::saturating_add)
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
