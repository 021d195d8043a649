//! Caches on a disk that fails on command: what it does to one shard it does to no other.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;

use crate::common::faulty::{ANY_TEMPORARY, Errno, Fault, FaultyDisk};
use crate::common::fixture::{Fixture, TestCache};
use crate::common::mount::{can_mount, is_mounted, program, within};
use crate::common::noise::noise;
use crate::live::{EIO, Live, Place, Watchdog, command, stdout};
use crate::migrate::{CONTROL, stored, temporaries};
use crate::worker;

const LEN: usize = 40_000;
/// Then whoever still waits gets an error.
const HANGS_AFTER: Duration = Duration::from_secs(60);
const SHARD: &str = "cache/shards/000001.bin";

/// Three samples, each in a shard of its own, on a disk of ours.
struct OnDisk {
    // Dropped in this order: what lies on the disk goes first.
    live: Option<Live>,
    disk: FaultyDisk,
    /// The cache as it lies below the disk.
    cache: TestCache,
    place: Place,
}

impl OnDisk {
    fn new(fixture: Fixture) -> Self {
        let place = Place::new();
        let payloads = (0..3).map(|n| noise(LEN, n));
        let fixture = fixture.v2().payloads(payloads).max_shard_bytes(1);
        let cache = place.cache("below/cache", fixture);
        let point = place.path().join("disk");
        fs::create_dir(&point).unwrap();
        Self {
            live: None,
            disk: FaultyDisk::served_by(worker::disk(&place.path().join("below"), &point), &point),
            cache,
            place,
        }
    }

    fn mount(&mut self, words: &[&str]) -> &Live {
        let mut by = program();
        by.args(words);
        let dirs: [PathBuf; 1] = [self.disk.point.join("cache")];
        self.live.insert(self.place.mount_dirs(by, &dirs))
    }
}

