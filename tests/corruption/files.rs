//! Files that are no caches at all, files exchanged while in use, and lists with bad caches in them.

use std::fs;

use datasetrt::dataset::Dataset;
use datasetrt::format::manifest::MAX_MANIFEST_LEN;

use crate::common::fixture::Fixture;
use crate::{describe, outcome};

#[test]
fn a_manifest_too_long_to_be_one_is_not_read() {
    let cache = Fixture::tiny().build();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(cache.path("manifest.json"))
        .unwrap();
    file.set_len(MAX_MANIFEST_LEN + 1).unwrap();
    let error = crate::alloc::within(1 << 20, || cache.open().unwrap_err());
    assert_eq!(describe(&error, &cache.dir), "Length manifest.json");
}

#[test]
fn a_manifest_nested_without_end_is_read_or_refused() {
    // A parser that recurses by depth would use up the stack, which nothing catches.
    for open in ["[", "{\"a\":"] {
        let cache = Fixture::tiny().build();
        let text = String::from_utf8(cache.read("manifest.json")).unwrap();
        let deep = format!("{{\n  \"deep\": {},{}", open.repeat(1 << 20), &text[1..]);
        cache.put("manifest.json", deep);
        assert_eq!(outcome(&cache), "open: Manifest manifest.json");
    }
}

#[test]
fn a_shard_replaced_after_the_start_is_not_read() {
    // A reader that opens shards by path served the payloads of the cache that came after.
    let cache = Fixture::tiny().build();
    let open = cache.open().unwrap();
    let bytes = cache.read("shards/000000.bin");
    // The old file stays, under another name: its inode number must not be given to the new one.
    fs::rename(cache.path("shards/000000.bin"), cache.path("shards/old")).unwrap();
    cache.put("shards/000000.bin", bytes);
    let error = open.payload_len(0).unwrap_err();
    assert_eq!(describe(&error, &cache.dir), "Replaced shards/000000.bin");
}

#[test]
fn a_shard_rewritten_in_place_after_the_start_is_not_read() {
    // File systems give the inode of a removed file to the next one: a cache removed and written
    // anew under the same path had the old numbers and lengths, and its payloads were served.
    let cache = Fixture::tiny().build();
    let open = cache.open().unwrap();
    cache.flip("shards/000000.bin", -1, 1);
    // Clocks of file systems are coarse: the change must not fall into the tick of the first write.
    let shard = fs::OpenOptions::new()
        .write(true)
        .open(cache.path("shards/000000.bin"));
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(2);
    shard.unwrap().set_modified(later).unwrap();
    assert!(open.with_record(2, 0, |_| ()).is_err());
}

#[test]
fn ids_beyond_the_last_sample_do_not_exist() {
    let open = Fixture::tiny().build().open().unwrap();
    for sample in [3, 4, u64::MAX / 24, u64::MAX] {
        assert!(open.payload_len(sample).is_err() && open.metadata(sample).is_err());
        assert!(open.with_record(sample, 0, |_| ()).is_err());
    }
}

#[test]
fn a_folder_that_is_not_there_is_not_called_incomplete() {
    let cache = Fixture::tiny().build();
    fs::remove_dir_all(&cache.dir).unwrap();
    assert_eq!(outcome(&cache), "open: NotFound manifest.json");
}

#[test]
fn every_bad_cache_of_a_list_is_named_and_positions_stay_when_they_are_left_out() {
    let good = Fixture::tiny().v2().build();
    let bad = Fixture::tiny().v2().build();
    let worse = Fixture::tiny().build();
    bad.truncate("index.bin", -1);
    worse.remove("manifest.json");
    let paths = [
        bad.dir.clone(),
        good.dir.clone(),
        worse.dir.clone(),
        good.dir.clone(),
    ];
    let error = Dataset::open(&paths).unwrap_err();
    assert!(error.chain().contains(bad.dir.to_str().unwrap()), "{error}");
    assert!(
        error.chain().contains(worse.dir.to_str().unwrap()),
        "{error}"
    );
    let valid = Dataset::open_valid(&paths).unwrap();
    let ids: Vec<u64> = valid.entries().iter().map(|entry| entry.cache_id).collect();
    assert_eq!((ids, valid.skipped().len()), (vec![1, 3], 2));
}
