//! Index rows, record headers and shard names that point where they must not.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use datasetrt::format::index::IndexRow;

use crate::common::fixture::{Fixture, TestCache};
use crate::common::json::Json;
use crate::common::mount::{MountGuard, can_mount, skip};
use crate::live::{EIO, Place, limited, run, verify};

fn tiny(place: &Place) -> TestCache {
    let used = fs::read_dir(place.path()).unwrap().count();
    place.cache(&format!("cache-{used}"), Fixture::tiny().v2())
}

#[test]
fn rows_that_point_outside_are_refused_with_their_number() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let whole = tiny(&place);
    let (row, len) = (whole.row(1), whole.read("shards/000000.bin").len() as u64);
    let rows = [
        (0, u64::MAX - 7, 16),
        (0, len - 4, 8),
        (1 << 32, 0, row.length),
        (1, 0, row.length),
        (u64::MAX, u64::MAX, u64::MAX),
        (0, row.offset, 0),
        (0, row.offset, 7),
        (0, row.offset, 1 << 63),
        (0, row.offset, u64::MAX),
        (0, 0, len + 1),
    ];
    for (shard, offset, length) in rows {
        let cache = tiny(&place);
        cache.set_row(
            1,
            IndexRow {
                shard,
                offset,
                length,
            },
        );
        cache.reseal_sums();
        let said = place.refused_by(limited("-v 2097152"), &[&cache]);
        assert!(
            said.contains("index.bin") && said.contains("sample 1"),
            "{said}"
        );
        let (code, said) = verify(&[&cache]);
        assert!(code == 1 && said.contains("sample 1"), "{said}");
    }
    let cache = tiny(&place);
    cache.append("index.bin", &[0]);
    cache.reseal_sums();
    assert!(place.refused(&[&cache]).contains("index.bin"));
    for count in [1 << 63, u64::MAX, 0, 4] {
        let cache = tiny(&place);
        cache.set_manifest("sample_count", count);
        let said = place.refused_by(limited("-v 2097152"), &[&cache]);
        assert!(said.contains(&count.to_string()), "{said}");
    }
}

#[test]
fn record_headers_that_point_outside_are_errors_for_their_sample_alone() {
    if !can_mount() {
        return;
    }
    for lz4 in [false, true] {
        let place = Place::new();
        let fixture = Fixture::tiny().v2();
        let cache = place.cache("cache", if lz4 { fixture.lz4() } else { fixture });
        let row = cache.row(1);
        for length in [
            u64::MAX,
            u64::MAX - 7,
            1 << 63,
            row.length - 7,
            row.length,
            1 << 32,
        ] {
            cache.edit("shards/000000.bin", |bytes| {
                bytes[row.offset as usize..][..8].copy_from_slice(&length.to_le_bytes());
            });
            let live = place.mount_by(limited("-v 2097152"), &[&cache]);
            assert_eq!(live.errno("samples/0/1"), EIO, "{length}");
            for sample in [0, 2] {
                let read = live.read(&format!("samples/0/{sample}")).unwrap();
                assert_eq!(read, cache.samples[sample].payload);
            }
            assert!(live.memory("VmHWM") < 64 << 20);
            live.assert_sound();
        }
    }
}

#[test]
fn a_record_beyond_four_gibibytes_is_read_right() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = place.cache("cache", Fixture::new().v2().payloads(["near", "far"]));
    let (row, far) = (cache.row(1), (4_u64 << 30) + 17);
    let bytes = cache.read("shards/000000.bin");
    let shard = File::options()
        .write(true)
        .open(cache.path("shards/000000.bin"))
        .unwrap();
    // A hole: it takes no room on the disk.
    shard.set_len(5 << 30).unwrap();
    shard
        .write_all_at(&bytes[row.offset as usize..], far)
        .unwrap();
    cache.set_row(1, IndexRow { offset: far, ..row });
    cache.set_manifest("shards/0/byte_len", 5_u64 << 30);
    let live = place.mount(&[&cache]);
    assert_eq!(live.read("samples/0/0").unwrap(), b"near");
    assert_eq!(live.read("samples/0/1").unwrap(), b"far");
    assert!(live.memory("VmHWM") < 64 << 20);
    live.assert_sound();
}

#[test]
fn no_shard_name_leads_out_of_the_shards_folder() {
    if !can_mount() {
        return;
    }
    if run(
        std::process::Command::new("strace").arg("-V"),
        Duration::from_secs(5),
    )
    .status
    .code()
        != Some(0)
    {
        skip("no strace");
        return;
    }
    let place = Place::new();
    let outside = place.path().join("outside.bin");
    let absolute = outside.to_str().unwrap().to_owned();
    let long = "x".repeat(300);
    for name in [
        "../../outside.bin",
        &absolute,
        "a/../000000.bin",
        "./000000.bin",
        "",
        ".",
        "..",
        "000000.bin\0",
        &long,
    ] {
        let cache = tiny(&place);
        fs::copy(cache.path("shards/000000.bin"), &outside).unwrap();
        fs::create_dir_all(cache.path("shards/a")).unwrap();
        cache.set_manifest("shards/0/name", Json::string(name));
        let log = place.path().join("strace.log");
        let mut traced = std::process::Command::new("strace");
        let guard = MountGuard::at(place.point());
        traced
            .args([
                "-f",
                "-s",
                "4096",
                "-e",
                "trace=open,openat,openat2,stat,newfstatat,statx",
                "-o",
            ])
            .arg(&log)
            .arg(env!("CARGO_BIN_EXE_datasetrt-mount"))
            .arg(&cache.dir)
            .arg(&guard.point);
        let output = run(&mut traced, Duration::from_secs(30));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{name:?}: {said}");
        assert!(said.contains("shard"), "{name:?}: {said}");
        let calls = fs::read_to_string(&log).unwrap();
        assert!(calls.contains("manifest.json"), "{calls}");
        assert!(
            !calls.contains("outside.bin") && !calls.contains("shards"),
            "{name:?}: {calls}"
        );
        assert!(guard.is_gone());
        let (code, said) = verify(&[&cache]);
        assert!(code == 1 && said.contains("shard"), "{name:?}: {said}");
    }
}
