//! Lists of caches: what arguments stand for, which identity each cache has, how many files are open.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test may panic"
)]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread;

use datasetrt::cache::Cache;
use datasetrt::dataset::{Dataset, Validated, expand};
use datasetrt::error::Error;
use datasetrt::storage::OpenFileLimit;
use tempfile::TempDir;

use common::deliver;
use common::fixture::Fixture;

fn names(paths: &[PathBuf]) -> Vec<&str> {
    let names = paths.iter().map(|path| path.file_name().unwrap());
    names.map(|name| name.to_str().unwrap()).collect()
}

#[test]
fn a_folder_stands_for_its_caches_ordered_by_the_bytes_of_their_names() {
    let temp = TempDir::new().unwrap();
    for name in [
        "b", "a", "B", "10", "2", "\u{e9}", "e\u{301}", ".hidden", "a b", "a-b",
    ] {
        let _ = Fixture::tiny().write(&temp.path().join(name));
    }
    let paths = expand(&[temp.path().to_path_buf()]).unwrap();
    let ordered = [
        ".hidden", "10", "2", "B", "a", "a b", "a-b", "b", "e\u{301}", "\u{e9}",
    ];
    assert_eq!(names(&paths), ordered);
}

#[test]
fn children_without_a_manifest_are_left_out_and_named_caches_never() {
    let temp = TempDir::new().unwrap();
    let whole = Fixture::tiny().write(&temp.path().join("whole"));
    let unfinished = Fixture::tiny().write(&temp.path().join("unfinished"));
    unfinished.remove("manifest.json");
    let _ = Fixture::tiny().write(&temp.path().join("staged.datasetrt-partial"));
    fs::create_dir(temp.path().join("empty")).unwrap();
    fs::write(temp.path().join("file"), "x").unwrap();
    symlink(&whole.dir, temp.path().join("linked")).unwrap();
    symlink("nowhere", temp.path().join("dangling")).unwrap();

    let paths = expand(&[temp.path().to_path_buf()]).unwrap();
    assert_eq!(names(&paths), ["linked", "whole"]);
    let paths = expand(&[unfinished.dir.clone(), whole.dir.clone(), whole.dir.clone()]).unwrap();
    assert_eq!(names(&paths), ["unfinished", "whole", "whole"]);
    assert!(
        matches!(Dataset::open(&paths[..1]), Err(Error::Incomplete { cache }) if cache == unfinished.dir)
    );
}

#[test]
fn arguments_without_any_cache_are_refused_by_name() {
    let temp = TempDir::new().unwrap();
    let file = temp.path().join("file");
    fs::write(&file, "x").unwrap();
    let missing = temp.path().join("missing");
    let refused = |path: &Path| expand(&[path.to_path_buf()]).unwrap_err();
    assert!(matches!(refused(temp.path()), Error::Refused { path, .. } if path == temp.path()));
    assert!(matches!(refused(&file), Error::Refused { path, .. } if path == file));
    assert!(matches!(refused(&missing), Error::Io { path, .. } if path == missing));
}

#[test]
fn positions_count_every_cache_of_the_list_and_stored_ids_stand_as_they_are() {
    let v2 = || Fixture::tiny().v2().build();
    let v3 = |id| Fixture::tiny().cache_id(id).build();
    let (a, b, c, d, e) = (v2(), v3(u64::MAX), v2(), v3(0x8000_0000_0000_0000), v2());
    let ids = |caches: &[&common::fixture::TestCache]| {
        let paths: Vec<PathBuf> = caches.iter().map(|cache| cache.dir.clone()).collect();
        let dataset = Dataset::open(&paths)?;
        let ids = dataset.entries().iter().map(|entry| entry.cache_id);
        Ok::<Vec<u64>, Error>(ids.collect())
    };
    assert_eq!(
        ids(&[&a, &b, &c, &d, &e]).unwrap(),
        [0, u64::MAX, 2, 1 << 63, 4]
    );
    assert_eq!(ids(&[&b, &e, &a, &c]).unwrap(), [u64::MAX, 1, 2, 3]);
    assert_eq!(
        ids(&[&a, &a]).unwrap(),
        [0, 1],
        "one folder of format 2 may be listed twice"
    );
    assert_eq!(ids(&[]).unwrap(), [0; 0]);
}

#[test]
fn two_caches_of_one_identity_are_refused_naming_both() {
    let position = Fixture::tiny().v2().build();
    let stored = Fixture::tiny().cache_id(1).build();
    let other = Fixture::tiny().cache_id(7).build();
    for (list, id) in [
        (vec![&stored, &position], 1),
        (vec![&other, &stored, &other], 7),
        (vec![&position, &other, &stored, &other], 7),
    ] {
        let paths: Vec<PathBuf> = list.iter().map(|cache| cache.dir.clone()).collect();
        match Dataset::open(&paths) {
            Err(Error::DuplicateCacheId {
                cache_id,
                first,
                second,
            }) => {
                assert_eq!(cache_id, id);
                let same =
                    [&first, &second].map(|dir| list.iter().filter(|c| c.dir == *dir).count());
                assert!(same.iter().all(|count| *count > 0), "{first:?} {second:?}");
            }
            other => panic!("{other:?}"),
        }
        assert!(
            Dataset::open_valid(&paths).is_err(),
            "never renumbered, never left out"
        );
    }
}

