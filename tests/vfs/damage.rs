//! Damaged samples: refused each time with no byte, listed once, and healed when they can be read.

use std::fs;

use datasetrt::error::{Error, FaultKind};
use datasetrt::vfs::{Vfs, VfsError};

use crate::common::fixture::{Fixture, TestCache};
use crate::{look, read, text, tree_of};

fn damaged(vfs: &Vfs) -> Vec<String> {
    text(vfs, ".control/damaged")
        .lines()
        .map(str::to_owned)
        .collect()
}

fn kind<T: std::fmt::Debug>(result: Result<T, VfsError>) -> FaultKind {
    match result {
        Err(VfsError::Damaged(error)) => error.fault().expect("a fault").kind,
        other => panic!("{other:?}"),
    }
}

fn two() -> [TestCache; 2] {
    [
        Fixture::tiny().v2().build(),
        Fixture::tiny().lz4().v2().build(),
    ]
}

#[test]
fn a_damaged_sample_gives_no_byte_each_time_and_the_others_all() {
    let caches = two();
    for cache in &caches {
        let row = cache.row(1);
        cache.flip(&cache.shard_file(0), row.offset as i64 + 12, 0x20);
    }
    let vfs = tree_of(&[&caches[0], &caches[1]]);
    for (id, cache) in caches.iter().enumerate() {
        let path = format!("samples/{id}/1");
        let size = cache.samples[1].payload.len() as u64;
        // Its length is known: it can be looked up and listed, but not read.
        assert_eq!(look(&vfs, &path).unwrap().size, size);
        for _ in 0..3 {
            let mut room = [0xA5; 32];
            let ino = look(&vfs, &path).unwrap().ino;
            for offset in [0, 7, size - 1, size, u64::MAX] {
                let found = vfs.read(ino, offset, &mut room);
                assert_eq!(kind(found), FaultKind::Envelope, "at {offset}");
                assert_eq!(room, [0xA5; 32], "at {offset}");
            }
        }
        for other in [0, 2] {
            let payload = &cache.samples[other].payload;
            assert_eq!(
                &read(&vfs, &format!("samples/{id}/{other}")).unwrap(),
                payload
            );
        }
    }
    let lines = damaged(&vfs);
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (id, line) in lines.iter().enumerate() {
        let offset = caches[id].row(1).offset + 8;
        for word in [
            format!("{id}/1: "),
            "shards/000000.bin".into(),
            format!("offset {offset}"),
            "expected ".into(),
            "found ".into(),
        ] {
            assert!(line.contains(&word), "{word:?} is not in {line:?}");
        }
    }
    let status = crate::status(&vfs);
    assert_eq!(status["caches"][0]["damaged"], 1);
    assert_eq!(status["caches"][1]["damaged"], 1);
}

#[test]
fn a_sample_whose_length_cannot_be_known_fails_when_it_is_looked_at() {
    let cache = Fixture::tiny().lz4().v2().build();
    cache.set_stored(1, &[0xFF, 0xFF, 0xFF, 0xFF, 0x10, 0x41]);
    cache.reseal();
    cache.set_manifest("shards/0/uncompressed_byte_len", 1 << 40);
    let vfs = tree_of(&[&cache]);
    for _ in 0..2 {
        assert_eq!(kind(look(&vfs, "samples/0/1")), FaultKind::Payload);
    }
    let folder = look(&vfs, "samples/0").unwrap().ino;
    let entry = crate::model::list(&vfs, folder, 0, usize::MAX).remove(3);
    assert_eq!(entry.name, "1");
    assert_eq!(kind(vfs.getattr(entry.ino)), FaultKind::Payload);
    // A listing names it all the same, and says no more.
    assert_eq!(vfs.entry_attr(entry.ino), None);
    assert_eq!(damaged(&vfs).len(), 1);
    assert_eq!(read(&vfs, "samples/0/2").unwrap(), cache.samples[2].payload);
}

