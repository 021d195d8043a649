//! Writes new caches, in format 3.
//!
//! Everything is written and synced in a staging folder beside the target; the manifest comes last
//! and one rename publishes the whole. So whatever stops a writer, a reader never takes
//! its remains for a cache, and a finished cache is never touched.
//!
//! ```
//! use datasetrt::format::metadata::{Field, FieldKind, Value};
//! use datasetrt::writer::{CacheWriter, WriterOptions};
//!
//! # let out = tempfile::tempdir()?;
//! let schema = vec![Field { name: "label".into(), kind: FieldKind::String }];
//! let mut writer = CacheWriter::create(out.path(), "animals", schema, WriterOptions::default())?;
//! writer.push(b"...", &[("label".into(), Value::String("cat".into()))])?;
//! let report = writer.finish()?;
//! assert_eq!(report.dir, out.path().join("animals"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod encode;
mod name;
mod pipeline;
mod queue;
mod shards;
pub mod source;
mod staging;
mod streamed;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;

pub use encode::{EncodedBatch, Encoder, Refusal};
pub use name::SourceName;
pub use pipeline::Pipeline;
pub use staging::{Leftover, leftovers};

use crate::error::{Error, Result};
use crate::format::digest::{Hasher, Sha256Digest, cache_id_of};
use crate::format::manifest::{FormatVersion, Manifest};
use crate::format::metadata::{Field, TableWriter, Value, ValueRef};
use crate::format::record::Compression;
use crate::format::{INDEX_FILE, MANIFEST_FILE, METADATA_FILE, SHARDS_DIR};
use crate::storage::{self, StagedFile};
use shards::ShardWriter;
use staging::Staging;
use streamed::Streamed;

/// Default of [`WriterOptions::max_shard_bytes`].
pub const DEFAULT_MAX_SHARD_BYTES: u64 = 64 << 20;

/// Records are gathered up to this many bytes before they are written.
const BATCH_BYTES: usize = 1 << 20;
/// Name of the manifest until it is complete.
const MANIFEST_TEMPORARY: &str = "manifest.json.tmp";

/// How a cache is to be written.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// How payloads are stored.
    pub compression: Compression,
    /// Most bytes of a shard, above zero. One bigger record still gets a shard of its own.
    pub max_shard_bytes: u64,
}

impl Default for WriterOptions {
    /// lz4, 64 MiB.
    fn default() -> Self {
        Self {
            compression: Compression::Lz4,
            max_shard_bytes: DEFAULT_MAX_SHARD_BYTES,
        }
    }
}

/// What was written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WriteReport {
    /// The finished cache.
    pub dir: PathBuf,
    /// Its identity.
    pub cache_id: u64,
    /// Number of samples.
    pub samples: u64,
    /// Number of shards.
    pub shards: u64,
    /// Sum of the lengths of all payloads, in bytes.
    pub decoded_bytes: u64,
    /// Sum of the lengths of all shards, in bytes.
    pub shard_bytes: u64,
}

/// Writes one cache. Dropped before [`CacheWriter::finish`], it removes what it wrote.
pub struct CacheWriter {
    name: SourceName,
    encoder: Encoder,
    pending: EncodedBatch,
    samples: u64,
    shards: ShardWriter,
    table: TableWriter<BufWriter<HashedFile>>,
    index: BufWriter<HashedFile>,
    /// Last, so that it is removed when all its files are closed.
    staging: Staging,
}

impl CacheWriter {
    /// Starts the cache `out_dir/source_name`, whose samples have the metadata fields `schema`, in
    /// any order (the cache has them ordered by the UTF-8 bytes of their names). `out_dir` is
    /// created when it is missing.
    ///
    /// # Errors
    /// [`Error::Refused`] when the target exists, for a source name that is not one
    /// ([`SourceName::new`]), for a field named twice, and for a shard limit of zero;
    /// [`Error::Io`].
    pub fn create(
        out_dir: &Path,
        source_name: &str,
        schema: Vec<Field>,
        options: WriterOptions,
    ) -> Result<Self> {
        let name =
            SourceName::new(source_name).map_err(|reason| Error::refused(out_dir, reason))?;
        let target = out_dir.join(name.as_str());
        let schema = sorted(schema).map_err(|reason| Error::refused(&target, reason))?;
        if options.max_shard_bytes == 0 {
            let reason = "the shard limit must be above zero bytes";
            return Err(Error::refused(target, reason));
        }
        let staging = Staging::create(out_dir, &name)?;
        let shards = staging.dir().join(SHARDS_DIR);
        storage::create_dir(&shards)?;
        let metadata_path = staging.dir().join(METADATA_FILE);
        let table = TableWriter::new(
            BufWriter::with_capacity(BATCH_BYTES, HashedFile::create(&metadata_path)?),
            &schema,
        )
        .map_err(|source| Error::io(&metadata_path, "write", source))?;
        let index = HashedFile::create(&staging.dir().join(INDEX_FILE))?;
        Ok(Self {
            name,
            encoder: Encoder::new(schema, options.compression),
            pending: EncodedBatch::default(),
            samples: 0,
            shards: ShardWriter::new(shards, options.max_shard_bytes, options.compression),
            table,
            index: BufWriter::with_capacity(BATCH_BYTES, index),
            staging,
        })
    }

