//! `datasetrt demo`: a small data set to try things on.

mod pictures;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::output::{plain, written};
use super::refuse;
use super::tool::PROGRAM;
use crate::error::{Error, Result};
use crate::format::metadata::{Field, FieldKind, ValueRef};
use crate::format::record::Compression;
use crate::writer::{CacheWriter, DEFAULT_MAX_SHARD_BYTES, WriterOptions};
use pictures::Picture;

/// Pictures of each cache.
const PICTURES: u32 = 64;
/// The caches: the same pictures, stored in both ways.
const CACHES: [(&str, Compression); 2] = [
    ("demo-lz4", Compression::Lz4),
    ("demo-plain", Compression::None),
];

/// Write a small data set to try things on: 64 pictures in two caches, DIR/demo-lz4 and
/// DIR/demo-plain, always the same.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder for the two caches; created when it is missing.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl Args {
    /// Runs the command.
    #[must_use]
    pub fn run(self) -> ExitCode {
        match write(&self.dir) {
            Ok(lines) => {
                let mut out = io::stdout();
                let printed = lines.iter().try_for_each(|line| writeln!(out, "{line}"));
                written(PROGRAM, printed, ExitCode::SUCCESS)
            }
            Err(error) => refuse(PROGRAM, &error.chain(), false),
        }
    }
}

/// Writes both caches into `dir` and gives a line about each.
fn write(dir: &Path) -> Result<Vec<String>> {
    let pictures: Vec<Picture> = (0..PICTURES)
        .map(Picture::draw)
        .collect::<Result<_, _>>()
        .map_err(|error| Error::refused(dir, format!("cannot encode a picture: {error}")))?;
    let mut lines = Vec::new();
    for (name, compression) in CACHES {
        let field = |name: &str, kind| Field {
            name: name.to_owned(),
            kind,
        };
        let schema = vec![
            field("brightness", FieldKind::Float),
            field("file_name", FieldKind::String),
            field("index", FieldKind::Int),
            field("label", FieldKind::String),
        ];
        let options = WriterOptions {
            compression,
            max_shard_bytes: DEFAULT_MAX_SHARD_BYTES,
        };
        let mut writer = CacheWriter::create(dir, name, schema, options)?;
        for picture in &pictures {
            let row = [
                ValueRef::Float(picture.brightness),
                ValueRef::String(&picture.file_name),
                ValueRef::Int(picture.index),
                ValueRef::String(picture.label),
            ];
            writer.push_row(&picture.png, &row)?;
        }
        let report = writer.finish()?;
        lines.push(format!(
            "{}: {} pictures, cache_id {}",
            plain(&report.dir.to_string_lossy()),
            report.samples,
            report.cache_id
        ));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::storage::OpenFileLimit;

    #[test]
    fn both_caches_hold_the_same_pictures() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path()).unwrap();
        let [lz4, plain] = CACHES
            .map(|(name, _)| Cache::open(&dir.path().join(name), &OpenFileLimit::new(4)).unwrap());
        for n in 0..u64::from(PICTURES) {
            let payload = |cache: &Cache| {
                let mut out = vec![0; usize::try_from(cache.payload_len(n).unwrap()).unwrap()];
                cache
                    .with_record(n, u64::MAX, |record| record.decode(&mut out))
                    .unwrap()
                    .unwrap();
                out
            };
            assert_eq!(payload(&lz4), payload(&plain));
            assert!(payload(&lz4).starts_with(b"\x89PNG\r\n\x1a\n"));
            assert_eq!(lz4.metadata(n).unwrap(), plain.metadata(n).unwrap());
        }
        assert!(write(dir.path()).is_err(), "never over a finished cache");
    }
}
