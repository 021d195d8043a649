//! `/.control/prefetch` without a mount: lists, their errors, the window, progress.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use datasetrt::vfs::{Ino, Vfs, VfsError, VfsOptions, Written};
use datasetrt::view::ViewSpec;
use serde_json::{Value as Json, json};

use crate::common::fixture::{Fixture, TestCache};
use crate::common::noise::noise;
use crate::{look, read, status, text, tree_with};

const CONTROL: &str = ".control/prefetch";
const COUNT: u64 = 40;
const LEN: usize = 8000;
/// More than an entry takes beside its bytes.
const ENTRY: u64 = 1024;

fn payload(sample: u64) -> Vec<u8> {
    noise(LEN, sample)
}

fn caches() -> [TestCache; 2] {
    let all = || (0..COUNT).map(payload);
    [
        Fixture::new().name("plain").v2().payloads(all()).build(),
        Fixture::new()
            .name("packed")
            .v2()
            .lz4()
            .payloads(all())
            .build(),
    ]
}

fn tree(caches: &[TestCache; 2], cache_memory: u64) -> Arc<Vfs> {
    let options = VfsOptions {
        mountpoint: "/mnt/data".into(),
        cache_memory,
        views: vec![ViewSpec::parse("all={source_name}/{sample_id:04}").unwrap()],
        ..VfsOptions::default()
    };
    tree_with(&[&caches[0], &caches[1]], options)
}

fn write_at(vfs: &Arc<Vfs>, ino: Ino, offset: usize, list: &str) -> Result<(), VfsError> {
    match vfs.write_at(ino, offset as u64, list.as_bytes())? {
        Written::Later(work) => work(),
        Written::All => panic!("a path may take long to look up"),
    }
}

fn write(vfs: &Arc<Vfs>, list: &str) -> Result<(), VfsError> {
    write_at(vfs, look(vfs, CONTROL).unwrap().ino, 0, list)
}

fn said(vfs: &Vfs) -> Json {
    serde_json::from_str(&text(vfs, CONTROL)).unwrap()
}

/// Waits until the progress is as `expected`, which is all that stands still.
fn until(vfs: &Vfs, expected: &Json) {
    let hangs = Instant::now() + Duration::from_secs(120);
    loop {
        let found = status(vfs)["prefetch"].clone();
        let expected = expected.as_object().unwrap();
        if expected.iter().all(|(key, value)| found[key] == *value) {
            return;
        }
        assert!(Instant::now() < hangs, "{found}, expected {expected:?}");
        sleep(Duration::from_millis(20));
    }
}

fn list(cache: u64) -> String {
    (0..COUNT).map(|n| format!("{cache}/{n}\n")).collect()
}

#[test]
fn listed_samples_are_decoded_before_they_are_read() {
    let caches = caches();
    let vfs = tree(&caches, 1 << 30);
    let attr = look(&vfs, CONTROL).unwrap();
    assert_eq!((attr.perm, attr.size), (0o600, 0));
    write(&vfs, &(list(1) + &list(0))).unwrap();
    assert_eq!(said(&vfs), json!({"accepted": 2 * COUNT}));
    until(
        &vfs,
        &json!({"pending": 0, "read_ahead": 2 * COUNT, "ahead_samples": 2 * COUNT}),
    );
    assert_eq!(vfs.counters().payloads_decoded(), COUNT);
    let held = status(&vfs)["cache_memory"]["held_bytes"].as_u64().unwrap();
    // Each with its entry.
    assert_eq!(held % COUNT, 0);
    assert!((LEN as u64 + 1..LEN as u64 + ENTRY).contains(&(held / COUNT)));
    for cache in 0..2 {
        for n in 0..COUNT {
            assert!(read(&vfs, &format!("samples/{cache}/{n}")).unwrap() == payload(n));
        }
    }
    until(
        &vfs,
        &json!({"accepted": 2 * COUNT, "used": 2 * COUNT, "unused": 0, "ahead_bytes": 0}),
    );
    let counters = vfs.counters();
    assert_eq!(
        (counters.payloads_decoded(), counters.payload_hits()),
        (COUNT, COUNT)
    );
    let held = &status(&vfs)["cache_memory"]["held_bytes"];
    assert_eq!(*held, 0, "what was read is not kept");
    // Without a list, nothing is kept of what is read whole.
    assert!(read(&vfs, "samples/1/0").unwrap() == payload(0));
    assert_eq!(counters.payloads_decoded(), COUNT + 1);
}

