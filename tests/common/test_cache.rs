//! A cache on disk and everything one can do to its files.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use datasetrt::cache::Cache;
use datasetrt::dataset::Dataset;
use datasetrt::error::Result;
use datasetrt::format::digest::Sha256Digest;
use datasetrt::format::index::IndexRow;
use datasetrt::format::metadata::Field;
use datasetrt::storage::OpenFileLimit;
use tempfile::TempDir;

use super::fixture::Sample;
use super::json::Json;

/// A cache on disk whose files may be changed at will. Files are named relative to its folder.
#[derive(Debug)]
pub struct TestCache {
    /// The folder.
    pub dir: PathBuf,
    /// What was written.
    pub samples: Vec<Sample>,
    /// The fields.
    pub schema: Vec<Field>,
    temp: Option<TempDir>,
}

impl TestCache {
    /// A handle on a cache that something else wrote.
    #[must_use]
    pub fn at(dir: &Path) -> Self {
        Self {
            dir: dir.to_path_buf(),
            samples: Vec::new(),
            schema: Vec::new(),
            temp: None,
        }
    }

    /// Ties the life of the folder to this value.
    pub fn keep(&mut self, temp: TempDir) {
        self.temp = Some(temp);
    }

    /// What the cache should give for `sample`.
    #[must_use]
    pub fn expected(&self, sample: u64) -> super::Delivered {
        let sample = &self.samples[sample as usize];
        let values = self.schema.iter().map(|f| sample.value(&f.name).clone());
        super::Delivered {
            payload: sample.payload.clone(),
            metadata: values.map(Some).collect(),
        }
    }

    /// Opens the cache.
    ///
    /// # Errors
    /// What [`Cache::open`] gives.
    pub fn open(&self) -> Result<Cache> {
        Cache::open(&self.dir, &OpenFileLimit::new(8))
    }

    /// Opens the list of this cache alone.
    ///
    /// # Errors
    /// What [`Dataset::open`] gives.
    pub fn dataset(&self) -> Result<Dataset> {
        Dataset::open(std::slice::from_ref(&self.dir))
    }

    /// Opens the list of this cache alone and checks every sum.
    ///
    /// # Errors
    /// What [`Dataset::open`] and [`Dataset::validate`] give.
    pub fn validated(&self) -> Result<Dataset> {
        let mut dataset = self.dataset()?;
        dataset.validate(false, &|_| ())?;
        Ok(dataset)
    }