#[test]
fn of_caches_of_one_identity_the_later_ones_can_be_left_out_by_name() {
    let first = Fixture::tiny().cache_id(1).build();
    let position = Fixture::tiny().v2().build();
    let last = Fixture::tiny().cache_id(9).build();
    let bad = Fixture::tiny().cache_id(5).build();
    bad.remove("index.bin");
    let paths = [&first, &position, &last, &first].map(|cache| cache.dir.clone());
    for dataset in [
        Dataset::open_skipping(&paths),
        Dataset::open_distinct(&paths).unwrap(),
    ] {
        let kept: Vec<_> = dataset.entries().iter().collect();
        let kept: Vec<_> = kept.iter().map(|e| (e.cache_id, e.position)).collect();
        assert_eq!(kept, [(1, 0), (9, 2)]);
        assert_eq!(dataset.skipped().len(), 2);
        for (error, second) in dataset.skipped().iter().zip([&position, &first]) {
            let Error::DuplicateCacheId { second: named, .. } = error else {
                panic!("{error:?}");
            };
            assert_eq!(*named, second.dir);
        }
    }
    let paths = [&first, &bad, &first].map(|cache| cache.dir.clone());
    assert_eq!(Dataset::open_skipping(&paths).skipped().len(), 2);
    let refused = Dataset::open_distinct(&paths).unwrap_err();
    assert!(refused.chain().contains(bad.dir.to_str().unwrap()));
}

#[test]
fn caches_that_fail_validation_leave_the_list_when_they_may_be_skipped() {
    let caches: Vec<_> = (0..3).map(|_| Fixture::tiny().v2().build()).collect();
    caches[1].flip("shards/000000.bin", -1, 1);
    let paths: Vec<PathBuf> = caches.iter().map(|cache| cache.dir.clone()).collect();
    let mut dataset = Dataset::open(&paths).unwrap();
    assert!(dataset.validate(false, &|_| ()).is_err());
    let mut dataset = Dataset::open(&paths).unwrap();
    dataset.validate(true, &|_| ()).unwrap();
    let left: Vec<_> = dataset
        .entries()
        .iter()
        .map(|e| (e.position, e.cache_id, e.validated))
        .collect();
    assert_eq!(
        left,
        [(0, 0, Validated::Checksums), (2, 2, Validated::Checksums)]
    );
    assert_eq!(dataset.skipped().len(), 1);
}

#[test]
fn progress_hears_of_every_byte_that_is_hashed() {
    let cache = Fixture::tiny().build();
    let mut dataset = cache.dataset().unwrap();
    let heard = std::sync::atomic::AtomicU64::new(0);
    let add = |bytes| {
        heard.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
    };
    dataset.validate(false, &add).unwrap();
    let files = ["metadata.arrow", "index.bin", "shards/000000.bin"];
    let len: usize = files.iter().map(|file| cache.read(file).len()).sum();
    assert_eq!(heard.into_inner(), len as u64);
    assert_eq!(dataset.validation_len(), len as u64);
}

/// Files that this process has open below `dir`.
fn open_below(dir: &Path) -> usize {
    let links = fs::read_dir("/proc/self/fd").unwrap();
    let links = links.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.filter(|target| target.starts_with(dir)).count()
}

#[test]
fn many_shards_share_few_open_files() {
    // One descriptor for each file in use ran into the limit of 1024 under parallel jobs.
    const LIMIT: usize = 3;
    const THREADS: usize = 4;
    let temp = TempDir::new().unwrap();
    let payloads: Vec<String> = (0..60).map(|n| format!("payload {n}")).collect();
    let fixture = Fixture::new().payloads(&payloads).max_shard_bytes(1);
    let caches = [
        fixture.clone().cache_id(1).write(&temp.path().join("one")),
        fixture.lz4().cache_id(2).write(&temp.path().join("two")),
    ];
    assert_eq!(
        caches[0].manifest().get("shards").unwrap().items().len(),
        60
    );
    let limit = OpenFileLimit::new(LIMIT);
    let open = caches
        .each_ref()
        .map(|cache| Cache::open(&cache.dir, &limit).unwrap());
    let most = std::sync::atomic::AtomicUsize::new(0);
    thread::scope(|scope| {
        for start in 0..THREADS {
            let (open, payloads, most, dir) = (&open, &payloads, &most, temp.path());
            scope.spawn(move || {
                for step in 0..600 {
                    let sample = (start * 17 + step * 7) % 60;
                    let found = deliver(&open[step % 2], sample as u64).unwrap();
                    assert_eq!(found.payload, payloads[sample].as_bytes());
                    most.fetch_max(open_below(dir), std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
    });
    let most = most.into_inner();
    // A thread that opens a file has its folder, the file's place and the file for a moment.
    assert!(most <= LIMIT + 3 * THREADS, "{most} files open");
    assert!(open_below(temp.path()) <= LIMIT);
    drop(open);
    assert_eq!(open_below(temp.path()), 0);
}

#[test]
fn mapped_files_need_no_descriptor() {
    let temp = TempDir::new().unwrap();
    let open: Vec<Cache> = (0..20)
        .map(|n| {
            let cache = Fixture::tiny().write(&temp.path().join(n.to_string()));
            cache.open().unwrap()
        })
        .collect();
    assert_eq!(open_below(temp.path()), 0);
    assert!(open.iter().all(|cache| deliver(cache, 2).is_ok()));
}
