//! Damage as programs see it: an error each time and no byte, everything else right.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::common::arrow_rewrite::rewrite;
use crate::common::fixture::{Fixture, TestCache, record_of};
use crate::common::mount::{can_mount, program};
use crate::common::noise::noise;
use crate::live::{EIO, Live, Place, command, limited, run, verify};

const LEN: usize = 300 << 10;

/// Three samples of 300 KiB whose metadata differ, each in a shard of its own.
fn three(place: &Place, name: &str, lz4: bool) -> TestCache {
    let fixture = Fixture::new().v2().payloads((0..3).map(|n| noise(LEN, n)));
    let fixture = fixture.max_shard_bytes(1);
    place.cache(name, if lz4 { fixture.lz4() } else { fixture })
}

/// `cat` gives nothing, twice, and says why.
fn unreadable(live: &Live, path: &str) {
    for _ in 0..2 {
        let output = run(
            command(&["cat"]).arg(live.path(path)),
            Duration::from_secs(10),
        );
        assert!(!output.status.success(), "{path}");
        assert_eq!(output.stdout, b"", "{path}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("Input/output error"), "{said}");
        assert_eq!(live.errno(path), EIO, "{path}");
    }
}

fn right(live: &Live, id: u64, sample: u64) {
    let found = live.read(&format!("samples/{id}/{sample}")).unwrap();
    assert!(found == noise(LEN, sample), "sample {sample}");
}

fn assert_verify_finds(cache: &TestCache, words: &[&str]) {
    let (code, said) = verify(&[cache]);
    assert_eq!(code, 1, "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said:?}");
    }
}

#[test]
fn a_record_that_contradicts_its_metadata_is_an_error_and_never_a_byte() {
    if !can_mount() {
        return;
    }
    for lz4 in [false, true] {
        let place = Place::new();
        let cache = three(&place, "cache", lz4);
        cache.set_json(1, br#"{"n":7}"#);
        cache.reseal();
        assert_verify_finds(&cache, &["shards/000001.bin", "sample 1"]);
        for words in [&[][..], &["--validate-cache"], &["--validate-cache=access"]] {
            let mut by = program();
            by.args(words);
            let live = place.mount_by(by, &[&cache]);
            unreadable(&live, "samples/0/1");
            right(&live, 0, 0);
            right(&live, 0, 2);
            let listed = run(
                command(&["ls", "-l"]).arg(live.path("samples/0")),
                Duration::from_secs(10),
            );
            assert!(listed.status.success());
            let listed = String::from_utf8(listed.stdout).unwrap();
            assert_eq!(listed.matches(&format!(" {LEN} ")).count(), 3, "{listed}");
            let lines = live.damaged();
            assert_eq!(lines.len(), 1);
            for word in [
                "0/1: ",
                "shards/000001.bin",
                "offset 8",
                "expected ",
                "found ",
            ] {
                assert!(lines[0].contains(word), "{word:?} is not in {lines:?}");
            }
            assert_eq!(live.status()["caches"][0]["damaged"], 1);
            assert_eq!(
                live.log().matches("cache 0, sample 1: ").count(),
                1,
                "{}",
                live.log()
            );
            live.assert_sound();
        }
    }
}

#[test]
fn exchanged_index_rows_are_errors_for_both_samples() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = three(&place, "cache", false);
    let (first, last) = (cache.row(0), cache.row(2));
    cache.set_row(0, last);
    cache.set_row(2, first);
    cache.reseal();
    let live = place.mount(&[&cache]);
    unreadable(&live, "samples/0/0");
    unreadable(&live, "samples/0/2");
    right(&live, 0, 1);
    assert_verify_finds(&cache, &["sample 0", "sample 2"]);
    live.assert_sound();
}

#[test]
fn a_changed_payload_is_found_by_the_sums() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = three(&place, "cache", false);
    cache.flip("shards/000001.bin", 1000, 1);
    assert_verify_finds(&cache, &["shards/000001.bin"]);
    let mut by = program();
    by.arg("--validate-cache");
    let said = place.refused_by(by, &[&cache]);
    assert!(said.contains("shards/000001.bin"), "{said}");
    let mut by = program();
    by.arg("--validate-cache=access");
    let live = place.mount_by(by, &[&cache]);
    unreadable(&live, "samples/0/1");
    right(&live, 0, 0);
    right(&live, 0, 2);
    live.stop();
    // Nothing else covers it, as the README says.
    let live = place.mount(&[&cache]);
    let read = live.read("samples/0/1").unwrap();
    let differ = read
        .iter()
        .zip(noise(LEN, 1))
        .filter(|(a, b)| **a != *b)
        .count();
    assert_eq!((read.len(), differ), (LEN, 1));
}

#[test]
fn a_missing_shard_is_refused_and_one_that_goes_missing_is_an_error() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = three(&place, "cache", true);
    let live = place.mount(&[&cache]);
    cache.remove("shards/000001.bin");
    unreadable(&live, "samples/0/1");
    right(&live, 0, 0);
    right(&live, 0, 2);
    assert!(live.damaged()[0].contains("shards/000001.bin"));
    live.stop();
    let said = place.refused(&[&cache]);
    assert!(said.contains("shards/000001.bin"), "{said}");
    assert_verify_finds(&cache, &["shards/000001.bin"]);
}

