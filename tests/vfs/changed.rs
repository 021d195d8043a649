//! Shards that change in place: what was found right holds for what was there then.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use datasetrt::dataset::Dataset;
use datasetrt::error::FaultKind;
use datasetrt::vfs::{Vfs, VfsError, VfsOptions};

use crate::common::fixture::{Fixture, TestCache};
use crate::{look, read, status, text, tree_of};

/// Four samples, two in each shard.
fn four() -> TestCache {
    let payloads = (0..4_u8).map(|n| vec![n; 20_000]);
    let fixture = Fixture::new().v2().max_shard_bytes(45_000);
    let cache = fixture.payloads(payloads).build();
    assert_eq!([0, 1, 2, 3].map(|n| cache.row(n).shard), [0, 0, 1, 1]);
    cache
}

/// Clocks of file systems are coarse: a change must not fall into the tick of the one before it.
fn touch(cache: &TestCache, shard: &str, seconds: u64) {
    let file = std::fs::File::options().write(true).open(cache.path(shard));
    let later = SystemTime::now() + Duration::from_secs(seconds);
    file.unwrap().set_modified(later).unwrap();
}

fn validated(cache: &TestCache, on_access: bool) -> Arc<Vfs> {
    let mut dataset = Dataset::open(std::slice::from_ref(&cache.dir)).unwrap();
    if on_access {
        dataset.validate_on_access(false).unwrap();
    } else {
        dataset.validate(false, &|_| ()).unwrap();
    }
    let options = VfsOptions {
        xattrs: true,
        ..VfsOptions::default()
    };
    Arc::new(Vfs::new(dataset, options).unwrap())
}

fn kind(result: Result<Vec<u8>, VfsError>) -> FaultKind {
    match result {
        Err(VfsError::Damaged(error)) => error.fault().expect("a fault").kind,
        other => panic!("{other:?}"),
    }
}

fn verified(vfs: &Vfs, sample: u64) -> String {
    let ino = look(vfs, &format!("samples/0/{sample}")).unwrap().ino;
    let value = vfs.getxattr(ino, "user.datasetrt.verified".as_ref());
    String::from_utf8(value.unwrap()).unwrap()
}

#[test]
fn a_shard_that_changed_after_it_was_found_right_is_hashed_before_its_next_byte() {
    for on_access in [false, true] {
        let cache = four();
        let vfs = validated(&cache, on_access);
        for sample in 0..4 {
            read(&vfs, &format!("samples/0/{sample}")).unwrap();
        }
        assert_eq!(status(&vfs)["caches"][0]["verified"]["level"], "all");
        assert_eq!(verified(&vfs, 1), "shard");
        // The last payload byte of the first shard.
        cache.flip("shards/000000.bin", -1, 1);
        touch(&cache, "shards/000000.bin", 2);
        assert_eq!(verified(&vfs, 1), "envelope", "seen, and not yet hashed");
        let changed = &status(&vfs)["caches"][0];
        assert_eq!(changed["verified"]["level"], "shards");
        assert_eq!(changed["changed_shards"][0], "000000.bin");
        for sample in [1, 0] {
            let found = read(&vfs, &format!("samples/0/{sample}"));
            assert_eq!(kind(found), FaultKind::Checksum);
        }
        assert_eq!(verified(&vfs, 0), "none");
        assert_eq!(text(&vfs, ".control/damaged").lines().count(), 2);
        assert_eq!(read(&vfs, "samples/0/2").unwrap(), vec![2; 20_000]);
        // Put right again, which shows in the same way.
        cache.flip("shards/000000.bin", -1, 1);
        touch(&cache, "shards/000000.bin", 4);
        for sample in [0, 1] {
            let found = read(&vfs, &format!("samples/0/{sample}")).unwrap();
            assert_eq!(found, vec![sample; 20_000]);
        }
        assert_eq!(status(&vfs)["caches"][0]["verified"]["level"], "all");
        assert_eq!(text(&vfs, ".control/damaged"), "");
    }
}

#[test]
fn a_shard_that_was_only_touched_is_hashed_and_stays_right() {
    let cache = four();
    let vfs = validated(&cache, false);
    read(&vfs, "samples/0/3").unwrap();
    touch(&cache, "shards/000001.bin", 2);
    assert_eq!(read(&vfs, "samples/0/2").unwrap(), vec![2; 20_000]);
    assert_eq!(verified(&vfs, 2), "shard");
    let found = &status(&vfs)["caches"][0];
    assert_eq!(found["verified"]["level"], "all");
    assert_eq!(found["changed_shards"], serde_json::json!([]));
}

#[test]
fn a_shard_that_changed_before_it_was_opened_is_served_only_if_it_is_still_right() {
    let cache = four();
    let vfs = tree_of(&[&cache]);
    touch(&cache, "shards/000000.bin", 2);
    cache.flip("shards/000001.bin", -1, 1);
    touch(&cache, "shards/000001.bin", 2);
    assert_eq!(read(&vfs, "samples/0/0").unwrap(), vec![0; 20_000]);
    assert_eq!(kind(read(&vfs, "samples/0/2")), FaultKind::Checksum);
}

#[test]
fn a_shard_that_changes_while_it_is_read_without_validation_is_listed_and_served() {
    let cache = four();
    let vfs = tree_of(&[&cache]);
    read(&vfs, "samples/0/0").unwrap();
    assert_eq!(
        status(&vfs)["caches"][0]["changed_shards"],
        serde_json::json!([])
    );
    for round in [1, 2] {
        cache.flip("shards/000000.bin", -1, 1);
        touch(&cache, "shards/000000.bin", 2 * round);
        read(&vfs, "samples/0/0").unwrap();
        read(&vfs, "samples/0/1").unwrap();
        let changed = &status(&vfs)["caches"][0]["changed_shards"];
        assert_eq!(*changed, serde_json::json!(["000000.bin"]));
    }
}