    /// Full path of a file.
    #[must_use]
    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    /// A file's bytes.
    #[must_use]
    pub fn read(&self, file: &str) -> Vec<u8> {
        fs::read(self.path(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
    }

    /// Replaces a file's bytes, in place: a file that is first cut to nothing and then written is
    /// forced to disk by some file systems, which is slow ten thousand times over.
    pub fn put(&self, file: &str, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let write = || {
            let mut options = OpenOptions::new();
            let file = options
                .write(true)
                .create(true)
                .truncate(false)
                .open(self.path(file))?;
            file.write_all_at(bytes, 0)?;
            file.set_len(bytes.len() as u64)
        };
        write().unwrap_or_else(|e: io::Error| panic!("{file}: {e}"));
    }

    /// Changes a file's bytes.
    pub fn edit(&self, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.read(file);
        change(&mut bytes);
        self.put(file, bytes);
    }

    /// Changes bits of one byte; a negative offset counts from the end.
    pub fn flip(&self, file: &str, offset: i64, mask: u8) {
        self.edit(file, |bytes| {
            let at = from_end(offset, bytes.len());
            bytes[at] ^= mask;
        });
    }

    /// Cuts a file; a negative length says how many bytes go.
    pub fn truncate(&self, file: &str, len: i64) {
        self.edit(file, |bytes| bytes.truncate(from_end(len, bytes.len())));
    }

    /// Adds bytes at a file's end, which is made when missing.
    pub fn append(&self, file: &str, more: &[u8]) {
        let mut bytes = fs::read(self.path(file)).unwrap_or_default();
        bytes.extend_from_slice(more);
        self.put(file, bytes);
    }

    /// Removes a file.
    pub fn remove(&self, file: &str) {
        fs::remove_file(self.path(file)).unwrap();
    }

    /// The manifest.
    #[must_use]
    pub fn manifest(&self) -> Json {
        Json::parse(std::str::from_utf8(&self.read("manifest.json")).unwrap())
    }

    /// Changes the manifest, which keeps the order of its keys.
    pub fn edit_manifest(&self, change: impl FnOnce(&mut Json)) {
        let mut manifest = self.manifest();
        change(&mut manifest);
        self.put("manifest.json", manifest.to_text());
    }

    /// Sets one value of the manifest ("shards/0/byte_len").
    pub fn set_manifest(&self, path: &str, value: impl Into<Json>) {
        self.edit_manifest(|manifest| manifest.set(path, value.into()));
    }

    /// The index row of a sample.
    #[must_use]
    pub fn row(&self, sample: u64) -> IndexRow {
        let bytes = self.read("index.bin");
        IndexRow::decode(bytes[sample as usize * 24..][..24].try_into().unwrap())
    }

    /// Replaces the index row of a sample.
    pub fn set_row(&self, sample: u64, row: IndexRow) {
        self.edit("index.bin", |bytes| {
            bytes[sample as usize * 24..][..24].copy_from_slice(&row.encode());
        });
    }

    /// The file of the shard with this number.
    #[must_use]
    pub fn shard_file(&self, shard: u64) -> String {
        let name = self.manifest().text_at(&format!("shards/{shard}/name"));
        format!("shards/{name}")
    }

    /// The record of a sample: JSON and stored payload.
    #[must_use]
    pub fn record(&self, sample: u64) -> (Vec<u8>, Vec<u8>) {
        let row = self.row(sample);
        let shard = self.read(&self.shard_file(row.shard));
        let record = &shard[row.offset as usize..][..row.length as usize];
        let (header, rest) = record.split_first_chunk::<8>().unwrap();
        let (json, stored) = rest.split_at(u64::from_le_bytes(*header) as usize);
        (json.to_vec(), stored.to_vec())
    }

    /// Replaces the whole record of a sample; the records behind it move. The sums become stale.
    pub fn set_record(&self, sample: u64, record: &[u8]) {
        let old = self.row(sample);
        let start = old.offset as usize;
        self.edit(&self.shard_file(old.shard), |bytes| {
            bytes.splice(start..start + old.length as usize, record.iter().copied());
        });
        for other in 0..self.read("index.bin").len() as u64 / 24 {
            let mut row = self.row(other);
            if other == sample {
                row.length = record.len() as u64;
            } else if row.shard == old.shard && row.offset > old.offset {
                row.offset = row.offset - old.length + record.len() as u64;
            }
            self.set_row(other, row);
        }
    }

    /// Replaces the stored payload of a sample.
    pub fn set_stored(&self, sample: u64, stored: &[u8]) {
        let (json, _) = self.record(sample);
        self.set_record(sample, &record_of(&json, stored));
    }

    /// Replaces the JSON in a sample's record.
    pub fn set_json(&self, sample: u64, json: impl AsRef<[u8]>) {
        let (_, stored) = self.record(sample);
        self.set_record(sample, &record_of(json.as_ref(), &stored));
    }

    /// Makes all sums and lengths of the manifest those of the files as they are now, and each
    /// `uncompressed_byte_len` the sum of what its records state. `sample_count` stays.
    pub fn reseal(&self) {
        self.reseal_sums();
        let mut sums = std::collections::BTreeMap::<u64, u64>::new();
        for sample in 0..self.read("index.bin").len() as u64 / 24 {
            let row = self.row(sample);
            let sum = sums.entry(row.shard).or_default();
            *sum = sum.saturating_add(self.stated_len(row).unwrap_or(0));
        }
        self.edit_manifest(|manifest| {
            let count = manifest.get("shards").unwrap().items().len() as u64;
            for n in 0..count {
                let sum = sums.get(&n).copied().unwrap_or(0);
                manifest.set(&format!("shards/{n}/uncompressed_byte_len"), sum.into());
            }
        });
    }

    /// [`TestCache::reseal`] without `uncompressed_byte_len`.
    pub fn reseal_sums(&self) {
        let sum = |file: &str| Json::string(&Sha256Digest::of(&self.read(file)).to_string());
        self.edit_manifest(|manifest| {
            for (key, file) in [
                ("metadata_sha256", "metadata.arrow"),
                ("index_sha256", "index.bin"),
            ] {
                if self.path(file).exists() {
                    manifest.set(key, sum(file));
                }
            }
            let count = manifest.get("shards").unwrap().items().len();
            for n in 0..count {
                let name = manifest.text_at(&format!("shards/{n}/name"));
                let file = format!("shards/{name}");
                if !name.is_empty() && self.path(&file).is_file() {
                    manifest.set(&format!("shards/{n}/sha256"), sum(&file));
                    let len = fs::metadata(self.path(&file)).unwrap().len();
                    manifest.set(&format!("shards/{n}/byte_len"), len.into());
                }
            }
        });
    }

    /// Decoded length that the record at `row` states, when its header makes sense.
    fn stated_len(&self, row: IndexRow) -> Option<u64> {
        let manifest = self.manifest();
        let shard = manifest.get(&format!("shards/{}", row.shard))?;
        let bytes = self.read(&format!("shards/{}", shard.text_at("name")));
        let record = bytes.get(row.offset as usize..row.end()? as usize)?;
        let (header, rest) = record.split_first_chunk::<8>()?;
        let stored = rest.get(usize::try_from(u64::from_le_bytes(*header)).ok()?..)?;
        match shard.text_at("compression/algo").as_str() {
            "lz4" => Some(u32::from_le_bytes(*stored.first_chunk::<4>()?).into()),
            _ => Some(stored.len() as u64),
        }
    }
}

/// A record of this JSON and stored payload.
#[must_use]
pub fn record_of(json: &[u8], stored: &[u8]) -> Vec<u8> {
    let mut record = (json.len() as u64).to_le_bytes().to_vec();
    record.extend_from_slice(json);
    record.extend_from_slice(stored);
    record
}

fn from_end(position: i64, len: usize) -> usize {
    match usize::try_from(position) {
        Ok(position) => position,
        Err(_) => len - usize::try_from(-position).unwrap(),
    }
}