#[test]
fn rows_that_do_not_add_up_are_refused() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = place.cache("cache", Fixture::tiny().v2());
    cache.truncate("index.bin", -24);
    cache.set_manifest("sample_count", 2);
    cache.reseal();
    let said = place.refused(&[&cache]);
    assert!(
        said.contains("metadata.arrow") && said.contains('2') && said.contains('3'),
        "{said}"
    );
    assert_verify_finds(&cache, &["metadata.arrow"]);
    // The other way round.
    let cache = place.cache("other", Fixture::tiny().v2());
    cache.put(
        "metadata.arrow",
        rewrite(&cache.read("metadata.arrow"), "drop_last_row"),
    );
    cache.reseal();
    let said = place.refused(&[&cache]);
    assert!(said.contains("metadata.arrow"), "{said}");
}

#[test]
fn unused_bytes_are_a_warning_each_time_and_the_samples_are_right() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = three(&place, "cache", false);
    cache.append("shards/000002.bin", &[0xEE; 100]);
    cache.reseal();
    let mut by = program();
    by.arg("--validate-cache");
    let live = place.mount_by(by, &[&cache]);
    (0..3).for_each(|sample| right(&live, 0, sample));
    assert_eq!(live.damaged(), [""; 0]);
    let (first, second) = (verify(&[&cache]), verify(&[&cache]));
    assert!(
        first.1.contains("100") && first.1.contains("shards/000002.bin"),
        "{first:?}"
    );
    assert_eq!(first.0, second.0);
}

#[test]
fn lengths_that_no_block_can_have_cost_no_memory() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let good = noise(1000, 0);
    let bad = |n: u8| vec![n; 3];
    let payloads = [
        good.clone(),
        bad(1),
        bad(2),
        bad(3),
        bad(4),
        bad(5),
        bad(6),
        vec![0; 64 << 20],
        Vec::new(),
    ];
    let cache = place.cache("cache", Fixture::new().v2().lz4().payloads(payloads));
    cache.set_stored(1, &[0xFF, 0xFF, 0xFF, 0xFF, 0x10, 0x41]);
    let huge = [&[0xFF, 0xFF, 0xFF, 0x7F], &noise(1024, 9)[..]].concat();
    cache.set_stored(2, &huge);
    for (sample, stored) in [(3, &[][..]), (4, &[0]), (5, &[0; 3]), (6, &[0; 4])] {
        cache.set_stored(sample, stored);
    }
    cache.reseal();
    let (stored, empty) = (cache.record(7).1, cache.record(8).1);
    assert!(stored.len() < 264_000);
    assert_eq!(empty, [0; 5]);
    let live = place.mount_by(limited("-v 2097152"), &[&cache]);
    assert_eq!(live.read("samples/0/0").unwrap(), good);
    let before = live.memory("VmHWM");
    for round in 0..3 {
        for sample in 1..7 {
            assert_eq!(
                live.errno(&format!("samples/0/{sample}")),
                EIO,
                "{round}: {sample}"
            );
        }
    }
    let after = live.memory("VmHWM");
    assert!(after < before + (32 << 20), "{before} then {after}");
    assert_eq!(live.damaged().len(), 6);
    let zeros = live.read("samples/0/7").unwrap();
    assert!(zeros.len() == 64 << 20 && zeros.iter().all(|byte| *byte == 0));
    assert_eq!(live.read("samples/0/8").unwrap(), b"");
    live.assert_sound();
    let (code, said) = verify(&[&cache]);
    assert_eq!(code, 1, "{said}");
    (1..7).for_each(|n| assert!(said.contains(&format!("sample {n}")), "{n}: {said}"));
}

#[test]
fn a_damaged_block_never_shows_bytes_of_another_sample() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let payloads = ["S".repeat(1024), "a".into(), "b".into()];
    let cache = place.cache("cache", Fixture::new().v2().lz4().payloads(payloads));
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
    let live = place.mount(&[&cache]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(live.read("samples/0/0").unwrap(), [b'S'; 1024]);
                    for sample in 1..3 {
                        let file =
                            fs::File::open(live.path(&format!("samples/0/{sample}"))).unwrap();
                        let mut room = [0; 64];
                        let failed = file.read_at(&mut room, 0).unwrap_err();
                        assert_eq!(failed.raw_os_error(), Some(EIO));
                        assert_eq!(room, [0; 64]);
                    }
                }
            });
        }
    });
    live.assert_sound();
}

