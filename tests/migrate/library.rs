//! What a migration does when nothing is in its way.

use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use datasetrt::format::manifest::Manifest;
use datasetrt::migrate::{
    ManifestStatus, preview_manifests, update_manifests, update_manifests_with,
};
use datasetrt::storage::Step;
use serde_json::Value;

use crate::files::*;

use ManifestStatus::{Unchanged, Updated, WouldUpdate};

#[test]
fn each_v2_cache_keeps_the_identity_that_its_position_gave_it() {
    let folder = tempfile::tempdir().unwrap();
    let list = [
        v2_cache(folder.path(), "z"),
        v3_cache(folder.path(), "m"),
        v2_cache(folder.path(), "a"),
    ];
    let dataset = open(&list);
    let before = ids(&dataset);
    let content = payloads(&dataset);
    let files = snapshot(folder.path());
    assert_eq!((before[0], before[2]), (0, 2));

    let stop = AtomicBool::new(false);
    let statuses = [WouldUpdate, Unchanged, WouldUpdate];
    let entries = |statuses: [ManifestStatus; 3]| -> Vec<_> {
        (0..3)
            .map(|n| entry(&list[n], before[n], statuses[n]))
            .collect()
    };
    let preview = preview_manifests(&dataset, 3, &stop).unwrap();
    assert_eq!(preview.entries, entries(statuses));
    assert_eq!(snapshot(folder.path()), files, "a preview changes nothing");

    let report = dataset.update_manifests(3).unwrap();
    assert_eq!(report.entries, entries([Updated, Unchanged, Updated]));

    // The manifests of z and a are all that is new.
    let mut after = snapshot(folder.path());
    assert_eq!(after.len(), files.len());
    for cache in [&list[0], &list[2]] {
        assert_ne!(after[&manifest_path(cache)], files[&manifest_path(cache)]);
        after.insert(manifest_path(cache), files[&manifest_path(cache)].clone());
    }
    assert_eq!(after, files);

    // Any order and any part of the list has the same identities and samples from now on.
    assert_eq!(
        payloads(&dataset),
        content,
        "of the list that is still open"
    );
    for order in [&[0, 1, 2][..], &[2, 1, 0], &[1, 2, 0], &[2], &[0, 2]] {
        let part: Vec<PathBuf> = order.iter().map(|n| list[*n].clone()).collect();
        let part = open(&part);
        let expected: Vec<u64> = order.iter().map(|n| before[*n]).collect();
        assert_eq!(ids(&part), expected);
        assert!(
            payloads(&part)
                .iter()
                .all(|(id, bytes)| content[id] == *bytes)
        );
    }
}

#[test]
fn a_second_run_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let list = v2_caches(folder.path(), 3);
    let dataset = open(&list);
    dataset.update_manifests(3).unwrap();
    let files = snapshot(folder.path());
    let again: Vec<_> = (0..3)
        .map(|n| entry(&list[n], n as u64, Unchanged))
        .collect();
    assert_eq!(dataset.update_manifests(3).unwrap().entries, again);
    assert_eq!(open(&list).update_manifests(3).unwrap().entries, again);
    assert_eq!(
        snapshot(folder.path()),
        files,
        "same bytes, inodes and times"
    );
}

#[test]
fn links_to_manifests_caches_and_roots_stay_links() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("real");
    let list = v2_caches(&real, 3);
    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::rename(manifest_path(&list[0]), elsewhere.join("first.json")).unwrap();
    symlink("../../hop", manifest_path(&list[0])).unwrap();
    symlink("elsewhere/first.json", folder.path().join("hop")).unwrap();
    symlink(&list[1], folder.path().join("cache")).unwrap();
    symlink("real", folder.path().join("root")).unwrap();

    let given = [
        folder.path().join("root/0000"),
        folder.path().join("cache"),
        folder.path().join("root/0002"),
    ];
    let report = open(&given).update_manifests(3).unwrap();
    let expected: Vec<_> = (0..3)
        .map(|n| entry(&given[n], n as u64, Updated))
        .collect();
    assert_eq!(
        report.entries, expected,
        "paths are told as they were given"
    );
    for (n, cache) in list.iter().enumerate() {
        assert_eq!(stored(cache), (3, Some(n as u64)));
    }
    for link in [
        manifest_path(&list[0]),
        folder.path().join("hop"),
        given[1].clone(),
    ] {
        assert!(link.is_symlink(), "{}", link.display());
    }
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
    assert!(temporary_files(&list[0]).is_empty());
}

