//! Shards that change in place behind a mount.

use std::fs::File;
use std::time::{Duration, SystemTime};

use crate::common::fixture::{Fixture, TestCache};
use crate::common::mount::{can_mount, program};
use crate::common::noise::noise;
use crate::live::{EIO, Place};

const LEN: usize = 100_000;

/// Changes the last byte of the first shard. Clocks of file systems are coarse: the change must not
/// fall into the tick of the one before it.
fn change(cache: &TestCache, seconds: u64) {
    cache.flip("shards/000000.bin", -1, 1);
    let file = File::options()
        .write(true)
        .open(cache.path("shards/000000.bin"));
    let later = SystemTime::now() + Duration::from_secs(seconds);
    file.unwrap().set_modified(later).unwrap();
}

fn three(place: &Place) -> TestCache {
    place.cache(
        "cache",
        Fixture::new().v2().payloads((0..3).map(|n| noise(LEN, n))),
    )
}

#[test]
fn a_shard_changed_after_validation_gives_no_byte_until_it_is_right_again() {
    if !can_mount() {
        return;
    }
    for words in ["--validate-cache", "--validate-cache=access"] {
        let place = Place::new();
        let cache = three(&place);
        let mut by = program();
        by.arg(words);
        let live = place.mount_by(by, &[&cache]);
        assert_eq!(live.read("samples/0/0").unwrap(), noise(LEN, 0));
        change(&cache, 2);
        assert_eq!(live.errno("samples/0/1"), EIO, "{words}");
        assert_eq!(live.errno("samples/0/2"), EIO, "{words}");
        let status = live.status();
        assert_ne!(status["caches"][0]["verified"]["level"], "all");
        assert_eq!(live.damaged().len(), 2);
        assert_eq!(live.log().matches("it has changed").count(), 1);
        change(&cache, 4);
        for sample in 0..3 {
            let found = live.read(&format!("samples/0/{sample}")).unwrap();
            assert!(found == noise(LEN, sample), "{words}: {sample}");
        }
        assert_eq!(live.status()["caches"][0]["verified"]["level"], "all");
    }
}

#[test]
fn a_shard_changed_without_validation_is_named_once_in_the_log_and_in_the_status() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = three(&place);
    let live = place.mount(&[&cache]);
    assert_eq!(live.read("samples/0/0").unwrap(), noise(LEN, 0));
    for round in [1, 2] {
        change(&cache, 2 * round);
        live.read(&format!("samples/0/{round}")).unwrap();
    }
    let changed = &live.status()["caches"][0]["changed_shards"];
    assert_eq!(*changed, serde_json::json!(["000000.bin"]));
    let log = live.log();
    assert_eq!(
        log.matches("000000.bin: it was changed in place").count(),
        1,
        "{log}"
    );
}