#[test]
fn a_sample_that_can_be_read_again_leaves_the_list() {
    let caches = two();
    let vfs = tree_of(&[&caches[0], &caches[1]]);
    for (id, cache) in caches.iter().enumerate() {
        // A shard that changed before it was opened may be another one.
        read(&vfs, &format!("samples/{id}/0")).unwrap();
        let at = cache.row(2).offset as i64 + 12;
        for _ in 0..3 {
            cache.flip(&cache.shard_file(0), at, 0x20);
            read(&vfs, &format!("samples/{id}/2")).unwrap_err();
            assert_eq!(damaged(&vfs).len(), 1);
            // Another sample heals nothing.
            read(&vfs, &format!("samples/{id}/0")).unwrap();
            assert_eq!(damaged(&vfs).len(), 1);
            cache.flip(&cache.shard_file(0), at, 0x20);
            assert_eq!(
                read(&vfs, &format!("samples/{id}/2")).unwrap(),
                cache.samples[2].payload
            );
            assert_eq!(damaged(&vfs), [""; 0]);
        }
        assert_eq!(crate::status(&vfs)["caches"][id]["damaged"], 0);
    }
}

#[test]
fn a_damaged_block_gives_no_byte_of_what_was_decoded_before_it() {
    let cache = Fixture::new()
        .v2()
        .lz4()
        .payloads(["S".repeat(1024), "a".into(), "b".into()])
        .build();
    // A match that starts before the output, or at distance zero.
    cache.set_stored(
        1,
        &[
            0x14, 0, 0, 0, 0x10, 0x41, 0, 0, 0x50, 0x42, 0x42, 0x42, 0x42, 0x42,
        ],
    );
    cache.set_stored(
        2,
        &[
            0x14, 0, 0, 0, 0x10, 0x41, 9, 0, 0x50, 0x42, 0x42, 0x42, 0x42, 0x42,
        ],
    );
    cache.reseal();
    let vfs = tree_of(&[&cache]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    assert_eq!(read(&vfs, "samples/0/0").unwrap(), [b'S'; 1024]);
                    for sample in 1..3 {
                        let ino = look(&vfs, &format!("samples/0/{sample}")).unwrap().ino;
                        let mut room = [0; 64];
                        assert_eq!(kind(vfs.read(ino, 0, &mut room)), FaultKind::Payload);
                        assert!(!room.contains(&b'S'));
                    }
                }
            });
        }
    });
    assert_eq!(damaged(&vfs).len(), 2);
}

#[test]
fn a_shard_that_went_away_or_is_another_file_is_refused_by_name() {
    let cache = Fixture::tiny().v2().max_shard_bytes(1).build();
    let vfs = tree_of(&[&cache]);
    let shard = cache.path("shards/000001.bin");
    let (hidden, copy) = (cache.path("hidden"), cache.path("copy"));
    fs::copy(&shard, &copy).unwrap();
    fs::rename(&shard, &hidden).unwrap();
    for path in ["samples/0/1"] {
        match look(&vfs, path) {
            Err(VfsError::Damaged(error)) => {
                assert!(
                    matches!(&*error, Error::Io { path, .. } if *path == shard),
                    "{error}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
    fs::rename(&copy, &shard).unwrap();
    assert_eq!(kind(look(&vfs, "samples/0/1")), FaultKind::Replaced);
    assert_eq!(damaged(&vfs).len(), 1);
    fs::rename(&hidden, &shard).unwrap();
    assert_eq!(read(&vfs, "samples/0/1").unwrap(), cache.samples[1].payload);
    assert_eq!(damaged(&vfs), [""; 0]);
}

#[test]
fn ten_thousand_damaged_samples_are_listed_and_more_are_counted() {
    let count = 10_003_u64;
    let cache = Fixture::new().v2().payloads((0..count).map(|_| "")).build();
    // Every record's length of its metadata is wrong.
    cache.edit(&cache.shard_file(0), |bytes| bytes.fill(0xFF));
    let vfs = tree_of(&[&cache]);
    for sample in 0..count {
        look(&vfs, &format!("samples/0/{sample}")).unwrap_err();
    }
    let lines = damaged(&vfs);
    assert_eq!(lines.len(), 10_001);
    assert!(lines[9999].starts_with("0/9999: "), "{}", lines[9999]);
    assert!(lines[10_000].starts_with("3 more "), "{}", lines[10_000]);
    assert_eq!(crate::status(&vfs)["caches"][0]["damaged"], 10_000);
}
