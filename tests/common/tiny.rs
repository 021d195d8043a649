//! Tiny caches made record by record, and ways to damage them.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use datasetrt::format::digest::{Sha256Digest, cache_id_of};
use datasetrt::format::envelope::Envelope;
use datasetrt::format::index::{IndexRow, ROW_LEN};
use datasetrt::format::manifest::{FormatVersion, Manifest, ShardEntry, ShardName};
use datasetrt::format::metadata::{Field, FieldKind, TableWriter, Value};
use datasetrt::format::record::{Compression, encode_record};
use datasetrt::format::shard_file_name;

/// A cache to be written. Samples go to the last shard of `shards`.
pub(crate) struct Tiny {
    pub(crate) version: FormatVersion,
    pub(crate) name: String,
    pub(crate) compression: Compression,
    pub(crate) schema: Vec<Field>,
    rows: Vec<Vec<Value>>,
    pub(crate) index: Vec<IndexRow>,
    shards: Vec<(Vec<u8>, u64)>,
}

impl Tiny {
    /// A format-3 cache without samples, with the fields `label` (string) and `n` (int).
    pub(crate) fn new(compression: Compression) -> Self {
        Self::with_schema(
            compression,
            &[("label", FieldKind::String), ("n", FieldKind::Int)],
        )
    }

    pub(crate) fn with_schema(compression: Compression, schema: &[(&str, FieldKind)]) -> Self {
        let schema = schema.iter().map(|&(name, kind)| Field {
            name: name.to_owned(),
            kind,
        });
        Self {
            version: FormatVersion::V3,
            name: "tiny".to_owned(),
            compression,
            schema: schema.collect(),
            rows: Vec::new(),
            index: Vec::new(),
            shards: vec![(Vec::new(), 0)],
        }
    }

    /// Appends a sample with label `label` and its number.
    pub(crate) fn push(&mut self, payload: &[u8], label: &str) {
        let n = i64::try_from(self.rows.len()).unwrap();
        let row = vec![Value::String(label.to_owned()), Value::Int(n)];
        self.push_row(payload, row);
    }

    pub(crate) fn push_row(&mut self, payload: &[u8], row: Vec<Value>) {
        let mut json = Vec::new();
        let values = row.iter().map(Value::borrowed);
        Envelope::new(&self.schema).write(values, &mut json);
        let mut record = Vec::new();
        encode_record(&json, payload, self.compression, &mut record).unwrap();
        self.push_record(&record, payload.len() as u64, row);
    }

    /// Appends a sample whose record is given byte by byte.
    pub(crate) fn push_record(&mut self, record: &[u8], decoded_len: u64, row: Vec<Value>) {
        let number = self.shards.len() as u64 - 1;
        let (shard, decoded) = self.shards.last_mut().unwrap();
        self.index.push(IndexRow {
            shard: number,
            offset: shard.len() as u64,
            length: record.len() as u64,
        });
        shard.extend_from_slice(record);
        *decoded += decoded_len;
        self.rows.push(row);
    }

    /// The samples that follow go to a new shard.
    pub(crate) fn next_shard(&mut self) {
        self.shards.push((Vec::new(), 0));
    }

    /// Writes the cache as folder `dir`.
    pub(crate) fn write(&self, dir: &Path) -> PathBuf {
        fs::create_dir_all(dir.join("shards")).unwrap();
        let mut table = TableWriter::new(Vec::new(), &self.schema).unwrap();
        for row in &self.rows {
            table.push(row.iter().map(Value::borrowed)).unwrap();
        }
        let table = table.finish().unwrap();
        let index: Vec<u8> = self.index.iter().flat_map(|row| row.encode()).collect();
        let mut shards = Vec::new();
        for (number, (bytes, decoded_len)) in (0_u64..).zip(&self.shards) {
            let name = shard_file_name(number);
            fs::write(dir.join("shards").join(&name), bytes).unwrap();
            shards.push(ShardEntry {
                name: ShardName::new(name).unwrap(),
                decoded_len: *decoded_len,
                byte_len: bytes.len() as u64,
                compression: self.compression,
                ratio: 1.0,
                sha256: Sha256Digest::of(bytes),
            });
        }
        let manifest = Manifest {
            version: self.version,
            cache_id: (self.version == FormatVersion::V3).then(|| cache_id_of(&self.name)),
            source_name: self.name.clone(),
            sample_count: self.rows.len() as u64,
            schema: self.schema.clone(),
            metadata_sha256: Sha256Digest::of(&table),
            index_sha256: Sha256Digest::of(&index),
            shards,
        };
        fs::write(dir.join("metadata.arrow"), table).unwrap();
        fs::write(dir.join("index.bin"), index).unwrap();
        fs::write(dir.join("manifest.json"), manifest.to_text()).unwrap();
        dir.to_path_buf()
    }
}

