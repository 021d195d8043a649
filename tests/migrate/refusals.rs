//! What a migration refuses, and that it then leaves everything as it was.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use datasetrt::dataset::Dataset;
use datasetrt::migrate::{ManifestStatus, ManifestUpdateError, update_manifests_with};
use datasetrt::storage::Step;
use rustix::io::Errno;

use crate::files::*;

use ManifestStatus::{Unchanged, Updated};

/// Migrates a list that must be refused before anything is changed.
fn refused(dataset: &Dataset, folder: &Path) -> ManifestUpdateError {
    let before = snapshot(folder);
    let error = dataset.update_manifests(3).unwrap_err();
    assert_eq!(error.entries, [], "{error}");
    assert_eq!(snapshot(folder), before, "{error}");
    error
}

fn errno(error: &ManifestUpdateError) -> Option<Errno> {
    error.errno.map(Errno::from_raw_os_error)
}

#[test]
fn versions_other_than_3() {
    let folder = tempfile::tempdir().unwrap();
    let list = v2_caches(folder.path(), 2);
    let dataset = open(&list);
    for version in [0, 1, 2, 4, 33, u32::MAX] {
        let before = snapshot(folder.path());
        let error = dataset.update_manifests(version).unwrap_err();
        assert_eq!(
            (error.path.as_ref(), errno(&error)),
            (None, Some(Errno::INVAL))
        );
        assert_eq!(error.entries, []);
        assert_eq!(snapshot(folder.path()), before);
    }
}

#[test]
fn two_entries_with_one_manifest() {
    let folder = tempfile::tempdir().unwrap();
    let list = v2_caches(folder.path(), 5);
    let alias = folder.path().join("alias");
    symlink(&list[1], &alias).unwrap();
    fs::remove_file(manifest_path(&list[2])).unwrap();
    symlink(manifest_path(&list[1]), manifest_path(&list[2])).unwrap();
    fs::remove_file(manifest_path(&list[3])).unwrap();
    fs::hard_link(manifest_path(&list[1]), manifest_path(&list[3])).unwrap();
    let dotted = folder.path().join("0000/../0001");
    for other in [&list[1], &alias, &list[2], &list[3], &dotted] {
        let given = [
            list[0].clone(),
            list[1].clone(),
            other.clone(),
            list[4].clone(),
        ];
        let error = refused(&open(&given), folder.path());
        assert_eq!(errno(&error), Some(Errno::EXIST), "{error}");
        assert_eq!(error.path, Some(manifest_path(other)));
        let first = list[1].display().to_string();
        assert!(error.message.contains(&first), "{error}");
    }
}

