//! Tiny caches for the tests of views, written by the encoders of the format.

use std::fs;
use std::path::{Path, PathBuf};

use datasetrt::dataset::Dataset;
use datasetrt::format::digest::Sha256Digest;
use datasetrt::format::envelope::Envelope;
use datasetrt::format::index::IndexRow;
use datasetrt::format::manifest::{FormatVersion, Manifest, ShardEntry, ShardName};
use datasetrt::format::metadata::{Field, FieldKind, TableWriter, Value};
use datasetrt::format::record::{Compression, encode_record};

/// A cache to be written.
#[derive(Clone, Debug)]
pub(crate) struct Tiny {
    pub(crate) cache_id: u64,
    pub(crate) source_name: String,
    pub(crate) schema: Vec<Field>,
    pub(crate) compression: Compression,
    /// Values and payload of each sample.
    pub(crate) samples: Vec<(Vec<Value>, Vec<u8>)>,
}

/// A schema from names and kinds.
pub(crate) fn schema(fields: &[(&str, FieldKind)]) -> Vec<Field> {
    let field = |(name, kind): &(&str, FieldKind)| Field {
        name: (*name).to_owned(),
        kind: *kind,
    };
    fields.iter().map(field).collect()
}

/// A text value.
pub(crate) fn text(value: &str) -> Value {
    Value::String(value.to_owned())
}

impl Tiny {
    /// A cache without samples.
    pub(crate) fn new(cache_id: u64, fields: &[(&str, FieldKind)]) -> Self {
        Self {
            cache_id,
            source_name: format!("source-{cache_id}"),
            schema: schema(fields),
            compression: Compression::None,
            samples: Vec::new(),
        }
    }

    /// The same cache with one more sample.
    pub(crate) fn with(mut self, values: Vec<Value>, payload: &[u8]) -> Self {
        self.samples.push((values, payload.to_vec()));
        self
    }

    /// Writes the cache into a folder of its own in `parent`.
    pub(crate) fn write(&self, parent: &Path) -> PathBuf {
        let dir = parent.join(format!("cache-{:020}", self.cache_id));
        fs::create_dir_all(dir.join("shards")).unwrap();
        let envelope = Envelope::new(&self.schema);
        let mut table = TableWriter::new(Vec::new(), &self.schema).unwrap();
        let (mut shard, mut index, mut decoded) = (Vec::new(), Vec::new(), 0);
        for (values, payload) in &self.samples {
            table.push(values.iter().map(Value::borrowed)).unwrap();
            let mut json = Vec::new();
            envelope.write(values.iter().map(Value::borrowed), &mut json);
            let offset = shard.len() as u64;
            encode_record(&json, payload, self.compression, &mut shard).unwrap();
            let row = IndexRow {
                shard: 0,
                offset,
                length: shard.len() as u64 - offset,
            };
            index.extend_from_slice(&row.encode());
            decoded += payload.len() as u64;
        }
        let table = table.finish().unwrap();
        let manifest = Manifest {
            version: FormatVersion::V3,
            cache_id: Some(self.cache_id),
            source_name: self.source_name.clone(),
            sample_count: self.samples.len() as u64,
            schema: self.schema.clone(),
            metadata_sha256: Sha256Digest::of(&table),
            index_sha256: Sha256Digest::of(&index),
            shards: vec![ShardEntry {
                name: ShardName::new("000000.bin".to_owned()).unwrap(),
                decoded_len: decoded,
                byte_len: shard.len() as u64,
                compression: self.compression,
                ratio: 1.0,
                sha256: Sha256Digest::of(&shard),
            }],
        };
        fs::write(dir.join("shards/000000.bin"), shard).unwrap();
        fs::write(dir.join("index.bin"), index).unwrap();
        fs::write(dir.join("metadata.arrow"), table).unwrap();
        fs::write(dir.join("manifest.json"), manifest.to_text()).unwrap();
        dir
    }
}

/// Writes the caches and opens them as one list.
pub(crate) fn open(parent: &Path, caches: &[Tiny]) -> Dataset {
    let dirs: Vec<_> = caches.iter().map(|cache| cache.write(parent)).collect();
    Dataset::open(&dirs).unwrap()
}