/// Reads past what the kernel keeps.
fn fresh(live: &Live, sample: u64) -> std::io::Result<Vec<u8>> {
    let file = File::open(live.path(&format!("samples/0/{sample}")))?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn assert_right(live: &Live, sample: u64) {
    assert!(
        fresh(live, sample).unwrap() == noise(LEN, sample),
        "sample {sample}"
    );
}

#[test]
fn an_error_below_is_an_error_for_the_samples_there_and_heals() {
    if !can_mount() {
        return;
    }
    for fixture in [Fixture::new(), Fixture::new().lz4()] {
        let mut on_disk = OnDisk::new(fixture);
        on_disk.mount(&[]);
        let (live, disk) = (on_disk.live.as_ref().unwrap(), &mut on_disk.disk);
        // Looked up now: the length of a sample on a broken disk is not known.
        (0..3).for_each(|sample| assert_right(live, sample));
        // Reads that give less than they were asked for are gone on with.
        for len in [100, LEN / 2] {
            disk.fault(SHARD, Fault::Short(len));
            assert_right(live, 1);
        }
        for fault in [
            Fault::Fail(Errno::EIO),
            Fault::Fail(Errno::ESTALE),
            Fault::Fail(Errno::ETIMEDOUT),
            Fault::Corrupt(0),
        ] {
            disk.fault(SHARD, fault);
            for _ in 0..2 {
                let failed = fresh(live, 1).map(drop).unwrap_err();
                assert_eq!(failed.raw_os_error(), Some(EIO), "{fault:?}");
                assert_right(live, 0);
                assert_right(live, 2);
            }
            assert_eq!(live.damaged().len(), 1, "{fault:?}");
            assert!(live.damaged()[0].starts_with("0/1: "), "{fault:?}");
            disk.heal();
            assert_right(live, 1);
            assert_eq!(live.damaged(), [""; 0], "{fault:?}");
        }
        live.assert_sound();
    }
}

#[test]
fn an_error_while_a_shard_is_hashed_is_not_the_last_word() {
    if !can_mount() {
        return;
    }
    let mut on_disk = OnDisk::new(Fixture::new());
    on_disk.mount(&["--validate-cache=access"]);
    let (live, disk) = (on_disk.live.as_ref().unwrap(), &mut on_disk.disk);
    disk.fault(SHARD, Fault::Fail(Errno::EIO));
    assert_eq!(live.errno("samples/0/1"), EIO);
    assert_right(live, 0);
    disk.heal();
    assert_right(live, 1);
    // Payload bytes that only the sum covers.
    let mut on_disk = OnDisk::new(Fixture::new());
    on_disk.mount(&["--validate-cache=access"]);
    let (live, disk) = (on_disk.live.as_ref().unwrap(), &mut on_disk.disk);
    disk.fault(SHARD, Fault::Corrupt(1000));
    assert_eq!(live.errno("samples/0/1"), EIO);
    assert_right(live, 2);
}

#[test]
fn reads_that_hang_below_hold_up_nobody_else() {
    if !can_mount() {
        return;
    }
    let mut on_disk = OnDisk::new(Fixture::new());
    on_disk.mount(&["--threads", "2"]);
    let (live, disk) = (on_disk.live.as_ref().unwrap(), &mut on_disk.disk);
    let _watchdog = Watchdog::start(&live.guard.point, HANGS_AFTER);
    disk.fault(SHARD, Fault::Hang);
    std::thread::scope(|scope| {
        // More than there are threads; some of them are still at their first look.
        let readers: Vec<_> = (0..8).map(|_| scope.spawn(|| fresh(live, 1))).collect();
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while disk.hanging() == 0 {
            assert!(std::time::Instant::now() < until, "nobody reads");
            std::thread::yield_now();
        }
        for _ in 0..20 {
            assert_right(live, 0);
            assert_right(live, 2);
            let names = stdout(command(&["ls"]).arg(live.path("samples")));
            assert_eq!(names, b"0\n");
            for sample in [0, 2] {
                let path = live.path(&format!("samples/0/{sample}"));
                assert_eq!(fs::metadata(path).unwrap().len(), LEN as u64);
            }
            assert_eq!(live.status()["caches"][0]["samples"], 3);
        }
        assert!(readers.iter().all(|reader| !reader.is_finished()));
        disk.heal();
        for reader in readers {
            assert!(reader.join().unwrap().unwrap() == noise(LEN, 1));
        }
    });
    live.assert_sound();
}

#[test]
fn a_migration_on_a_disk_that_fails_changes_nothing_or_says_what_it_did() {
    if !can_mount() {
        return;
    }
    let write = |live: &Live| {
        let written = fs::write(live.path(CONTROL), "3\n");
        written.map_err(|error| error.raw_os_error().unwrap())
    };
    let any_temporary = format!("cache/{ANY_TEMPORARY}");
    for (file, fault, errno) in [
        (any_temporary.as_str(), Fault::Sync(Errno::EIO), Errno::EIO),
        (&any_temporary, Fault::Sync(Errno::ENOSPC), Errno::ENOSPC),
        ("cache/manifest.json", Fault::Rename(Errno::EIO), Errno::EIO),
        (
            "cache/manifest.json",
            Fault::Rename(Errno::EROFS),
            Errno::EROFS,
        ),
    ] {
        let mut on_disk = OnDisk::new(Fixture::new());
        on_disk.mount(&[]);
        let (live, disk, cache) = (
            on_disk.live.as_ref().unwrap(),
            &mut on_disk.disk,
            &on_disk.cache,
        );
        let before = cache.read("manifest.json");
        disk.fault(file, fault);
        assert_eq!(write(live), Err(i32::from(errno)), "{fault:?}");
        assert_eq!(cache.read("manifest.json"), before, "{fault:?}");
        assert_eq!(temporaries(cache), [""; 0].map(PathBuf::from), "{fault:?}");
        assert_right(live, 0);
        disk.heal();
        assert_eq!(write(live), Ok(()), "{fault:?}");
        assert_eq!(stored(cache), (3, Some(0)), "{fault:?}");
        assert_right(live, 0);
        live.assert_sound();
    }
    let mut on_disk = OnDisk::new(Fixture::new());
    on_disk.mount(&[]);
    let (live, disk, cache) = (
        on_disk.live.as_ref().unwrap(),
        &mut on_disk.disk,
        &on_disk.cache,
    );
    disk.fault("cache", Fault::Sync(Errno::EIO));
    let status = |live: &Live| {
        let text = live.text(CONTROL);
        let result: serde_json::Value = serde_json::from_str(&text).unwrap();
        let of = |how: &str| {
            result[how]["entries"][0]["status"]
                .as_str()
                .map(str::to_owned)
        };
        of("Ok").or(of("Err")).unwrap()
    };
    assert_eq!(write(live), Err(EIO));
    assert_eq!(status(live), "durability_unknown");
    assert_eq!(stored(cache), (3, Some(0)));
    disk.heal();
    assert_eq!(write(live), Ok(()));
    assert_eq!(status(live), "unchanged");
    live.assert_sound();
}

#[test]
fn a_signal_unmounts_although_a_migration_waits_for_its_disk() {
    if !can_mount() {
        return;
    }
    let mut on_disk = OnDisk::new(Fixture::new());
    on_disk.mount(&[]);
    on_disk.disk.fault("cache/manifest.json", Fault::Hang);
    let control = on_disk.live.as_ref().unwrap().path(CONTROL);
    let writer = std::thread::spawn(move || fs::write(control, "3\n"));
    while on_disk.disk.hanging() == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let live = on_disk.live.as_mut().unwrap();
    live.guard.signal(Signal::TERM);
    assert!(within(|| !is_mounted(&live.guard.point)), "{}", live.log());
    assert_eq!(live.guard.status().code(), Some(0));
    assert!(writer.join().unwrap().is_err());
    on_disk.disk.heal();
    assert_eq!(stored(&on_disk.cache).0, 2);
}
