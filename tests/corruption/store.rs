//! Damage in a store of larger samples: an error and no bytes, never zeros, and the others read.

use datasetrt::error::FaultKind;

use crate::common::fixture::{Fixture, Sample, TestCache};
use crate::{fault_at_open, outcome, refused_samples};

/// Three samples of 300 KiB whose metadata differ, in a shard each or in one.
fn store(max_shard_bytes: u64) -> TestCache {
    let sample = |n: i32| {
        let payload: Vec<u8> = (0..300 << 10)
            .map(|i| (i * (n + 3) / 7) as u8 | 1)
            .collect();
        Sample::new(payload)
            .with("label", n)
            .with("name", format!("row {n}"))
    };
    Fixture::new()
        .samples((0..3).map(sample))
        .max_shard_bytes(max_shard_bytes)
        .build()
}

#[test]
fn a_changed_byte_in_a_records_metadata_fails_that_sample_each_time() {
    let cache = store(u64::MAX);
    let (json, _) = cache.record(1);
    for at in 0..json.len() {
        let mut json = json.clone();
        json[at] ^= 1;
        cache.set_json(1, &json);
        cache.reseal();
        let open = cache.open().unwrap();
        for _ in 0..2 {
            let read = open.with_record(1, 1 << 20, |record| record.decoded_len());
            assert_eq!(
                read.unwrap_err().fault().unwrap().kind,
                FaultKind::Envelope,
                "{at}"
            );
        }
    }
    assert_eq!(refused_samples(&cache), ["Envelope shards/000000.bin (1)"]);
}

#[test]
fn samples_exchanged_in_the_index_are_refused_both() {
    let cache = store(u64::MAX);
    let (first, last) = (cache.row(0), cache.row(2));
    cache.set_row(0, last);
    cache.set_row(2, first);
    cache.reseal();
    let refused = refused_samples(&cache);
    assert_eq!(
        refused,
        [
            "Envelope shards/000000.bin (0)",
            "Envelope shards/000000.bin (2)"
        ]
    );
}

#[test]
fn a_changed_payload_byte_without_compression_is_found_by_validation() {
    let cache = store(u64::MAX);
    cache.flip("shards/000000.bin", -100, 1);
    assert_eq!(outcome(&cache), "validate: Checksum shards/000000.bin");
}

#[test]
fn a_lie_about_compression_is_found_by_validation_even_beside_a_damaged_record() {
    // The manifest has no sum of its own. One unreadable record made the sum of its shard unknown,
    // and the rest of the shard was served as it is stored, with validation on.
    let cache = Fixture::tiny().lz4().build();
    cache.edit("shards/000000.bin", |bytes| bytes[7] = 1);
    cache.reseal();
    cache.set_manifest("shards/0/compression/algo", "none");
    assert!(outcome(&cache).starts_with("validate: "));
}

#[test]
fn a_missing_shard_is_never_read_as_zeros() {
    let cache = store(1);
    assert_eq!(outcome(&cache), "right");
    cache.remove("shards/000001.bin");
    assert_eq!(outcome(&cache), "open: NotFound shards/000001.bin");
}

#[test]
fn a_shard_cut_while_in_use_gives_errors_and_no_bytes() {
    // Short reads were filled up with zeros, and nobody noticed.
    let cache = store(u64::MAX);
    let open = cache.open().unwrap();
    let shard = std::fs::OpenOptions::new()
        .write(true)
        .open(cache.path("shards/000000.bin"));
    let len = cache.read("shards/000000.bin").len() as u64;
    open.payload_len(0).unwrap();
    shard.unwrap().set_len(len - 1000).unwrap();
    for _ in 0..2 {
        assert!(crate::common::payload(&open, 1).is_ok());
        let mut out = vec![7; 300 << 10];
        let read = open.with_record(2, 1 << 20, |record| record.read(0, &mut out));
        let error = read.and_then(|read| read).unwrap_err();
        assert_eq!(
            crate::describe(&error, &cache.dir),
            "UnexpectedEof shards/000000.bin"
        );
    }
}

#[test]
fn different_numbers_of_rows_are_refused() {
    let cache = store(u64::MAX);
    cache.truncate("index.bin", -24);
    cache.set_manifest("sample_count", 2);
    cache.reseal();
    assert_eq!(fault_at_open(&cache), FaultKind::RowCount);
    assert_eq!(outcome(&cache), "open: RowCount metadata.arrow");
}

#[test]
fn unused_bytes_in_a_shard_are_harmless() {
    let cache = store(u64::MAX);
    cache.append("shards/000000.bin", &[0xAA; 100]);
    cache.reseal();
    assert_eq!(outcome(&cache), "right");
}

#[test]
fn a_read_outside_the_payload_is_refused_and_not_taken_from_the_next_record() {
    let cache = store(u64::MAX);
    let open = cache.open().unwrap();
    let len = open.payload_len(0).unwrap();
    for (offset, size) in [
        (len, 1),
        (len - 1, 2),
        (0, len + 1),
        (u64::MAX, 1),
        (u64::MAX - 10, 20),
    ] {
        for wanted in [0, 1 << 20] {
            let mut out = vec![0; size as usize];
            let read = open.with_record(0, wanted, |record| record.read(offset, &mut out));
            assert!(read.unwrap().is_err(), "{size} bytes at {offset}");
        }
    }
    for offset in [0, len] {
        open.with_record(0, 0, |record| record.read(offset, &mut []))
            .unwrap()
            .unwrap();
    }
}

#[test]
fn a_cache_without_samples_is_whole() {
    let cache = Fixture::new()
        .schema(&[("x", datasetrt::format::metadata::FieldKind::Int)])
        .build();
    assert_eq!(outcome(&cache), "right");
    let cache = Fixture::new().v2().build();
    assert_eq!(outcome(&cache), "right");
}
