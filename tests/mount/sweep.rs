//! Byte after byte of a tiny cache is changed, and a daemon of its own meets each: it refuses the
//! cache, or gives each sample right or as an error. It never ends by itself and never waits.

use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::fixture::{Fixture, TestCache};
use crate::common::golden::copy_cache;
use crate::common::mount::{MountGuard, can_mount, is_mounted, program};
use crate::live::{EIO, Place};

/// Each daemon must be through with everything in this time.
const LIMIT: Duration = Duration::from_secs(10);
/// All of them together take about this long at most; what is left over is said.
const BUDGET: Duration = Duration::from_secs(60);
const FILES: [&str; 4] = [
    "index.bin",
    "shards/000000.bin",
    "metadata.arrow",
    "manifest.json",
];

/// One changed byte.
#[derive(Clone, Copy, Debug)]
struct Change {
    file: &'static str,
    at: usize,
    mask: u8,
    resealed: bool,
}

/// The bytes that hold structure, then every seventh of all others; masks and seals take turns.
fn changes(cache: &TestCache) -> Vec<Change> {
    let mut places: Vec<(&str, usize)> = (0..72).map(|at| ("index.bin", at)).collect();
    for sample in 0..3 {
        let row = cache.row(sample);
        let json = cache.record(sample).0.len();
        let start = row.offset as usize;
        let prefix = start + 8 + json;
        places.extend(
            (start..start + 8)
                .chain(prefix..prefix + 6)
                .map(|at| (FILES[1], at)),
        );
    }
    let table = cache.read("metadata.arrow").len();
    places.extend(
        (0..8)
            .chain(table - 10..table)
            .map(|at| ("metadata.arrow", at)),
    );
    for file in &FILES[1..] {
        let sparse = (0..cache.read(file).len()).step_by(7).map(|at| (*file, at));
        places.extend(sparse.collect::<Vec<_>>());
    }
    let masks = [0xFF, 0x80, 0x01];
    let changes = places.into_iter().enumerate();
    changes
        .map(|(n, (file, at))| Change {
            file,
            at,
            mask: masks[n % 3],
            resealed: n % 2 == 0 && file != "manifest.json",
        })
        .collect()
}

/// Waits until the daemon is mounted or has ended.
fn started(child: &mut Child, point: &Path, until: Instant) -> Option<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if is_mounted(point) && std::fs::read_dir(point).is_ok() {
            return None;
        }
        assert!(Instant::now() < until, "neither mounted nor refused");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What came of it: whether it was mounted.
fn meet(cache: &TestCache, original: &TestCache, change: Change, point: &Path) -> bool {
    let until = Instant::now() + LIMIT;
    let guard = MountGuard::at(point);
    let mut child = program()
        .args(["-f", "-q", "--umask", "0"])
        .arg(&cache.dir)
        .arg(point)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    if let Some(status) = started(&mut child, point, until) {
        assert_eq!(status.code(), Some(1), "{change:?}: {status}");
        return false;
    }
    for (n, sample) in original.samples.iter().enumerate() {
        match guard.read(&format!("samples/0/{n}")) {
            Err(error) => assert_eq!(error.raw_os_error(), Some(EIO), "{change:?}, {n}: {error}"),
            Ok(bytes) if bytes == sample.payload => {}
            Ok(_) => assert!(
                hits_payload(original, change, n as u64),
                "{change:?}, {n}: other bytes"
            ),
        }
    }
    for file in [
        "caches/0/manifest.json",
        "caches/0/metadata.arrow",
        ".control/damaged",
    ] {
        guard
            .read(file)
            .unwrap_or_else(|error| panic!("{change:?}, {file}: {error}"));
    }
    let status: serde_json::Value =
        serde_json::from_slice(&guard.read(".control/status").unwrap()).unwrap();
    assert_eq!(status["counters"]["panics"], 0, "{change:?}");
    let memory = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let peak = memory
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 256 << 10, "{change:?}: {peak} KiB");
    kill_process(pid, Signal::TERM).unwrap();
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "{change:?}: still there");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(child.wait().unwrap().code(), Some(0), "{change:?}");
    true
}

/// Whether the change lies in the stored payload of a sample, which only a sum covers.
fn hits_payload(cache: &TestCache, change: Change, sample: u64) -> bool {
    let row = cache.row(sample);
    let start = row.offset as usize + 8 + cache.record(sample).0.len();
    let end = (row.offset + row.length) as usize;
    change.file == FILES[1] && (start..end).contains(&change.at)
}

#[test]
fn no_changed_byte_ends_a_daemon_or_gives_a_wrong_one() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let original = place.cache("original", Fixture::tiny().v2().lz4());
    let changes = changes(&original);
    let (next, mounted) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let until = Instant::now() + BUDGET;
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (place, original, changes) = (&place, &original, &changes);
            let (next, mounted) = (&next, &mounted);
            scope.spawn(move || {
                let point = place.path().join(format!("mount-{thread}"));
                std::fs::create_dir(&point).unwrap();
                let cache = TestCache::at(&place.path().join(format!("cache-{thread}")));
                while Instant::now() < until {
                    let Some(change) = changes.get(next.fetch_add(1, Ordering::Relaxed)) else {
                        return;
                    };
                    copy_cache(&original.dir, &cache.dir);
                    cache.flip(change.file, change.at as i64, change.mask);
                    if change.resealed {
                        cache.reseal_sums();
                    }
                    let was_mounted = meet(&cache, original, *change, &point);
                    mounted.fetch_add(usize::from(was_mounted), Ordering::Relaxed);
                }
            });
        }
    });
    let (met, mounted) = (next.into_inner().min(changes.len()), mounted.into_inner());
    println!(
        "{met} of {} changes met, {mounted} of them mounted",
        changes.len()
    );
    // All the structure was met, and both ways out.
    assert!(
        met >= 132 && mounted > 20 && met - mounted > 50,
        "{met}, {mounted}"
    );
}