    /// The fields, in schema order.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        self.encoder.fields()
    }

    /// An encoder for this cache, for another thread: what it encodes goes to
    /// [`CacheWriter::append`].
    #[must_use]
    pub fn encoder(&self) -> Encoder {
        self.encoder.clone()
    }

    /// Adds a sample. `metadata` names every field once, in any order. Samples may be held in
    /// memory for a while, so an error of writing may show at a later call.
    ///
    /// # Errors
    /// [`Error::Refused`] naming the sample and the field, after which further samples may be
    /// pushed; [`Error::Io`], after which the writer is of no more use.
    pub fn push(&mut self, payload: &[u8], metadata: &[(String, Value)]) -> Result<()> {
        let values = in_order(self.encoder.fields(), metadata);
        let values = values.map_err(|refusal| self.refused(&refusal))?;
        self.push_values(payload, values)
    }

    /// Adds a sample whose metadata is given in schema order.
    ///
    /// # Errors
    /// As [`CacheWriter::push`].
    pub fn push_row(&mut self, payload: &[u8], row: &[ValueRef<'_>]) -> Result<()> {
        self.push_values(
            payload,
            row.iter().copied().map(ValueRef::to_owned).collect(),
        )
    }

    fn push_values(&mut self, payload: &[u8], values: Vec<Value>) -> Result<()> {
        let encoded = self.encoder.encode(payload, values, &mut self.pending);
        encoded.map_err(|refusal| self.refused(&refusal))?;
        if self.pending.byte_len() >= BATCH_BYTES {
            self.write_pending()?;
        }
        Ok(())
    }

    fn refused(&self, refusal: &Refusal) -> Error {
        let sample = self.samples + self.pending.len() as u64;
        Error::refused(self.staging.target(), format!("sample {sample}: {refusal}"))
    }

    /// Adds samples that an [`CacheWriter::encoder`] of this writer has encoded.
    ///
    /// # Errors
    /// [`Error::Io`], after which the writer is of no more use.
    pub fn append(&mut self, batch: EncodedBatch) -> Result<()> {
        self.write_pending()?;
        self.write(batch)
    }

    /// Adds one long sample, whose payload is read only now.
    fn append_streamed(&mut self, sample: &Streamed) -> Result<()> {
        self.write_pending()?;
        let index = &mut self.index;
        self.shards.append_streamed(sample, |row| {
            let written = index.write_all(&row.encode());
            written.map_err(|source| Error::io(index.get_ref().path(), "write", source))
        })?;
        self.table
            .push(sample.values.iter().map(Value::borrowed))
            .map_err(|source| self.metadata_error(source))?;
        self.samples += 1;
        Ok(())
    }

    fn write_pending(&mut self) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        self.write(pending)
    }

    fn write(&mut self, batch: EncodedBatch) -> Result<()> {
        let EncodedBatch {
            bytes,
            lengths,
            values,
        } = batch;
        let index = &mut self.index;
        self.shards.append(&Arc::new(bytes), &lengths, |row| {
            let written = index.write_all(&row.encode());
            written.map_err(|source| Error::io(index.get_ref().path(), "write", source))
        })?;
        let mut values = values.iter().map(Value::borrowed);
        let width = self.encoder.fields().len();
        for _ in &lengths {
            self.table
                .push(values.by_ref().take(width))
                .map_err(|source| self.metadata_error(source))?;
        }
        self.samples += lengths.len() as u64;
        Ok(())
    }

    fn metadata_error(&self, source: io::Error) -> Error {
        Error::io(self.staging.dir().join(METADATA_FILE), "write", source)
    }

    /// Writes what is left, makes every file durable, and publishes the cache.
    ///
    /// # Errors
    /// [`Error::Refused`] without samples or when something has come to exist at the target;
    /// [`Error::Io`]. Nothing is then left behind.
    pub fn finish(self) -> Result<WriteReport> {
        self.finish_unless(&AtomicBool::new(false))
    }

    /// As [`CacheWriter::finish`], but gives up when `stop` is set before the cache is published.
    ///
    /// # Errors
    /// As there; [`Error::Refused`] when `stop` was set.
    pub fn finish_unless(mut self, stop: &AtomicBool) -> Result<WriteReport> {
        self.write_pending()?;
        if self.samples == 0 {
            let reason = "no samples: an empty cache is not written";
            return Err(Error::refused(self.staging.target(), reason));
        }
        let dir = self.staging.dir().to_path_buf();
        let metadata_path = dir.join(METADATA_FILE);
        let metadata = self
            .table
            .finish()
            .map_err(|source| Error::io(&metadata_path, "write", source))?;
        // Waiting for the disk for all files together takes as long as for one.
        let (shards, metadata, index) = std::thread::scope(|scope| {
            let metadata = scope.spawn(|| commit(metadata));
            let index = scope.spawn(|| commit(self.index));
            (self.shards.finish(), joined(metadata), joined(index))
        });
        let shards = shards?;
        storage::sync_dir(&dir.join(SHARDS_DIR))?;
        let manifest = Manifest {
            version: FormatVersion::V3,
            cache_id: Some(cache_id_of(self.name.as_str())),
            source_name: self.name.as_str().to_owned(),
            sample_count: self.samples,
            schema: self.encoder.fields().to_vec(),
            metadata_sha256: metadata?,
            index_sha256: index?,
            shards,
        };
        let mut file = StagedFile::create(&dir.join(MANIFEST_TEMPORARY))?;
        file.write_all(manifest.to_text().as_bytes())
            .map_err(|source| Error::io(file.path(), "write", source))?;
        file.commit_as(&dir.join(MANIFEST_FILE))?;
        if stop.load(Ordering::Relaxed) {
            return Err(Error::refused(self.staging.target(), "stopped"));
        }
        Ok(WriteReport {
            dir: self.staging.publish()?,
            cache_id: manifest.cache_id.unwrap_or_default(),
            samples: manifest.sample_count,
            shards: manifest.shards.len() as u64,
            decoded_bytes: manifest.decoded_len(),
            shard_bytes: manifest.shards.iter().map(|shard| shard.byte_len).sum(),
        })
    }
}