#[test]
fn samples_without_bytes_count_as_entries_of_the_budget() {
    const TINY: usize = 5000;
    let payloads = (0..TINY).map(|_| b"x");
    let cache = Fixture::new().cache_id(1).lz4().payloads(payloads).build();
    let options = VfsOptions {
        cache_memory: 512 << 10,
        ..VfsOptions::default()
    };
    let vfs = tree_with(&[&cache], options);
    let list: String = (0..TINY).map(|n| format!("1/{n}\n")).collect();
    write(&vfs, &list).unwrap();
    let ready = || status(&vfs)["prefetch"]["ahead_samples"].as_u64().unwrap();
    // An entry takes at least its key, a pointer and a time.
    let most = (256 << 10) / 64 + 4;
    let full = || {
        let ahead = status(&vfs)["prefetch"]["ahead_bytes"].as_u64().unwrap();
        assert!(ready() <= most, "{}", ready());
        ahead >= 256 << 10
    };
    let until = Instant::now() + Duration::from_secs(60);
    while !full() {
        assert!(Instant::now() < until, "{}", status(&vfs));
        std::thread::yield_now();
    }
    assert!(ready() < TINY as u64 && ready() > 0);
    let held = status(&vfs)["cache_memory"]["held_bytes"].as_u64().unwrap();
    assert!(held <= 512 << 10, "{held}");
}

#[test]
fn no_more_is_kept_ready_than_half_of_the_budget() {
    let caches = caches();
    let budget = 10 * LEN as u64;
    let vfs = tree(&caches, budget);
    write(&vfs, &list(1)).unwrap();
    for n in 0..COUNT {
        let status = status(&vfs);
        let ahead = status["prefetch"]["ahead_bytes"].as_u64().unwrap();
        let held = status["cache_memory"]["held_bytes"].as_u64().unwrap();
        // Each of four threads may have begun with one when there was room.
        assert!(
            ahead <= budget / 2 + 4 * (LEN as u64 + ENTRY) && held <= budget,
            "{status}"
        );
        assert!(read(&vfs, &format!("samples/1/{n}")).unwrap() == payload(n));
    }
    until(&vfs, &json!({"pending": 0, "ahead_bytes": 0}));
    let found = status(&vfs)["prefetch"].clone();
    let sum: u64 = ["used", "skipped"]
        .iter()
        .map(|key| found[key].as_u64().unwrap())
        .sum();
    assert!(sum <= COUNT && found["unused"] == 0, "{found}");
}

#[test]
fn samples_are_named_by_ids_and_by_any_path() {
    let caches = caches();
    let vfs = tree(&caches, 1 << 30);
    let paths = [
        "1/0",
        "samples/1/1",
        "/mnt/data/samples/1/2",
        "./samples//1/3",
        "by-name/packed/4",
        "/mnt/data/views/all/packed/0005",
    ];
    write(&vfs, &(paths.join("\n\n") + "\n\n")).unwrap();
    until(&vfs, &json!({"accepted": 6, "ahead_samples": 6}));
    // A last line needs no end.
    write(&vfs, "1/6\n1/7").unwrap();
    until(&vfs, &json!({"accepted": 8, "ahead_samples": 8}));
    (0..8).for_each(|n| assert!(read(&vfs, &format!("samples/1/{n}")).unwrap() == payload(n)));
    assert_eq!(vfs.counters().payload_hits(), 8);
}

#[test]
fn a_path_may_start_at_the_root_of_the_mount_or_at_the_mountpoint() {
    let caches = caches();
    let vfs = tree(&caches, 1 << 30);
    for line in [
        "/samples/1/0",
        "/mnt/data/samples/1/1",
        "samples/1/2",
        "1/3",
    ] {
        write(&vfs, &format!("{line}\n")).unwrap();
        assert_eq!(said(&vfs), json!({"accepted": 1}), "{line}");
    }
}

