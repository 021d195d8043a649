//! The caches that the tests migrate, and what they look at: files, and the ids of lists.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use datasetrt::dataset::Dataset;
use datasetrt::format::manifest::{FormatVersion, Manifest};
use datasetrt::migrate::{ManifestStatus, ManifestUpdateEntry};

use crate::common::fixture::Fixture;
use crate::common::payload;

/// A small cache of format 2, `folder/name`.
pub(crate) fn v2_cache(folder: &Path, name: &str) -> PathBuf {
    let dir = folder.join(name);
    let _ = Fixture::tiny().name(name).v2().write(&dir);
    dir
}

/// The same in format 3, with the identity that its name gives.
pub(crate) fn v3_cache(folder: &Path, name: &str) -> PathBuf {
    let dir = folder.join(name);
    let _ = Fixture::tiny().name(name).v3().write(&dir);
    dir
}

/// `count` caches of format 2 in `folder`, in the order of their names.
pub(crate) fn v2_caches(folder: &Path, count: usize) -> Vec<PathBuf> {
    (0..count)
        .map(|n| v2_cache(folder, &format!("{n:04}")))
        .collect()
}

pub(crate) fn manifest_path(cache: &Path) -> PathBuf {
    cache.join("manifest.json")
}

pub(crate) fn read_manifest(cache: &Path) -> Vec<u8> {
    fs::read(manifest_path(cache)).unwrap()
}

/// Version and stored id of a cache, whose manifest must be whole.
pub(crate) fn stored(cache: &Path) -> (u32, Option<u64>) {
    let manifest = Manifest::parse(&read_manifest(cache)).unwrap();
    let version = match manifest.version {
        FormatVersion::V2 => 2,
        FormatVersion::V3 => 3,
    };
    (version, manifest.cache_id)
}

pub(crate) fn edit_manifest(cache: &Path, from: &str, to: &str) {
    let text = String::from_utf8(read_manifest(cache)).unwrap();
    assert!(text.contains(from), "{from} is not in {text}");
    fs::write(manifest_path(cache), text.replacen(from, to, 1)).unwrap();
}

/// A file's content, inode and time of change.
pub(crate) type Seen = (Vec<u8>, u64, SystemTime);

/// Everything below `folder` but the folders themselves, by path.
pub(crate) fn snapshot(folder: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            found.extend(snapshot(&path));
        } else {
            let content = match meta.is_symlink() {
                true => fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes(),
                false => fs::read(&path).unwrap(),
            };
            found.insert(path, (content, meta.ino(), meta.modified().unwrap()));
        }
    }
    found
}

pub(crate) fn open(caches: &[PathBuf]) -> Dataset {
    Dataset::open(caches).unwrap()
}

pub(crate) fn ids(dataset: &Dataset) -> Vec<u64> {
    dataset
        .entries()
        .iter()
        .map(|entry| entry.cache_id)
        .collect()
}

pub(crate) fn entry(cache: &Path, cache_id: u64, status: ManifestStatus) -> ManifestUpdateEntry {
    ManifestUpdateEntry {
        path: manifest_path(cache),
        cache_id,
        status,
    }
}

/// Every payload of a list, by identity and sample.
pub(crate) fn payloads(dataset: &Dataset) -> BTreeMap<(u64, u64), Vec<u8>> {
    let mut payloads = BTreeMap::new();
    for entry in dataset.entries() {
        for sample in 0..entry.cache.sample_count() {
            let payload = payload(&entry.cache, sample).unwrap();
            payloads.insert((entry.cache_id, sample), payload);
        }
    }
    payloads
}

/// The temporary files that migrations have left in a cache.
pub(crate) fn temporary_files(cache: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(cache)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "tmp"))
        .collect();
    found.sort();
    found
}
