//! One cache whose structure has been checked: manifest, metadata rows, index rows and shard
//! lengths agree. Payloads are read and checked sample by sample ([`Cache::with_record`]).

mod access;
mod files;
mod gates;
mod mapped;
mod metadata;
mod record;
mod rows;
mod sizes;
mod sums;
mod survey;
mod validate;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

pub use access::{AccessSet, CacheAccess};
use files::Files;
use gates::Gates;
pub use gates::{Level, Verified};
use mapped::Mending;
pub use mapped::TableRef;
pub use record::{Record, release_buffers};
use sizes::Sizes;
pub use sums::DecodedSums;
pub use survey::Survey;
pub use validate::FileCheck;

use crate::error::{Error, Fault, FaultKind, Result};
use crate::format::digest::Sha256Digest;
use crate::format::envelope::Envelope;
use crate::format::index::{IndexRow, IndexView, ROW_LEN_U64};
use crate::format::manifest::Manifest;
use crate::format::metadata::Table;
use crate::format::{INDEX_FILE, METADATA_FILE};
use crate::storage::{FileInfo, MappedFile, OpenFileLimit, ShardFiles};

/// A file that changed so many times in a row while it was read is not read.
const MOST_CHANGES: usize = 16;
const RESTLESS: &str = "it changes again and again; it can be read once nobody writes it";

/// What of a sample was compared and is right.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SampleVerified {
    /// Nothing: it is damaged, or cannot be read.
    None,
    /// Its record's copy of the metadata.
    Envelope,
    /// Also the SHA-256 of its shard, which covers its payload.
    Shard,
}

/// A cache opened for reading. Structure is checked; checksums are not, unless
/// [`Cache::check_file`] is called.
#[derive(Debug)]
pub struct Cache {
    dir: PathBuf,
    files: Files,
    manifest: Manifest,
    manifest_bytes: Vec<u8>,
    table: Table,
    envelope: Envelope,
    index: MappedFile,
    metadata: MappedFile,
    mending: Mending,
    shards: ShardFiles,
    sizes: Sizes,
    gates: Gates,
}

impl Cache {
    /// Opens the cache in folder `dir` and checks its structure (docs/format.md, "Reading"): the
    /// manifest's fields, the existence and length of every shard, the rows of metadata and index,
    /// and that every index row lies inside its shard. Memory does not grow with the samples.
    ///
    /// # Errors
    /// [`Error::Incomplete`] without a manifest, [`Error::UnsupportedVersion`], [`Error::Damaged`]
    /// naming the file, or [`Error::Io`].
    pub fn open(dir: &Path, limit: &Arc<OpenFileLimit>) -> Result<Self> {
        let folder = files::open_folder(dir, limit)?;
        let (place, manifest, manifest_bytes) = files::manifest_in(&folder)?;
        let (files, shards) = Files::find(folder, place, &manifest)?;
        let changed: Vec<i64> = shards.iter().map(|shard| shard.info().changed).collect();
        let shards = ShardFiles::new(shards, limit);
        let index = MappedFile::open_at(&files.index)?;
        rows::check(files.index.path(), index.as_ref(), &manifest)?;
        let metadata = MappedFile::open_at(&files.metadata)?;
        let table = open_table(files.metadata.path(), &metadata, &manifest)?;
        let cache = Self {
            sizes: Sizes::new(manifest.sample_count),
            envelope: Envelope::new(&manifest.schema),
            dir: dir.to_path_buf(),
            gates: Gates::new(&changed, metadata.info().changed, index.info().changed),
            files,
            manifest,
            manifest_bytes,
            table,
            index,
            metadata,
            mending: Mending::default(),
            shards,
        };
        cache.intact()?;
        Ok(cache)
    }

    /// From now on hashes each shard once, before anything of it is given out.
    pub fn check_shards_on_access(&mut self) {
        self.gates.check_on_access();
    }

    /// How many shards were hashed and found right; `None` unless [`Cache::check_shards_on_access`]
    /// was asked for.
    #[must_use]
    pub fn shards_checked_on_access(&self) -> Option<usize> {
        let on_access = self.gates.is_on_access();
        on_access.then(|| self.gates.verified().shards)
    }

    /// How far checksums have been compared since the cache was opened.
    #[must_use]
    pub fn verified(&self) -> Verified {
        self.gates.verified()
    }

    /// A number that differs after each change of what [`Cache::verified`] and
    /// [`Cache::changed_shards`] say.
    #[must_use]
    pub fn verification_changes(&self) -> u64 {
        self.gates.turns()
    }

    /// Takes it from somebody who knows that all checksums were compared at `at`, and that no file
    /// has changed since.
    pub fn trust(&self, at: SystemTime) {
        self.gates.trust(at);
    }

