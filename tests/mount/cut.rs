//! Files that are cut, replaced or taken away while they are read: right bytes or an error, and all is
//! well again when they are whole.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::fixture::{Fixture, TestCache};
use crate::common::mount::{can_mount, within};
use crate::common::noise::noise;
use crate::live::{EIO, Live, Place, verify};

const LEN: usize = 50_000;

/// Reads a sample past what the kernel keeps; an error must be EIO.
fn read(live: &Live, cache: u64, sample: u64) -> Option<Vec<u8>> {
    let fresh = || {
        let file = fs::File::open(live.path(&format!("samples/{cache}/{sample}")))?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        let mut bytes = vec![0; LEN];
        file.read_exact_at(&mut bytes, 0).map(|()| bytes)
    };
    match fresh() {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(EIO), "{error}");
            None
        }
    }
}

fn cut(cache: &TestCache, file: &str, len: u64) {
    let file = OpenOptions::new().write(true).open(cache.path(file));
    file.unwrap().set_len(len).unwrap();
}

/// Puts back what is missing at the end, so that the length is right only with the last byte.
fn restore(cache: &TestCache, file: &str, whole: &[u8]) {
    let mut there = OpenOptions::new()
        .append(true)
        .open(cache.path(file))
        .unwrap();
    let len = there.metadata().unwrap().len() as usize;
    there.write_all(&whole[len..]).unwrap();
}

/// What is done to a file of a cache and taken back.
fn attacks(cache: &TestCache, file: &str) {
    let whole = cache.read(file);
    for len in [0, 1, whole.len() as u64 / 2, whole.len() as u64 - 1] {
        cut(cache, file, len);
        let _ = verify(&[cache]);
        restore(cache, file, &whole);
    }
    let (path, aside) = (cache.path(file), cache.path("aside"));
    fs::rename(&path, &aside).unwrap();
    let _ = verify(&[cache]);
    fs::write(&path, &whole[..whole.len() / 3]).unwrap();
    let _ = verify(&[cache]);
    fs::rename(&aside, &path).unwrap();
}

#[test]
fn files_that_are_cut_replaced_or_deleted_give_errors_or_right_bytes_and_heal() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let fixture = |n: u64| {
        let payloads = (0..2).map(move |sample| noise(LEN, n + sample));
        Fixture::new().v2().payloads(payloads).max_shard_bytes(1)
    };
    let plain = place.cache("plain", fixture(0));
    let packed = place.cache("packed", fixture(10).lz4());
    let whole = place.cache("whole", fixture(20));
    let live = place.mount(&[&plain, &packed, &whole]);
    let (ended, passes) = (AtomicBool::new(false), AtomicU64::new(0));
    let read_all = || {
        for (cache, seed) in [(0, 0), (1, 10), (2, 20)] {
            for sample in 0..2 {
                let found = read(&live, cache, sample);
                let right = found.as_deref() == Some(&noise(LEN, seed + sample));
                // Only first shards are attacked.
                let may_fail = cache < 2 && sample == 0;
                assert!(right || may_fail && found.is_none(), "{cache}/{sample}");
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    read_all();
                    passes.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let attacked = std::panic::catch_unwind(|| {
            attacks(&plain, "shards/000000.bin");
            attacks(&packed, "shards/000000.bin");
            let seen = passes.load(Ordering::Relaxed);
            assert!(
                within(|| passes.load(Ordering::Relaxed) > seen + 4),
                "they read"
            );
        });
        ended.store(true, Ordering::Relaxed);
        attacked.unwrap();
    });
    for (cache, seed) in [(0, 0), (1, 10)] {
        assert!(read(&live, cache, 0).unwrap() == noise(LEN, seed));
    }
    assert_eq!(live.damaged(), [""; 0]);
    live.assert_sound();
}

#[test]
fn a_mapped_file_that_is_cut_closes_its_cache_alone_and_heals() {
    if !can_mount() {
        return;
    }
    for file in ["index.bin", "metadata.arrow"] {
        for share in [0, 2] {
            let place = Place::new();
            // Larger than a page, so that a part of it is lost for good and a part reads as zeros.
            let payloads = (0..600_u64).map(|n| noise(20, n));
            let cache = place.cache("cut", Fixture::new().v2().payloads(payloads));
            let other = place.cache("other", Fixture::new().v2().payloads([noise(LEN, 7)]));
            let live = place.mount(&[&cache, &other]);
            let whole = cache.read(file);
            cut(&cache, file, whole.len() as u64 * share / 5);
            for sample in [0, 299, 599] {
                let path = format!("samples/0/{sample}");
                assert_eq!(live.errno(&path), EIO, "{file} {path}");
            }
            assert!(live.log().contains(file), "{}", live.log());
            assert!(read(&live, 1, 0).unwrap() == noise(LEN, 7));
            let (code, said) = verify(&[&cache]);
            assert!(code == 1 && said.contains(file), "{code}: {said}");
            // Of the same length, and not the same: that is no healing.
            restore(&cache, file, &whole);
            cache.flip(file, whole.len() as i64 / 2, 1);
            assert_eq!(live.errno("samples/0/1"), EIO, "{file}");
            cache.flip(file, whole.len() as i64 / 2, 1);
            for sample in [0, 1, 299, 599] {
                let read = live.read(&format!("samples/0/{sample}")).unwrap();
                assert_eq!(read, noise(20, sample), "{file}");
            }
            assert!(live.read("caches/0/metadata.arrow").is_ok());
            assert_eq!(live.damaged(), [""; 0]);
            // As often as it takes.
            cut(&cache, file, 0);
            assert_eq!(live.errno("samples/0/2"), EIO, "{file}");
            restore(&cache, file, &whole);
            assert_eq!(live.read("samples/0/2").unwrap(), noise(20, 2), "{file}");
            live.assert_sound();
        }
    }
}
