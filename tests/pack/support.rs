//! Runs the program and reads what it wrote.

#![allow(unreachable_pub, reason = "every module of this test uses it")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use datasetrt::cache::Cache;
use datasetrt::format::metadata::Value;
use datasetrt::storage::OpenFileLimit;
use tempfile::TempDir;

/// A folder with a source `in` and a place `out` for caches.
pub struct Desk {
    pub root: TempDir,
}

impl Desk {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("in")).unwrap();
        Self { root }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub fn out(&self) -> PathBuf {
        self.path("out")
    }

    /// Writes a file below the desk, with the folders above it.
    pub fn file(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// `datasetrt pack --name NAME ARGS... OUT`, in the desk's folder.
    pub fn pack<S: AsRef<OsStr>>(&self, name: &str, args: &[S]) -> Run {
        let mut command = tool();
        command.current_dir(self.root.path());
        command.args(["pack", "--name", name]).args(args).arg("out");
        Run(command.output().unwrap())
    }

    /// Packs, which must succeed, and reads the cache.
    pub fn packed<S: AsRef<OsStr>>(&self, name: &str, args: &[S]) -> Vec<Sample> {
        let run = self.pack(name, args);
        assert_eq!(run.code(), 0, "{}", run.err());
        read(&self.out().join(name))
    }

    /// Packs, which must be refused and leave nothing; gives what stderr said.
    pub fn refused<S: AsRef<OsStr>>(&self, name: &str, args: &[S]) -> String {
        let before = listing(&self.out());
        let run = self.pack(name, args);
        assert_eq!(run.code(), 1, "{}{}", run.out(), run.err());
        assert_eq!(run.out(), "");
        assert_eq!(listing(&self.out()), before);
        run.err()
    }
}

pub fn tool() -> Command {
    Command::new(env!("CARGO_BIN_EXE_datasetrt"))
}

pub struct Run(pub Output);

impl Run {
    pub fn code(&self) -> i32 {
        self.0.status.code().unwrap()
    }

    pub fn out(&self) -> String {
        String::from_utf8(self.0.stdout.clone()).unwrap()
    }

    pub fn err(&self) -> String {
        String::from_utf8(self.0.stderr.clone()).unwrap()
    }
}

/// Names in a folder; `None` when there is none.
pub fn listing(dir: &Path) -> Option<Vec<String>> {
    let entries = fs::read_dir(dir).ok()?;
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    Some(names)
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub payload: Vec<u8>,
    pub metadata: BTreeMap<String, Value>,
}

impl Sample {
    pub fn text(&self, field: &str) -> &str {
        match self.metadata.get(field) {
            Some(Value::String(text)) => text,
            other => panic!("{field}: {other:?}"),
        }
    }

    pub fn payload_text(&self) -> &str {
        std::str::from_utf8(&self.payload).unwrap()
    }
}

/// All samples of a cache, of which every checksum and every record has been checked.
pub fn read(dir: &Path) -> Vec<Sample> {
    let cache = Cache::open(dir, &OpenFileLimit::new(16)).unwrap();
    for (check, _) in cache.file_checks() {
        cache.check_file(check, &mut [0; 4096], &|_| ()).unwrap();
    }
    let fields: Vec<_> = cache
        .manifest()
        .schema
        .iter()
        .map(|f| f.name.clone())
        .collect();
    (0..cache.sample_count())
        .map(|n| Sample {
            payload: cache
                .with_record(n, u64::MAX, |record| {
                    let len = usize::try_from(record.decoded_len()).unwrap();
                    let mut out = vec![0; len];
                    record.decode(&mut out).map(|()| out)
                })
                .unwrap()
                .unwrap(),
            metadata: fields
                .iter()
                .cloned()
                .zip(cache.metadata(n).unwrap().into_iter().flatten())
                .collect(),
        })
        .collect()
}

/// Every file of a cache that is not its manifest, by name.
pub fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for name in ["metadata.arrow", "index.bin"] {
        files.insert(name.to_owned(), fs::read(dir.join(name)).unwrap());
    }
    for name in listing(&dir.join("shards")).unwrap() {
        let bytes = fs::read(dir.join("shards").join(&name)).unwrap();
        files.insert(name, bytes);
    }
    files
}

/// A tar archive of members with their bytes.
pub fn tar<'a>(members: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        if name.ends_with(b"/") {
            header.set_entry_type(tar::EntryType::Directory);
        }
        builder
            .append_data(&mut header, OsStr::from_bytes(name), bytes)
            .unwrap();
    }
    builder.into_inner().unwrap()
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

pub fn zst(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}