    /// Whether bytes of `sample` that were read before may be given out, as far as checksums tell.
    ///
    /// # Errors
    /// [`FaultKind::Checksum`] when they may not; [`Error::NoSuchSample`]; [`Error::Io`].
    pub fn admit(&self, sample: u64) -> Result<()> {
        let (_, shard) = self.row(sample)?;
        self.gates.pass_again(self, shard)
    }

    /// The names of the shards that have changed since they were opened or found right, and were not
    /// compared since.
    pub fn changed_shards(&self) -> impl Iterator<Item = &str> {
        let shards = self.manifest.shards.iter().enumerate();
        let changed = shards.filter(|(n, _)| self.gates.has_changed(*n));
        changed.map(|(_, shard)| shard.name.as_str())
    }

    /// What is known to be right of `sample`: its shard's checksum, if it was compared, and its
    /// envelope, which is compared now.
    #[must_use]
    pub fn sample_verified(&self, sample: u64) -> SampleVerified {
        let shard = self.row(sample).map(|(_, shard)| shard);
        let served = self.with_stored_record(sample, 0, |_| ()).and(shard);
        match served {
            Ok(shard) if self.gates.is_wrong(shard) => SampleVerified::None,
            Ok(shard) if self.gates.is_right(shard) => SampleVerified::Shard,
            Ok(_) => SampleVerified::Envelope,
            Err(_) => SampleVerified::None,
        }
    }

    /// Whether the mapped files were whole all the while since they were opened.
    fn intact(&self) -> Result<()> {
        for (file, name) in [(&self.index, INDEX_FILE), (&self.metadata, METADATA_FILE)] {
            file.intact()
                .map_err(|fault| fault.in_file(&self.dir.join(name)))?;
        }
        Ok(())
    }

    /// The folder, as it was given.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The manifest, as it was when the cache was opened.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The manifest's bytes, as they were when the cache was opened.
    #[must_use]
    pub fn manifest_bytes(&self) -> &[u8] {
        &self.manifest_bytes
    }

    /// SHA-256 of [`Cache::manifest_bytes`].
    #[must_use]
    pub fn manifest_digest(&self) -> Sha256Digest {
        Sha256Digest::of(&self.manifest_bytes)
    }

    /// Number of samples; their ids are 0 up to it.
    #[must_use]
    pub fn sample_count(&self) -> u64 {
        self.manifest.sample_count
    }

    /// Attributes of `index.bin`, whose owner, mode and time stand for those of the samples.
    #[must_use]
    pub fn index_info(&self) -> &FileInfo {
        self.index.info()
    }

    /// Attributes of `metadata.arrow`.
    #[must_use]
    pub fn metadata_info(&self) -> &FileInfo {
        self.metadata.info()
    }

    /// The rows of `index.bin` as they are now. They were checked when the cache was opened; the
    /// file may have changed under the mapping since.
    #[must_use]
    pub fn index(&self) -> IndexView<'_> {
        IndexView::new(self.index.as_ref())
    }

    /// Path of the shard at position `shard` of the manifest's list; empty when there is none.
    #[must_use]
    pub fn shard_path(&self, shard: usize) -> PathBuf {
        self.shards.path(shard)
    }

    /// Position of the shard that `sample` lies in.
    ///
    /// # Errors
    /// [`Error::NoSuchSample`]; [`Error::Damaged`] when the index was changed in place.
    pub fn shard_of(&self, sample: u64) -> Result<usize> {
        self.row(sample).map(|(_, shard)| shard)
    }

    /// The index row of `sample`, checked again: the file may have changed under the mapping.
    fn row(&self, sample: u64) -> Result<(IndexRow, usize)> {
        if sample >= self.sample_count() {
            return Err(self.no_such_sample(sample));
        }
        let whole = self.both_whole()?;
        let row = self.index().row(sample);
        self.whole_since(whole)?;
        row.and_then(|row| Some((row, usize::try_from(row.shard).ok()?)))
            .filter(|(row, _)| rows::row_fits(*row, &self.manifest))
            .ok_or_else(|| {
                Fault::new(
                    FaultKind::IndexRow,
                    "a record inside its shard",
                    format!("{row:?}: index.bin was changed in place"),
                )
                .at(sample.saturating_mul(ROW_LEN_U64))
                .in_sample(&self.dir.join(INDEX_FILE), sample)
            })
    }

    fn no_such_sample(&self, sample: u64) -> Error {
        Error::NoSuchSample {
            cache: self.dir.clone(),
            sample,
            count: self.sample_count(),
        }
    }
}

fn open_table(path: &Path, file: &MappedFile, manifest: &Manifest) -> Result<Table> {
    let table = Table::open(Bytes::from_owner(file.clone()), &manifest.schema)
        .map_err(|fault| fault.in_file(path))?;
    match table.rows() {
        Some(rows) if rows != manifest.sample_count => Err(Fault::new(
            FaultKind::RowCount,
            format!(
                "{} rows (sample_count of the manifest)",
                manifest.sample_count
            ),
            format!("{rows} rows"),
        )
        .in_file(path)),
        _ => Ok(table),
    }
}