#[test]
fn mode_and_owner_stay() {
    let folder = tempfile::tempdir().unwrap();
    let list = v2_caches(folder.path(), 4);
    let root = rustix::process::geteuid().is_root();
    for (cache, mode) in list.iter().zip([0o640, 0o444, 0o666, 0o2755]) {
        let path = manifest_path(cache);
        if root {
            std::os::unix::fs::chown(&path, Some(1234), Some(2345)).unwrap();
        }
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let told = |cache: &PathBuf| {
        let meta = fs::metadata(manifest_path(cache)).unwrap();
        (meta.uid(), meta.gid(), meta.mode())
    };
    let before: Vec<_> = list.iter().map(told).collect();
    open(&list).update_manifests(3).unwrap();
    assert_eq!(list.iter().map(told).collect::<Vec<_>>(), before);
    if !root {
        eprintln!("SKIPPED: that a foreign owner stays takes root");
    }
}

#[test]
fn unknown_keys_and_spellings_stay_at_every_depth() {
    let folder = tempfile::tempdir().unwrap();
    let cache = v2_cache(folder.path(), "c");
    edit_manifest(&cache, "\"ratio\": 1.0", "\"ratio\": 0.1234567890123456");
    edit_manifest(
        &cache,
        "\"byte_len\"",
        "\"x_in_shard\": [1E5],\n      \"byte_len\"",
    );
    edit_manifest(
        &cache,
        "\"kind\"",
        "\"x_in_field\": {\"b\": 1, \"a\": -0.0}, \"kind\"",
    );
    edit_manifest(
        &cache,
        "\"source_name\"",
        "\"x_note\": {\"a\":[1,2.5,\"\u{e9}\"]}, \"x_big\": 18446744073709551615,\n\
         \"x_float\": 123456789.12345679,  \"source_name\"",
    );
    let old = read_manifest(&cache);
    let content = payloads(&open(std::slice::from_ref(&cache)));
    let dataset = open(std::slice::from_ref(&cache));
    dataset.update_manifests(3).unwrap();

    let new = read_manifest(&cache);
    let mut expected: Value = serde_json::from_slice(&old).unwrap();
    expected["format_version"] = 3.into();
    expected["cache_id"] = 0.into();
    assert_eq!(serde_json::from_slice::<Value>(&new).unwrap(), expected);
    let text = String::from_utf8(new).unwrap();
    let undone = text.replacen("\": 3,\n  \"cache_id\": 0", "\": 2", 1);
    assert_eq!(undone.as_bytes(), old);
    assert!(dataset.update_manifests(3).is_ok());
    assert_eq!(
        read_manifest(&cache),
        text.as_bytes(),
        "again changes no byte"
    );
    assert_eq!(payloads(&open(&[cache])), content);
}

#[test]
fn a_v2_key_named_cache_id_gets_the_identity() {
    let folder = tempfile::tempdir().unwrap();
    let list = v2_caches(folder.path(), 2);
    edit_manifest(
        &list[1],
        "\"shards\"",
        "\"cache_id\": {\"not\": \"an id\"},\n  \"shards\"",
    );
    let old = String::from_utf8(read_manifest(&list[1])).unwrap();
    open(&list).update_manifests(3).unwrap();
    assert_eq!(stored(&list[1]), (3, Some(1)));
    let expected = old
        .replacen("\"format_version\": 2", "\"format_version\": 3", 1)
        .replacen("{\"not\": \"an id\"}", "1", 1);
    assert_eq!(read_manifest(&list[1]), expected.as_bytes());
}

#[test]
fn ids_of_the_full_range_and_lists_of_128_caches() {
    let folder = tempfile::tempdir().unwrap();
    let mut list = v2_caches(&folder.path().join("old"), 128);
    for id in [u64::MAX, 1 << 63, (1 << 53) + 1, 1000] {
        let cache = v3_cache(folder.path(), &id.to_string());
        let own = stored(&cache).1.unwrap();
        edit_manifest(&cache, &own.to_string(), &id.to_string());
        list.insert(1, cache);
    }
    let dataset = open(&list);
    let before = ids(&dataset);
    let report = dataset.update_manifests(3).unwrap();
    assert_eq!(report.entries.len(), 132);
    let told: Vec<u64> = report.entries.iter().map(|entry| entry.cache_id).collect();
    assert_eq!(told, before);
    let updated = report
        .entries
        .iter()
        .filter(|entry| entry.status == Updated);
    assert_eq!(updated.count(), 128);
    list.reverse();
    assert!(ids(&open(&list)).iter().eq(before.iter().rev()));
}

#[test]
fn positions_count_the_caches_that_were_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let list = v2_caches(folder.path(), 3);
    fs::remove_file(list[1].join("index.bin")).unwrap();
    let dataset = datasetrt::dataset::Dataset::open_valid(&list).unwrap();
    let expected = [entry(&list[0], 0, Updated), entry(&list[2], 2, Updated)];
    assert_eq!(dataset.update_manifests(3).unwrap().entries, expected);
    assert_eq!(stored(&list[1]), (2, None));
}