#[test]
fn a_length_that_a_damaged_record_stated_is_forgotten_when_it_was_repaired() {
    // The kernel kept the length for good, and cut the repaired sample to it.
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let payloads = [noise(LEN, 0), noise(LEN, 1)];
    let cache = place.cache("cache", Fixture::new().v2().payloads(payloads));
    let live = place.mount(&[&cache]);
    let len = |n: u64| fs::metadata(live.path(&format!("samples/0/{n}"))).map(|found| found.len());
    // The header of the first: nobody knows where its payload starts.
    let header = cache.row(0).offset as i64 + 1;
    cache.flip("shards/000000.bin", header, 1);
    assert_eq!(live.errno("samples/0/0"), EIO);
    assert_eq!(len(0).unwrap_err().raw_os_error(), Some(EIO));
    cache.flip("shards/000000.bin", header, 1);
    // In the place of the second: another record.
    let whole = cache.read("shards/000000.bin");
    let other = record_of(br#"{"n":123456}"#, &noise(LEN - 5, 2));
    cache.edit("shards/000000.bin", |bytes| {
        bytes[cache.row(1).offset as usize..].copy_from_slice(&other);
    });
    assert_eq!(len(1).unwrap(), LEN as u64 - 5);
    assert_eq!(live.errno("samples/0/1"), EIO);
    assert_eq!(len(1).unwrap(), LEN as u64 - 5);
    fs::write(cache.path("shards/000000.bin"), &whole).unwrap();
    for sample in 0..2 {
        right(&live, 0, sample);
        assert_eq!(len(sample).unwrap(), LEN as u64);
    }
    live.assert_sound();
}

#[test]
fn a_length_that_a_damaged_payload_stated_never_cuts_the_repaired_one() {
    // The kernel kept the length of the first look, and gave out so many bytes as if they were all.
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let payloads = [3000, 3000, 0].map(|len| noise(len, 0));
    let cache = place.cache("cache", Fixture::new().v2().lz4().payloads(payloads));
    let live = place.mount(&[&cache]);
    // Less than true, but no less than what is stored can come to; more than true; not empty.
    for (sample, byte, bit, stated) in [(0, 0, 8, 2992), (1, 0, 64, 3064), (2, 0, 1, 1)] {
        let row = cache.row(sample);
        let shard = cache.read("shards/000000.bin");
        let header = shard[row.offset as usize..].first_chunk().unwrap();
        let payload = row.offset + 8 + u64::from_le_bytes(*header);
        let path = live.path(&format!("samples/0/{sample}"));
        let len = || fs::metadata(&path).unwrap().len();
        let at = (payload + byte) as i64;
        cache.flip("shards/000000.bin", at, bit);
        assert_eq!(len(), stated);
        cache.flip("shards/000000.bin", at, bit);
        let whole = &cache.samples[sample as usize].payload;
        match fs::read(&path) {
            Ok(read) => assert!(read == *whole, "{} of {} bytes", read.len(), whole.len()),
            Err(error) => assert_eq!(error.raw_os_error(), Some(EIO)),
        }
        assert!(fs::read(&path).unwrap() == *whole);
        assert_eq!(len(), whole.len() as u64);
    }
    assert_eq!(live.damaged(), [""; 0]);
    live.assert_sound();
}

#[test]
fn damage_that_comes_and_goes_is_listed_and_leaves_the_list() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = place.cache("cache", Fixture::tiny().v2());
    let live = place.mount(&[&cache]);
    let at = cache.row(1).offset as i64 + 12;
    for _ in 0..3 {
        cache.flip("shards/000000.bin", at, 0x20);
        assert_eq!(live.errno("samples/0/1"), EIO);
        assert_eq!(live.damaged().len(), 1);
        cache.flip("shards/000000.bin", at, 0x20);
        assert_eq!(live.damaged().len(), 1, "until it was read");
        // A failed read leaves nothing in the kernel's cache.
        assert_eq!(live.read("samples/0/1").unwrap(), cache.samples[1].payload);
        assert_eq!(live.damaged(), [""; 0]);
        // What was read stays in the kernel, so the next round takes another mount's place.
        let file = fs::File::open(live.path("samples/0/1")).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
    live.assert_sound();
}

#[test]
fn readers_of_many_damaged_samples_write_few_lines_and_the_log_counts_the_rest() {
    if !can_mount() {
        return;
    }
    const SAMPLES: usize = 400;
    let place = Place::new();
    let payloads = (0..SAMPLES).map(|n| n.to_string());
    let cache = place.cache("cache", Fixture::new().v2().payloads(payloads));
    for sample in 0..SAMPLES {
        let json = cache.row(sample as u64).offset as i64 + 8;
        cache.flip("shards/000000.bin", json, 1);
    }
    let live = place.mount(&[&cache]);
    for sample in 0..SAMPLES {
        assert_eq!(live.errno(&format!("samples/0/{sample}")), EIO);
    }
    assert_eq!(live.damaged().len(), SAMPLES, "all are listed");
    let told = |line: &str| line.contains("more lines about damaged samples");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while !live.log().lines().any(told) {
        assert!(std::time::Instant::now() < until);
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let log = live.log();
    let lines = log.lines().filter(|line| line.contains("cache 0, sample"));
    assert!(lines.count() < SAMPLES, "{log}");
}