fn sorted(mut schema: Vec<Field>) -> Result<Vec<Field>, String> {
    schema.sort_by(|a, b| a.name.cmp(&b.name));
    let twice = schema.windows(2).find_map(|pair| {
        pair.first()
            .zip(pair.last())
            .filter(|(a, b)| a.name == b.name)
    });
    match twice {
        Some((field, _)) => Err(format!("metadata field {:?} is given twice", field.name)),
        None => Ok(schema),
    }
}

/// The values of `metadata` in the order of `fields`, which are sorted by name.
fn in_order(fields: &[Field], metadata: &[(String, Value)]) -> Result<Vec<Value>, Refusal> {
    let mut slots: Vec<Option<&Value>> = vec![None; fields.len()];
    for (name, value) in metadata {
        let slot = fields
            .binary_search_by(|field| field.name.as_str().cmp(name))
            .ok()
            .and_then(|n| slots.get_mut(n));
        match slot {
            None => return Err(Refusal::field(name, "not a field of this cache")),
            Some(Some(_)) => return Err(Refusal::field(name, "given twice")),
            Some(slot) => *slot = Some(value),
        }
    }
    fields
        .iter()
        .zip(slots)
        .map(|(field, value)| {
            value
                .cloned()
                .ok_or_else(|| Refusal::field(&field.name, "no value"))
        })
        .collect()
}

/// A file whose bytes are hashed as they are written.
struct HashedFile {
    file: StagedFile,
    hasher: Hasher,
}

impl HashedFile {
    fn create(path: &Path) -> Result<Self> {
        Ok(Self {
            file: StagedFile::create(path)?,
            hasher: Hasher::new(),
        })
    }

    fn path(&self) -> &Path {
        self.file.path()
    }
}

impl Write for HashedFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.file.write(buf)?;
        self.hasher.update(buf.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes what is buffered, makes the file durable, and gives its digest.
fn commit(file: BufWriter<HashedFile>) -> Result<Sha256Digest> {
    let path = file.get_ref().path().to_path_buf();
    let file = file
        .into_inner()
        .map_err(|error| Error::io(path, "write", error.into_error()))?;
    file.file.commit()?;
    Ok(file.hasher.finish())
}

fn joined<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread
        .join()
        .unwrap_or_else(|_| Err(Error::refused("", "a thread ended early")))
}

impl std::fmt::Debug for CacheWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheWriter")
            .field("target", &self.staging.target())
            .field("samples", &self.samples)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