/// Three samples of `len` bytes that differ in payload and metadata, in one shard.
pub(crate) fn three(compression: Compression, len: usize) -> Tiny {
    let mut tiny = Tiny::new(compression);
    for n in 0..3_u8 {
        tiny.push(&payload(len, n), &format!("label {n}"));
    }
    tiny
}

/// `len` bytes that depend on `seed` and do not repeat soon.
pub(crate) fn payload(len: usize, seed: u8) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ u64::from(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Changes the manifest as JSON.
pub(crate) fn edit_manifest(cache: &Path, edit: impl FnOnce(&mut serde_json::Value)) {
    let path = cache.join("manifest.json");
    let mut manifest = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut manifest);
    fs::write(&path, serde_json::to_vec_pretty(&manifest).unwrap()).unwrap();
}

/// Makes the manifest's lengths and checksums those of the files.
pub(crate) fn reseal(cache: &Path) {
    let digest = |name: &str| Sha256Digest::of(&fs::read(cache.join(name)).unwrap()).to_string();
    edit_manifest(cache, |manifest| {
        manifest["metadata_sha256"] = digest("metadata.arrow").into();
        manifest["index_sha256"] = digest("index.bin").into();
        for shard in manifest["shards"].as_array_mut().unwrap() {
            let name = format!("shards/{}", shard["name"].as_str().unwrap());
            shard["byte_len"] = fs::metadata(cache.join(&name)).unwrap().len().into();
            shard["sha256"] = digest(&name).into();
        }
    });
}

/// Changes a file's bytes in place.
pub(crate) fn edit_file(path: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    edit(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// Changes the rows of the index.
pub(crate) fn edit_index(cache: &Path, edit: impl FnOnce(&mut Vec<IndexRow>)) {
    edit_file(&cache.join("index.bin"), |bytes| {
        let rows = bytes.as_chunks::<ROW_LEN>().0;
        let mut rows = rows.iter().map(IndexRow::decode).collect();
        edit(&mut rows);
        *bytes = rows.iter().flat_map(|row| row.encode()).collect();
    });
}

pub(crate) fn row(cache: &Path, sample: usize) -> IndexRow {
    let bytes = fs::read(cache.join("index.bin")).unwrap();
    IndexRow::decode(&bytes.as_chunks::<ROW_LEN>().0[sample])
}

pub(crate) fn first_shard(cache: &Path) -> PathBuf {
    cache.join("shards/000000.bin")
}

/// What one run of the tool gave.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Run {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: output.stdout,
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs `datasetrt` with `arguments`.
pub(crate) fn tool<I: AsRef<std::ffi::OsStr>>(arguments: &[I]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_datasetrt"));
    command.args(arguments).output().unwrap().into()
}

/// As [`tool`], with at most `kib` KiB of address space. `code` is `None` after a signal.
pub(crate) fn tool_within(kib: u64, arguments: &[&str]) -> Run {
    let script = format!("ulimit -v {kib}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_datasetrt")]);
    command.args(arguments).output().unwrap().into()
}

/// The caches of the reference implementation; says so when they are absent.
pub(crate) fn golden() -> Vec<PathBuf> {
    let folder = std::env::var_os("DATASETRT_GOLDEN").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/golden"),
        PathBuf::from,
    );
    let Ok(entries) = fs::read_dir(&folder) else {
        eprintln!("GOLDEN DATA ABSENT: {} is not there", folder.display());
        return Vec::new();
    };
    let mut caches: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("manifest.json").exists())
        .collect();
    caches.sort();
    caches
}
