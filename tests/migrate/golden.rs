//! Against what the reference wrote.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::golden::{copy_cache, dir};
use crate::files::*;

/// Migrates copies of golden caches as one list and gives the new manifests.
fn migrated(golden: &Path, names: &[&str]) -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let list: Vec<PathBuf> = names
        .iter()
        .enumerate()
        .map(|(n, name)| {
            let copy = folder.path().join(n.to_string());
            copy_cache(&golden.join(name), &copy);
            copy
        })
        .collect();
    let dataset = open(&list);
    let content = payloads(&dataset);
    dataset.update_manifests(3).unwrap();
    assert!(
        payloads(&open(&list)) == content,
        "same samples under the same ids"
    );
    list.iter().map(|cache| read_manifest(cache)).collect()
}

#[test]
fn manifests_of_the_references_layout_become_what_the_reference_writes() {
    let Some(golden) = dir() else { return };
    let names = ["v2-plain", "v2-lz4", "v2-before-migration"];
    for (ours, name) in migrated(&golden, &names).iter().zip(names) {
        let theirs = golden.join(format!("migration-manifests/{name}.v3.json"));
        assert!(*ours == fs::read(theirs).unwrap(), "{name}");
    }
    let list = ["v2-plain", "v2-lz4", "v2-before-migration"];
    let ours = migrated(&golden, &list).pop().unwrap();
    assert!(ours == fs::read(golden.join("v3-migrated/manifest.json")).unwrap());
}

#[test]
fn extensions_that_the_reference_keeps_are_kept_too() {
    let Some(golden) = dir() else { return };
    let ours = migrated(&golden, &["v2-plain", "v2-extensions"])
        .pop()
        .unwrap();
    let theirs = fs::read(golden.join("v3-extensions-migrated/manifest.json")).unwrap();
    let mut ours: Value = serde_json::from_slice(&ours).unwrap();
    let theirs: Value = serde_json::from_slice(&theirs).unwrap();
    // The reference drops unknown keys below the top level.
    let field = ours["metadata_schema"][0].as_object_mut().unwrap();
    assert_eq!(field.remove("unit").unwrap(), "kept?");
    let shard = ours["shards"][0].as_object_mut().unwrap();
    assert_eq!(shard.remove("shard_note").unwrap(), "kept?");
    assert_eq!(ours, theirs);
}

#[test]
fn every_golden_v2_cache_migrates() {
    let Some(golden) = dir() else { return };
    let names = [
        "v2-unicode",
        "v2-odd-keys",
        "v2-edge-numbers",
        "v2-nonfinite",
        "v2-many",
        "v3-new",
    ];
    let before = fs::read_to_string(golden.join("v2-unicode/manifest.json")).unwrap();
    let manifests = migrated(&golden, &names);
    let expected = before.replacen("version\": 2", "version\": 3,\n  \"cache_id\": 0", 1);
    assert!(manifests[0] == expected.as_bytes());
    assert!(manifests[5] == fs::read(golden.join("v3-new/manifest.json")).unwrap());
}