#[test]
fn a_line_that_names_no_sample_is_refused_with_all_that_came_with_it() {
    let caches = caches();
    let vfs = tree(&caches, 1 << 30);
    for (line, reason) in [
        ("1/40", "no such sample"),
        ("2/0", "no such sample"),
        ("01/0", "no such sample"),
        ("1/0 ", "no such sample"),
        ("nonsense", "no such sample"),
        ("samples/1/0/x", "no such sample"),
        ("samples/1/../1/0", "no such sample"),
        ("samples/1", "not a sample"),
        ("caches/1/manifest.json", "not a sample"),
        ("/mnt/data", "not below /mnt/data"),
        ("/mnt/data2/samples/1/0", "not below /mnt/data"),
        ("/mnt/data/", "not a sample"),
        ("\r", "no such sample"),
    ] {
        let refused = write(&vfs, &format!("1/0\n\n{line}\n1/1\n"));
        assert!(matches!(refused, Err(VfsError::BadControlWord)), "{line:?}");
        let expected = json!({"refused": {"line": 3, "text": line, "reason": reason}});
        assert_eq!(said(&vfs), expected);
    }
    let prefetch = status(&vfs)["prefetch"].clone();
    assert_eq!(
        (&prefetch["accepted"], &prefetch["pending"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(vfs.counters().payloads_decoded(), 0);
    // Cutting the file, as a shell does first, and no line at all are no commands.
    write(&vfs, "\n").unwrap();
    assert_eq!(said(&vfs), json!({"accepted": 0}));
}

#[test]
fn a_long_list_comes_in_pieces_that_end_anywhere() {
    let caches = caches();
    for size in [4096, 5001, 8192] {
        let vfs = tree(&caches, 1 << 30);
        let ino = look(&vfs, CONTROL).unwrap().ino;
        let lines = list(1).repeat(60);
        for (n, piece) in lines.as_bytes().chunks(size).enumerate() {
            let piece = std::str::from_utf8(piece).unwrap();
            write_at(&vfs, ino, n * size, piece).unwrap();
        }
        until(
            &vfs,
            &json!({"accepted": 60 * COUNT, "pending": 0, "ahead_samples": COUNT}),
        );
    }
}

#[test]
fn a_piece_that_nobody_goes_on_with_spoils_no_other_list() {
    let caches = caches();
    let vfs = tree(&caches, 1 << 30);
    let ino = look(&vfs, CONTROL).unwrap().ino;
    let lines = list(1).repeat(30);
    let cut = lines.len() - 2;
    write_at(&vfs, ino, 0, &lines[..cut]).unwrap();
    // The last line is 1/3 if nothing follows, and 1/39 if the rest does.
    until(&vfs, &json!({"accepted": 30 * COUNT, "pending": 0}));
    write_at(&vfs, ino, cut, "9").unwrap();
    until(&vfs, &json!({"accepted": 30 * COUNT, "pending": 0}));
    write_at(&vfs, ino, cut + 1, "\n").unwrap();
    until(
        &vfs,
        &json!({"accepted": 30 * COUNT, "ahead_samples": COUNT}),
    );
    // Elsewhere: another list.
    write_at(&vfs, ino, 0, &lines[..cut - 1]).unwrap();
    write_at(&vfs, ino, 0, "1/1\n").unwrap();
    until(&vfs, &json!({"accepted": 60 * COUNT, "pending": 0}));
    write_at(&vfs, ino, cut - 1, "39\n").unwrap_err();
    // A line without an end is bounded.
    let endless = "1".repeat(3000) + "\n" + &"1".repeat(5000);
    write_at(&vfs, ino, 0, &endless).unwrap_err();
    write_at(&vfs, ino, 0, &"1".repeat(5000)).unwrap_err();
}

#[test]
fn a_damaged_sample_is_found_and_the_others_go_on() {
    let caches = caches();
    let row = caches[1].row(3);
    caches[1].flip(&caches[1].shard_file(0), row.offset as i64 + 9, 1);
    let vfs = tree(&caches, 1 << 30);
    write(&vfs, &list(1)).unwrap();
    until(
        &vfs,
        &json!({"pending": 0, "failed": 1, "ahead_samples": COUNT - 1}),
    );
    assert!(text(&vfs, ".control/damaged").starts_with("1/3: "));
    assert!(matches!(
        read(&vfs, "samples/1/3"),
        Err(VfsError::Damaged(_))
    ));
    assert!(read(&vfs, "samples/1/4").unwrap() == payload(4));
}

#[test]
fn a_reader_that_is_faster_is_not_followed() {
    let caches = caches();
    // No room to keep anything ready but one at a time.
    let vfs = tree(&caches, 2 * LEN as u64 + 100);
    write(&vfs, &(list(1).repeat(3) + &list(1))).unwrap();
    for _ in 0..2 {
        for n in 0..COUNT {
            assert!(read(&vfs, &format!("samples/1/{n}")).unwrap() == payload(n));
        }
    }
    // What was read is skipped, so the list comes to its end although nobody reads any more.
    until(&vfs, &json!({"pending": 0, "failed": 0}));
    assert!(status(&vfs)["prefetch"]["skipped"].as_u64().unwrap() >= 3 * COUNT - 8);
}
