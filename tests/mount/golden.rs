//! Every cache of the reference, mounted: each sample has its size and its bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use datasetrt::format::digest::Sha256Digest;

use crate::common::golden;
use crate::common::mount::{can_mount, program};
use crate::live::Place;

/// Lists in which no identity occurs twice, and which have all caches between them.
fn lists(dir: &std::path::Path) -> Vec<Vec<(String, u64)>> {
    let mut lists: Vec<Vec<(String, u64)>> = Vec::new();
    for name in golden::cache_names(dir) {
        let stored = golden::expected(dir, &name).facts["stored_cache_id"].as_u64();
        let fits = |list: &&mut Vec<(String, u64)>| {
            let id = stored.unwrap_or(list.len() as u64);
            list.iter().all(|(_, other)| *other != id)
        };
        match lists.iter_mut().find(fits) {
            Some(list) => list.push((name, stored.unwrap_or(list.len() as u64))),
            None => lists.push(vec![(name, stored.unwrap_or(0))]),
        }
    }
    lists
}

#[test]
fn every_sample_of_every_golden_cache_is_a_file_with_its_size_and_bytes() {
    if !can_mount() {
        return;
    }
    let Some(dir) = golden::dir() else { return };
    let (mut samples, mut hard) = (0, 0);
    let mut seen = BTreeMap::new();
    for list in lists(&dir) {
        let place = Place::new();
        let dirs: Vec<PathBuf> = list.iter().map(|(name, _)| dir.join(name)).collect();
        let live = place.mount_dirs(program(), &dirs);
        for (name, id) in &list {
            let expected = golden::expected(&dir, name);
            let folder = live.path(&format!("samples/{id}"));
            assert_eq!(
                fs::read_dir(&folder).unwrap().count(),
                expected.samples.len(),
                "{name}"
            );
            for (n, sample) in expected.samples.iter().enumerate() {
                let path = folder.join(n.to_string());
                assert_eq!(fs::metadata(&path).unwrap().len(), sample.size, "{path:?}");
                let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{name}, {n}: {e}"));
                assert_eq!(bytes.len() as u64, sample.size);
                assert_eq!(
                    Sha256Digest::of(&bytes).to_string(),
                    sample.sha256,
                    "{name}, {n}"
                );
                samples += 1;
                hard += usize::from(sample.reference_fails);
            }
            for file in ["manifest.json", "metadata.arrow"] {
                let shown = live.read(&format!("caches/{id}/{file}")).unwrap();
                assert!(
                    shown == fs::read(dir.join(name).join(file)).unwrap(),
                    "{name}, {file}"
                );
            }
            seen.insert(name.clone(), expected.samples.len());
        }
        assert_eq!(live.damaged(), [""; 0]);
        live.assert_sound();
        live.stop();
    }
    assert_eq!(seen.len(), golden::cache_names(&dir).len());
    assert_eq!(samples, seen.values().sum::<usize>());
    // The doubles that the reference reads wrong, and the rows that it cannot read.
    assert!(hard >= 665, "{hard}");
    assert_eq!(seen["v2-nonfinite"], 6);
}