#[test]
fn an_interrupt_ends_the_run_after_the_current_manifest() {
    let folder = tempfile::tempdir().unwrap();
    let list = v2_caches(folder.path(), 4);
    let dataset = open(&list);
    let stop = AtomicBool::new(false);
    let mut writes = 0;
    let mut hook = |step| {
        writes += usize::from(step == Step::Write);
        stop.store(writes == 2, Ordering::Relaxed);
        Ok(())
    };
    let error = update_manifests_with(&dataset, 3, &stop, &mut hook).unwrap_err();
    assert_eq!(error.errno, Some(rustix::io::Errno::INTR.raw_os_error()));
    assert_eq!(error.path, Some(manifest_path(&list[2])));
    let done = [entry(&list[0], 0, Updated), entry(&list[1], 1, Updated)];
    assert_eq!(error.entries, done);
    assert_eq!((stored(&list[1]).0, stored(&list[2]).0), (3, 2));
    assert!(list.iter().all(|cache| temporary_files(cache).is_empty()));

    // One that comes too late for any other manifest, or before the first.
    let error = update_manifests(&dataset, 3, &AtomicBool::new(true)).unwrap_err();
    assert_eq!((error.entries.len(), stored(&list[2]).0), (0, 2));
    let late = AtomicBool::new(false);
    let mut synced = 0;
    let mut hook = |step| {
        synced += usize::from(step == Step::SyncDir);
        late.store(synced == 4, Ordering::Relaxed);
        Ok(())
    };
    let report = update_manifests_with(&dataset, 3, &late, &mut hook).unwrap();
    let statuses: Vec<_> = report.entries.iter().map(|entry| entry.status).collect();
    assert_eq!(statuses, [Unchanged, Unchanged, Updated, Updated]);
}

#[test]
fn what_killed_runs_left_behind_is_passed_by() {
    let folder = tempfile::tempdir().unwrap();
    let list = v2_caches(folder.path(), 2);
    // The names that this very process would take next, by other tests too.
    let pid = std::process::id();
    for n in 0..2000 {
        let name = format!(".datasetrt-manifest-{pid}-{n}.tmp");
        fs::write(list[0].join(name), "{\"format_version\": 3, \"cache_id\"").unwrap();
    }
    let left = temporary_files(&list[0]);
    open(&list).update_manifests(3).unwrap();
    assert_eq!(temporary_files(&list[0]), left);
    assert_eq!(ids(&open(&list)), [0, 1]);
}

#[test]
fn a_reader_meets_a_whole_manifest_at_any_time() {
    let folder = tempfile::tempdir().unwrap();
    let list = v2_caches(folder.path(), 20);
    let dataset = open(&list);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0_u64;
            while !done.load(Ordering::Relaxed) {
                for (n, cache) in list.iter().enumerate() {
                    let manifest = Manifest::parse(&read_manifest(cache)).unwrap();
                    assert!(manifest.cache_id.is_none_or(|id| id == n as u64));
                    seen += 1;
                }
            }
            seen
        });
        dataset.update_manifests(3).unwrap();
        done.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
}

#[test]
fn a_folder_name_need_not_be_text() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join(std::ffi::OsStr::from_bytes(b"\xff\nx"));
    fs::rename(v2_cache(folder.path(), "c"), &odd).unwrap();
    let report = open(std::slice::from_ref(&odd))
        .update_manifests(3)
        .unwrap();
    assert_eq!(report.entries, [entry(&odd, 0, Updated)]);
    let json = serde_json::to_string(&report).unwrap();
    assert!(json.contains("\u{fffd}\\nx/manifest.json"), "{json}");
}
