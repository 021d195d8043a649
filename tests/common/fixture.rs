//! Tiny caches written with the crate's own encoders; [`TestCache`] is what one can do to them then.
//!
//! ```text
//! let cache = Fixture::tiny().lz4().build();               // in a temporary folder
//! let cache = Fixture::new()
//!     .sample(Sample::new(b"abc").with("label", 3).with("name", "x"))
//!     .v2().max_shard_bytes(100).write(dir);
//! cache.flip("shards/000000.bin", -1, 0x01);               // stale sums
//! cache.reseal();                                          // sums and lengths agree again
//! assert!(cache.open().is_err());
//! ```

use std::fs;
use std::path::Path;

use datasetrt::format::digest::{Sha256Digest, cache_id_of};
use datasetrt::format::envelope::Envelope;
use datasetrt::format::index::IndexRow;
use datasetrt::format::manifest::{FormatVersion, Manifest, ShardEntry, ShardName};
use datasetrt::format::metadata::{Field, FieldKind, TableWriter, Value};
use datasetrt::format::record::{Compression, encode_record};
use datasetrt::format::shard_file_name;
use tempfile::TempDir;

pub use super::test_cache::{TestCache, record_of};

/// A payload and its metadata.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// The payload, decoded.
    pub payload: Vec<u8>,
    /// Names and values, in any order.
    pub metadata: Vec<(String, Value)>,
}

impl Sample {
    /// A sample without metadata.
    pub fn new(payload: impl AsRef<[u8]>) -> Self {
        Self {
            payload: payload.as_ref().to_vec(),
            metadata: Vec::new(),
        }
    }

    /// Adds a metadata value.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl IntoValue) -> Self {
        self.metadata.push((name.to_owned(), value.into_value()));
        self
    }

    /// The value of a field.
    #[must_use]
    pub fn value(&self, name: &str) -> &Value {
        let found = self.metadata.iter().find(|(key, _)| key == name);
        &found.unwrap_or_else(|| panic!("no value of {name:?}")).1
    }
}

/// What [`Sample::with`] takes.
pub trait IntoValue {
    /// The value.
    fn into_value(self) -> Value;
}

macro_rules! into_value {
    ($($from:ty => $to:expr),*) => {$(
        impl IntoValue for $from {
            fn into_value(self) -> Value {
                $to(self.into())
            }
        }
    )*};
}
into_value!(bool => Value::Bool, i32 => Value::Int, i64 => Value::Int, f64 => Value::Float,
            &str => Value::String, String => Value::String);

impl IntoValue for Value {
    fn into_value(self) -> Value {
        self
    }
}

/// A cache to be written.
#[derive(Clone, Debug)]
pub struct Fixture {
    version: FormatVersion,
    name: String,
    cache_id: Option<u64>,
    compression: Compression,
    ratio: f64,
    max_shard_bytes: u64,
    schema: Option<Vec<Field>>,
    samples: Vec<Sample>,
}

impl Default for Fixture {
    fn default() -> Self {
        Self::new()
    }
}

impl Fixture {
    /// A cache named "source" without samples: format 3, no compression, one shard.
    #[must_use]
    pub fn new() -> Self {
        Self {
            version: FormatVersion::V3,
            name: "source".to_owned(),
            cache_id: None,
            compression: Compression::None,
            ratio: 1.0,
            max_shard_bytes: u64::MAX,
            schema: None,
            samples: Vec::new(),
        }
    }

    /// Three samples with the fields label (int), score (float) and name (string), in one shard.
    #[must_use]
    pub fn tiny() -> Self {
        Self::new().samples((0..3_i32).map(|n| {
            Sample::new(format!("payload of sample {n}: {}", "abc".repeat(12)))
                .with("label", n + 7)
                .with("score", f64::from(n) - 0.5)
                .with("name", format!("row {n} \u{e9}"))
        }))
    }

    /// Small caches of all kinds: both versions and compressions, one shard and several.
    #[must_use]
    pub fn kinds() -> [Self; 4] {
        let odd: [&[u8]; 2] = [b"", &[7; 5000]];
        [
            Self::tiny().v2(),
            Self::tiny().v2().lz4(),
            Self::tiny().lz4().max_shard_bytes(1),
            Self::new().payloads(odd).max_shard_bytes(100),
        ]
    }

    /// Adds a sample.
    #[must_use]
    pub fn sample(mut self, sample: Sample) -> Self {
        self.samples.push(sample);
        self
    }

    /// Adds samples.
    #[must_use]
    pub fn samples(mut self, samples: impl IntoIterator<Item = Sample>) -> Self {
        self.samples.extend(samples);
        self
    }

    /// Adds samples that have these payloads and their own number as metadata.
    #[must_use]
    pub fn payloads<P: AsRef<[u8]>>(self, payloads: impl IntoIterator<Item = P>) -> Self {
        let start = self.samples.len() as i64;
        let numbered = (start..).zip(payloads);
        self.samples(numbered.map(|(n, payload)| Sample::new(payload).with("n", n)))
    }

    /// The fields, in this order; else those of the first sample, by the bytes of their names.
    #[must_use]
    pub fn schema(mut self, fields: &[(&str, FieldKind)]) -> Self {
        let fields = fields.iter().map(|&(name, kind)| Field {
            name: name.to_owned(),
            kind,
        });
        self.schema = Some(fields.collect());
        self
    }

