//! Caches of format 2, which no writer of ours makes: written as format 3, with an older manifest.

use std::fs;
use std::path::{Path, PathBuf};

use datasetrt::format::manifest::{Field, FieldKind, FormatVersion, Manifest};
use datasetrt::format::metadata::ValueRef;
use datasetrt::format::record::Compression;
use datasetrt::writer::{CacheWriter, WriterOptions};

/// Three samples with an int, a float and a text, in `folder/name`.
pub(crate) fn v2_cache(folder: &Path, name: &str) -> PathBuf {
    let dir = v3_cache(folder, name);
    let path = dir.join("manifest.json");
    let manifest = Manifest::parse(&fs::read(&path).unwrap()).unwrap();
    let old = Manifest {
        version: FormatVersion::V2,
        cache_id: None,
        ..manifest
    };
    fs::write(path, old.to_text()).unwrap();
    dir
}

/// The same in format 3, with the identity that its name gives.
pub(crate) fn v3_cache(folder: &Path, name: &str) -> PathBuf {
    let field = |name: &str, kind| Field {
        name: name.to_owned(),
        kind,
    };
    let schema = vec![
        field("label", FieldKind::Int),
        field("name", FieldKind::String),
        field("score", FieldKind::Float),
    ];
    let options = WriterOptions {
        compression: Compression::None,
        ..WriterOptions::default()
    };
    let mut writer = CacheWriter::create(folder, name, schema, options).unwrap();
    for n in 0..3_u8 {
        let row = [
            ValueRef::Int(n.into()),
            ValueRef::String("text"),
            ValueRef::Float(f64::from(n) / 3.0),
        ];
        writer.push_row(&[n; 100], &row).unwrap();
    }
    writer.finish().unwrap().dir
}

/// `count` caches of format 2 in `folder`, in the order of their names.
pub(crate) fn v2_caches(folder: &Path, count: usize) -> Vec<PathBuf> {
    let first = v2_cache(folder, "0000");
    let copies = (1..count).map(|n| {
        let dir = folder.join(format!("{n:04}"));
        copy_cache(&first, &dir);
        dir
    });
    [first.clone()].into_iter().chain(copies).collect()
}

/// Copies a cache folder, so that the copy can be changed whatever the modes of the original.
pub(crate) fn copy_cache(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("shards")).unwrap();
    for folder in ["", "shards"] {
        for file in fs::read_dir(from.join(folder)).unwrap() {
            let file = file.unwrap();
            if file.file_type().unwrap().is_file() {
                let copy = to.join(folder).join(file.file_name());
                fs::write(copy, fs::read(file.path()).unwrap()).unwrap();
            }
        }
    }
}