#[test]
fn manifests_that_are_not_what_was_loaded() {
    type Change = fn(&Path);
    let changes: [(&str, Errno, Change); 9] = [
        ("missing", Errno::NOENT, |cache| {
            fs::remove_file(manifest_path(cache)).unwrap();
        }),
        ("cache missing", Errno::NOENT, |cache| {
            fs::rename(cache, cache.with_extension("away")).unwrap();
        }),
        ("empty", Errno::STALE, |cache| {
            fs::write(manifest_path(cache), "").unwrap();
        }),
        ("cut", Errno::STALE, |cache| {
            let bytes = read_manifest(cache);
            fs::write(manifest_path(cache), &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("another count", Errno::STALE, |cache| {
            edit_manifest(cache, "\"sample_count\": 3", "\"sample_count\": 4");
        }),
        ("white space only", Errno::STALE, |cache| {
            edit_manifest(cache, "{\n", "{ \n");
        }),
        ("a later version", Errno::STALE, |cache| {
            edit_manifest(cache, "\"format_version\": 2", "\"format_version\": 4");
        }),
        ("another id", Errno::STALE, |cache| {
            let three = "\"format_version\": 3, \"cache_id\": 7";
            edit_manifest(cache, "\"format_version\": 2", three);
        }),
        ("a folder", Errno::STALE, |cache| {
            fs::remove_file(manifest_path(cache)).unwrap();
            fs::create_dir(manifest_path(cache)).unwrap();
        }),
    ];
    for (what, expected, change) in changes {
        let folder = tempfile::tempdir().unwrap();
        let list = v2_caches(folder.path(), 3);
        let dataset = open(&list);
        change(&list[2]);
        let error = refused(&dataset, folder.path());
        assert_eq!(errno(&error), Some(expected), "{what}: {error}");
        assert_eq!(error.path, Some(manifest_path(&list[2])), "{what}");
    }
}

#[test]
fn a_v3_manifest_that_was_downgraded_or_given_another_id() {
    let folder = tempfile::tempdir().unwrap();
    let list = [v2_cache(folder.path(), "a"), v3_cache(folder.path(), "b")];
    let dataset = open(&list);
    let loaded = read_manifest(&list[1]);
    let id = stored(&list[1]).1.unwrap();
    let version_and_id = format!("\"format_version\": 3,\n  \"cache_id\": {id}");
    for changed in [
        "\"format_version\": 2".to_owned(),
        "\"format_version\": 3,\n  \"cache_id\": 5".to_owned(),
        format!("\"format_version\": 3,\n \"cache_id\": {id}"),
    ] {
        edit_manifest(&list[1], &version_and_id, &changed);
        let error = refused(&dataset, folder.path());
        assert_eq!(errno(&error), Some(Errno::STALE), "{error}");
        fs::write(manifest_path(&list[1]), &loaded).unwrap();
    }
    assert!(dataset.update_manifests(3).is_ok());
}

#[test]
fn a_manifest_that_somebody_else_has_migrated_stays_if_the_id_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let list = v2_caches(folder.path(), 2);
    let dataset = open(&list);
    let mut theirs: serde_json::Value = serde_json::from_slice(&read_manifest(&list[1])).unwrap();
    theirs["format_version"] = 3.into();
    theirs["cache_id"] = 1.into();
    fs::write(manifest_path(&list[1]), theirs.to_string()).unwrap();
    let report = dataset.update_manifests(3).unwrap();
    let expected = [entry(&list[0], 0, Updated), entry(&list[1], 1, Unchanged)];
    assert_eq!(report.entries, expected);
    assert_eq!(read_manifest(&list[1]), theirs.to_string().as_bytes());

    theirs["sample_count"] = 4.into();
    fs::write(manifest_path(&list[1]), theirs.to_string()).unwrap();
    assert_eq!(errno(&refused(&dataset, folder.path())), Some(Errno::STALE));
}

#[test]
fn a_manifest_that_changes_after_the_first_check() {
    let folder = tempfile::tempdir().unwrap();
    let list = v2_caches(folder.path(), 3);
    let dataset = open(&list);
    let mut hook = |step| {
        if step == Step::CreateTemp && stored(&list[1]).0 == 2 {
            fs::write(manifest_path(&list[1]), "{}").unwrap();
        }
        Ok(())
    };
    // The first of three is written when the second changes.
    let stop = AtomicBool::new(false);
    let error = update_manifests_with(&dataset, 3, &stop, &mut hook).unwrap_err();
    assert_eq!(errno(&error), Some(Errno::STALE), "{error}");
    assert_eq!(error.path, Some(manifest_path(&list[1])));
    assert_eq!(error.entries, [entry(&list[0], 0, Updated)]);
    assert_eq!(
        read_manifest(&list[1]),
        b"{}",
        "what somebody else wrote stays"
    );
    assert_eq!(stored(&list[2]), (2, None));
}

#[test]
fn a_list_migrated_by_halves_is_refused_in_another_order() {
    let folder = tempfile::tempdir().unwrap();
    let list = v2_caches(folder.path(), 3);
    open(&list[..2]).update_manifests(3).unwrap();
    let shuffled: Vec<PathBuf> = [0, 2, 1].map(|n| list[n].clone()).into();
    assert!(Dataset::open(&shuffled).is_err(), "0, position 1, 1");
    let report = open(&list).update_manifests(3).unwrap();
    assert_eq!(report.entries[2], entry(&list[2], 2, Updated));
    assert_eq!(ids(&open(&shuffled)), [0, 2, 1]);
}

#[test]
fn text_that_is_not_utf8_is_never_published() {
    let folder = tempfile::tempdir().unwrap();
    let list = v2_caches(folder.path(), 2);
    edit_manifest(&list[1], "\"shards\"", "\"x\": \"?\", \"shards\"");
    let mut bytes = read_manifest(&list[1]);
    let mark = bytes.iter().position(|byte| *byte == b'?').unwrap();
    bytes[mark] = 0xff;
    fs::write(manifest_path(&list[1]), &bytes).unwrap();
    // Whether such a list opens at all is not this test's business.
    if let Ok(dataset) = Dataset::open(&list) {
        let error = refused(&dataset, folder.path());
        assert_eq!(error.path, Some(manifest_path(&list[1])));
    }
}
