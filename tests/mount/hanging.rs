//! A disk that does not answer: who waits for it is shown, and nobody else waits.

use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value as Json;

use crate::common::fixture::Fixture;
use crate::common::mount::can_mount;
use crate::common::noise::noise;
use crate::live::{Live, Place};

const LEN: usize = 300_000;
/// Against hanging only.
const LIMIT: Duration = Duration::from_secs(120);

/// A mount of ours whose daemon is stopped, as a disk below ours that hangs. Goes on when dropped.
struct Hung<'a>(&'a Live);

impl<'a> Hung<'a> {
    fn hang(live: &'a Live) -> Self {
        live.guard.signal(Signal::STOP);
        Self(live)
    }
}

impl Drop for Hung<'_> {
    fn drop(&mut self) {
        self.0.guard.signal(Signal::CONT);
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names: Vec<_> = entries.map(|entry| name(entry.unwrap())).collect();
    names.sort();
    names
}

fn wait_for(mut done: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_request_that_hangs_is_shown_with_its_sample_and_file_and_holds_up_no_other_sample() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let payloads = (0..3).map(|seed| noise(LEN, seed));
    let fixture = Fixture::new()
        .cache_id(7)
        .max_shard_bytes(1)
        .payloads(payloads);
    let cache = place.cache("cache", fixture);
    // The shard lies on another mount.
    let shard = cache.read("shards/000001.bin");
    let below = place.cache("below", Fixture::new().v2().payloads([shard]));
    let below = place.mount(&[&below]);
    cache.remove("shards/000001.bin");
    symlink(below.path("samples/0/0"), cache.path("shards/000001.bin")).unwrap();
    let live = place.mount(&[&cache]);
    assert_eq!(live.status()["slow_requests"], serde_json::json!([]));
    std::thread::scope(|scope| {
        let hung = Hung::hang(&below);
        // Nobody has seen a length yet, and names come all the same.
        let names = scope.spawn(|| names(&live.path("samples/7")));
        wait_for(|| names.is_finished());
        assert_eq!(names.join().unwrap(), ["0", "1", "2"]);
        let reader = scope.spawn(|| live.read("samples/7/1").unwrap());
        let until = Instant::now() + LIMIT;
        // The listing looks for lengths as long as the disk does not answer.
        let reads = |slow: &&Json| slow["request"] != "readdirplus";
        let slow = loop {
            for sample in [0, 2] {
                let read = live.read(&format!("samples/7/{sample}")).unwrap();
                assert_eq!(read, cache.samples[sample].payload);
            }
            let slow = live.status()["slow_requests"].clone();
            let slow = slow.as_array().unwrap().iter().filter(reads).cloned();
            let slow: Vec<Json> = slow.collect();
            if !slow.is_empty() {
                break slow;
            }
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(100));
        };
        assert_eq!(slow.len(), 1, "{slow:?}");
        assert_eq!(slow[0]["cache_id"], 7);
        assert_eq!(slow[0]["cache"], "7");
        assert_eq!(slow[0]["sample"], 1);
        let file = cache.path("shards/000001.bin");
        assert_eq!(slow[0]["file"], file.to_str().unwrap());
        assert!(slow[0]["seconds"].as_u64().unwrap() >= 5);
        let request = slow[0]["request"].as_str().unwrap();
        assert!(["lookup", "getattr", "read"].contains(&request), "{slow:?}");
        assert!(!reader.is_finished());
        drop(hung);
        assert_eq!(reader.join().unwrap(), cache.samples[1].payload);
    });
    wait_for(|| live.status()["slow_requests"] == serde_json::json!([]));
    assert_eq!(live.damaged(), [""; 0]);
    live.assert_sound();
    // The upper one first: it has a file of the lower one open.
    live.stop();
    below.stop();
    fs::remove_file(cache.path("shards/000001.bin")).unwrap();
}

#[test]
fn two_hundred_large_reads_that_hang_hold_little_memory() {
    if !can_mount() {
        return;
    }
    const LARGE: usize = 8 << 20;
    const READERS: usize = 200;
    let place = Place::new();
    let payload = noise(LARGE, 1);
    let cache = place.cache("cache", Fixture::new().cache_id(7).payloads([&payload]));
    let shard = cache.read("shards/000000.bin");
    let below = place.cache("below", Fixture::new().v2().payloads([shard]));
    let below = place.mount(&[&below]);
    cache.remove("shards/000000.bin");
    symlink(below.path("samples/0/0"), cache.path("shards/000000.bin")).unwrap();
    let live = place.mount(&[&cache]);
    let path = live.path("samples/7/0");
    // The length is known then.
    assert_eq!(fs::metadata(&path).unwrap().len(), LARGE as u64);
    let threads = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", live.pid()));
        tasks.unwrap().count()
    };
    let before = live.memory("RssAnon");
    std::thread::scope(|scope| {
        let hung = Hung::hang(&below);
        for _ in 0..READERS {
            let (path, payload) = (&path, &payload);
            scope.spawn(move || {
                // By its own request, past the kernel's pages.
                let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap();
                let file = fs::OpenOptions::new()
                    .read(true)
                    .custom_flags(direct)
                    .open(path);
                let mut piece = vec![0; 1 << 20];
                file.unwrap().read_exact_at(&mut piece, 5 << 20).unwrap();
                assert!(piece == payload[5 << 20..6 << 20]);
            });
        }
        wait_for(|| threads() >= READERS);
        let held = live.memory("RssAnon").saturating_sub(before);
        assert!(held < 64 << 20, "{} MiB", held >> 20);
        drop(hung);
    });
    // What was read went to the readers.
    wait_for(|| live.memory("RssAnon") < before + (32 << 20));
    live.assert_sound();
    live.stop();
    below.stop();
    fs::remove_file(cache.path("shards/000000.bin")).unwrap();
}
