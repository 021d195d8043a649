//! Migrations while others write, read, parse, or end the daemon.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, FileType, Mode};
use rustix::process::Signal;

use crate::common::fixture::{Fixture, TestCache};
use crate::common::mount::{can_mount, program, within};
use crate::common::noise::noise;
use crate::live::{Live, Place};
use crate::migrate::{CONTROL, stored, temporaries};
use crate::worker::{Workers, reader, writer};

/// Says that something is over, also when the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn ends(workers: &mut Workers) -> bool {
    (0..10).any(|_| within(|| !workers.running()))
}

fn payloads(from: u64) -> Vec<Vec<u8>> {
    (from..from + 20).map(|n| noise(20_000, n)).collect()
}

#[test]
fn many_writers_and_readers_do_not_disturb_each_other() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let plain = place.cache("plain", Fixture::new().v2().payloads(payloads(0)));
    let packed = place.cache("packed", Fixture::new().v2().lz4().payloads(payloads(50)));
    let live = place.mount(&[&plain, &packed]);
    let (go, stop) = (place.path().join("go"), place.path().join("stop"));
    rustix::fs::mknodat(CWD, &go, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let done = |n| place.path().join(format!("done-{n}"));
    let listed: Vec<_> = fs::read_dir(live.path("samples/1"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    let readers = (0..4).map(|n| reader(&live.path(&format!("samples/{}", n % 2)), 20, &stop));
    let readers = Workers::start(readers);
    let control = live.path(CONTROL);
    let mut writers = Workers::start((0..16).map(|n| writer(&control, "3", &go, &done(n))));
    let parsing = AtomicBool::new(true);
    let (parsed, ids) = std::thread::scope(|scope| {
        let end = End(&parsing);
        let parser = scope.spawn(|| {
            let (mut parsed, mut ids) = (0, Vec::new());
            while parsing.load(Ordering::Relaxed) {
                for cache in [&plain, &packed] {
                    // Whole at each moment, of one version or the other.
                    let (version, id) = stored(cache);
                    let known = matches!((version, id), (2, None) | (3, Some(0 | 1)));
                    assert!(known, "{version} {id:?}");
                    ids.extend(id);
                    parsed += 1;
                }
            }
            (parsed, ids)
        });
        let _opened = File::options().write(true).open(&go).unwrap();
        assert!(ends(&mut writers), "writers hang");
        drop(end);
        parser.join().unwrap()
    });
    writers.finish();
    let full = (0..16).filter(|n| done(*n).exists()).count();
    assert!(full >= 1, "every writer heard that it is busy");
    assert!(parsed > 0 && ids.iter().all(|id| *id < 2));
    assert_eq!(
        (stored(&plain), stored(&packed)),
        ((3, Some(0)), (3, Some(1)))
    );
    // Nothing is written again.
    let seen = |cache: &TestCache| {
        let meta = fs::metadata(cache.path("manifest.json")).unwrap();
        (meta.ino(), meta.modified().unwrap())
    };
    let before = (seen(&plain), seen(&packed));
    fs::write(&control, "3\n").unwrap();
    assert_eq!((seen(&plain), seen(&packed)), before);
    assert!(temporaries(&plain).is_empty() && temporaries(&packed).is_empty());
    fs::write(&stop, "").unwrap();
    readers.finish();
    for path in listed {
        File::open(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    }
    assert_eq!(live.damaged(), [""; 0]);
    live.assert_sound();
}

/// Twenty caches, and a mount of them whose migration meets `script` (docs/migration.md).
fn twenty(place: &Place, script: &str) -> (Vec<TestCache>, Live) {
    let caches: Vec<_> = (0..20)
        .map(|n| place.cache(&format!("cache-{n:02}"), Fixture::tiny().v2()))
        .collect();
    let mut by = program();
    by.env("DATASETRT_TEST_STEP", script);
    let live = place.mount_by(by, &caches.iter().collect::<Vec<_>>());
    (caches, live)
}

#[test]
fn a_signal_lets_the_manifest_in_hand_be_finished_and_then_ends_the_mount() {
    if !can_mount() {
        return;
    }
    // Each manifest takes six steps; the signal comes in the middle of the first, or later.
    for step in [1, 3, 6, 9, 40] {
        let place = Place::new();
        let (caches, mut live) = twenty(&place, &format!("kill:{step}:15"));
        let written = fs::write(live.path(CONTROL), "3\n");
        assert_eq!(live.guard.status().code(), Some(0), "{}", live.log());
        assert!(live.guard.is_gone());
        let done = caches.iter().filter(|cache| stored(cache).0 == 3).count();
        let runs = live.log().matches("migration to format 3 started").count();
        assert_eq!(runs, 1, "step {step}");
        match written {
            Ok(()) => assert_eq!(done, 20),
            // Not EINTR: programs then write again, until nobody is there.
            Err(error) => assert_eq!(error.raw_os_error(), Some(125), "{step}: {error}"),
        }
        assert!(done >= (step - 1) / 6, "{done} at step {step}");
        for (n, cache) in caches.iter().enumerate() {
            let expected = if n < done {
                (3, Some(n as u64))
            } else {
                (2, None)
            };
            assert_eq!(stored(cache), expected, "cache {n} of {done}");
            assert!(temporaries(cache).is_empty(), "cache {n}");
        }
        // The same list in its order: the rest is done.
        let live = place.mount(&caches.iter().collect::<Vec<_>>());
        fs::write(live.path(CONTROL), "3").unwrap();
        for (n, cache) in caches.iter().enumerate() {
            assert_eq!(stored(cache), (3, Some(n as u64)));
        }
        live.stop();
    }
}

#[test]
fn a_daemon_that_is_killed_at_any_step_leaves_whole_manifests() {
    if !can_mount() {
        return;
    }
    for step in 1..=12 {
        let place = Place::new();
        let caches = [
            place.cache("first", Fixture::tiny().v2()),
            place.cache("second", Fixture::tiny().v2().lz4()),
        ];
        let mut by = program();
        by.env("DATASETRT_TEST_STEP", format!("kill:{step}:9"));
        let live = place.mount_by(by, &[&caches[0], &caches[1]]);
        fs::write(live.path(CONTROL), "3\n").unwrap_err();
        drop(live);
        for (n, cache) in caches.iter().enumerate() {
            // The sixth step of each comes after its rename.
            let expected = if step >= n * 6 + 6 {
                (3, Some(n as u64))
            } else {
                (2, None)
            };
            assert_eq!(stored(cache), expected, "step {step}, cache {n}");
            cache.validated().unwrap();
        }
        let left: usize = caches.iter().map(|cache| temporaries(cache).len()).sum();
        assert!(left <= 1, "step {step}");
        let live = place.mount(&[&caches[0], &caches[1]]);
        for (id, cache) in caches.iter().enumerate() {
            for (n, sample) in cache.samples.iter().enumerate() {
                assert_eq!(
                    live.read(&format!("samples/{id}/{n}")).unwrap(),
                    sample.payload
                );
            }
        }
        fs::write(live.path(CONTROL), "3\n").unwrap();
        for (n, cache) in caches.iter().enumerate() {
            assert_eq!(stored(cache), (3, Some(n as u64)));
        }
        let still: usize = caches.iter().map(|cache| temporaries(cache).len()).sum();
        assert_eq!(
            still, left,
            "another's temporary file is not ours to remove"
        );
    }
}

#[test]
fn the_word_is_answered_while_samples_are_and_the_daemon_can_be_ended_by_every_signal() {
    if !can_mount() {
        return;
    }
    for signal in [Signal::INT, Signal::TERM] {
        let place = Place::new();
        let (caches, mut live) = twenty(&place, "");
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| fs::write(live.path(CONTROL), "3\n"));
            for (n, cache) in caches.iter().enumerate() {
                let read = live.read(&format!("samples/{n}/1")).unwrap();
                assert_eq!(read, cache.samples[1].payload);
            }
            writer.join().unwrap().unwrap();
        });
        live.guard.signal(signal);
        assert_eq!(live.guard.status().code(), Some(0), "{signal:?}");
        assert!(caches.iter().all(|cache| stored(cache).0 == 3));
    }
}