    /// The source name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Payloads are stored as LZ4 blocks.
    #[must_use]
    pub fn lz4(self) -> Self {
        self.compression(Compression::Lz4)
    }

    /// How payloads are stored.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// What the manifest says was asked of the compressor.
    #[must_use]
    pub fn ratio(mut self, ratio: f64) -> Self {
        self.ratio = ratio;
        self
    }

    /// Format 2: no stored identity.
    #[must_use]
    pub fn v2(mut self) -> Self {
        self.version = FormatVersion::V2;
        self
    }

    /// Format 3, with the id of the source name.
    #[must_use]
    pub fn v3(mut self) -> Self {
        self.version = FormatVersion::V3;
        self
    }

    /// Format 3, with this id.
    #[must_use]
    pub fn cache_id(mut self, cache_id: u64) -> Self {
        self.cache_id = Some(cache_id);
        self.v3()
    }

    /// A shard that is not empty ends before a record that would make it longer than this.
    #[must_use]
    pub fn max_shard_bytes(mut self, bytes: u64) -> Self {
        self.max_shard_bytes = bytes;
        self
    }

    fn fields(&self) -> Vec<Field> {
        if let Some(schema) = &self.schema {
            return schema.clone();
        }
        let mut fields: Vec<Field> = self
            .samples
            .first()
            .map_or(&[][..], |sample| &sample.metadata)
            .iter()
            .map(|(name, value)| Field {
                name: name.clone(),
                kind: value.kind(),
            })
            .collect();
        fields.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
        fields
    }

    /// Writes the cache into a temporary folder, which goes with the returned value.
    #[must_use]
    pub fn build(self) -> TestCache {
        let temp = TempDir::new().unwrap();
        let mut cache = self.write(&temp.path().join("cache"));
        cache.keep(temp);
        cache
    }

    /// Writes the cache into folder `dir`, which is made.
    #[must_use]
    pub fn write(self, dir: &Path) -> TestCache {
        let schema = self.fields();
        fs::create_dir_all(dir.join("shards")).unwrap();
        let (shards, rows) = self.shards(&schema);
        let entries = shards.iter().enumerate().map(|(n, (bytes, decoded_len))| {
            let name = shard_file_name(n as u64);
            fs::write(dir.join("shards").join(&name), bytes).unwrap();
            ShardEntry {
                name: ShardName::new(name).unwrap(),
                decoded_len: *decoded_len,
                byte_len: bytes.len() as u64,
                compression: self.compression,
                ratio: self.ratio,
                sha256: Sha256Digest::of(bytes),
            }
        });
        let entries = entries.collect();
        let index: Vec<u8> = rows.iter().flat_map(|row| row.encode()).collect();
        fs::write(dir.join("index.bin"), &index).unwrap();
        let table = self.table(&schema);
        fs::write(dir.join("metadata.arrow"), &table).unwrap();
        let manifest = Manifest {
            version: self.version,
            cache_id: match self.version {
                FormatVersion::V2 => None,
                FormatVersion::V3 => Some(self.cache_id.unwrap_or(cache_id_of(&self.name))),
            },
            source_name: self.name.clone(),
            sample_count: self.samples.len() as u64,
            schema: schema.clone(),
            metadata_sha256: Sha256Digest::of(&table),
            index_sha256: Sha256Digest::of(&index),
            shards: entries,
        };
        fs::write(dir.join("manifest.json"), manifest.to_text()).unwrap();
        let mut cache = TestCache::at(dir);
        cache.samples = self.samples;
        cache.schema = schema;
        cache
    }

    /// The bytes and the decoded length of each shard, and where each record went.
    fn shards(&self, schema: &[Field]) -> (Vec<(Vec<u8>, u64)>, Vec<IndexRow>) {
        let envelope = Envelope::new(schema);
        let mut shards: Vec<(Vec<u8>, u64)> = Vec::new();
        let mut rows = Vec::new();
        for sample in &self.samples {
            let mut json = Vec::new();
            let values = schema.iter().map(|f| sample.value(&f.name).borrowed());
            envelope.write(values, &mut json);
            let mut record = Vec::new();
            encode_record(&json, &sample.payload, self.compression, &mut record).unwrap();
            let fits = |shard: &(Vec<u8>, u64)| {
                shard.0.len() as u64 + record.len() as u64 <= self.max_shard_bytes
            };
            if !shards.last().is_some_and(fits) {
                shards.push((Vec::new(), 0));
            }
            let number = shards.len() as u64 - 1;
            let (bytes, decoded_len) = shards.last_mut().unwrap();
            rows.push(IndexRow {
                shard: number,
                offset: bytes.len() as u64,
                length: record.len() as u64,
            });
            bytes.extend_from_slice(&record);
            *decoded_len += sample.payload.len() as u64;
        }
        (shards, rows)
    }

    fn table(&self, schema: &[Field]) -> Vec<u8> {
        let mut table = TableWriter::new(Vec::new(), schema).unwrap();
        for sample in &self.samples {
            let values = schema.iter().map(|f| sample.value(&f.name).borrowed());
            table.push(values).unwrap();
        }
        table.finish().unwrap()
    }
}
