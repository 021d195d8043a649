//! Descriptors and memory of the daemon: bounded, whatever is read and how often.

use std::fs::{self, File};

use crate::common::fixture::Fixture;
use crate::common::mount::can_mount;
use crate::live::{Live, Place, limited};
use crate::worker::{Workers, numbers};

#[test]
fn three_thousand_shards_are_read_with_few_descriptors() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let payloads = (0..3000_u32).map(|n| n.to_string());
    let fixture = Fixture::new().v2().max_shard_bytes(1).payloads(payloads);
    let cache = place.cache("cache", fixture);
    assert_eq!(fs::read_dir(cache.path("shards")).unwrap().count(), 3000);
    let live = place.mount_by(limited("-n 256"), &[&cache]);
    let folder = live.path("samples/0");
    let held: Vec<File> = (0..200)
        .map(|n| File::open(folder.join(n.to_string())).unwrap())
        .collect();
    let orders = (0..8).map(|process| numbers(&folder, 3000, process * 375));
    let (mut workers, mut most) = (Workers::start(orders), 0);
    while workers.running() {
        most = most.max(live.descriptors());
    }
    workers.finish();
    assert!(most <= 200, "{most} descriptors");
    for (n, mut file) in held.into_iter().enumerate() {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut file, &mut text).unwrap();
        assert_eq!(text, n.to_string());
    }
    assert_eq!(live.damaged(), [""; 0]);
    live.assert_sound();
}

/// The daemon's descriptors and memory.
fn usage(live: &Live) -> (usize, u64) {
    (live.descriptors(), live.memory("VmRSS"))
}

#[test]
fn a_million_times_open_read_close_leaks_nothing_and_asks_nothing() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let payloads = || (0..500_u32).map(|n| format!("{n:04}").repeat(50));
    let plain = place.cache("plain", Fixture::new().v2().payloads(payloads()));
    let packed = place.cache("packed", Fixture::new().v2().lz4().payloads(payloads()));
    let live = place.mount(&[&plain, &packed]);
    let paths: Vec<_> = (0..1000)
        .map(|n| live.path(&format!("samples/{}/{}", n / 500, n % 500)))
        .collect();
    let round = || {
        let mut room = [0; 256];
        for (n, path) in paths.iter().enumerate() {
            let mut file = File::open(path).unwrap();
            let len = std::io::Read::read(&mut file, &mut room).unwrap();
            assert_eq!(len, 200);
            assert_eq!(&room[..4], format!("{:04}", n % 500).as_bytes());
        }
    };
    round();
    let requests = |live: &Live| live.status()["counters"]["requests"].clone();
    let (first, before) = (requests(&live), usage(&live));
    for _ in 0..999 {
        round();
    }
    let (last, after) = (requests(&live), usage(&live));
    assert_eq!(after.0, before.0, "descriptors");
    assert!(
        after.1 <= before.1 + (1 << 20),
        "{} then {} bytes",
        before.1,
        after.1
    );
    // A few for the looks at the status itself, and for pages that the kernel had to drop for others.
    for (name, count) in last.as_object().unwrap() {
        let more = count.as_u64().unwrap() - first[name].as_u64().unwrap();
        assert!(more <= 1000, "{more} {name} requests for a million reads");
    }
    live.assert_sound();
}
