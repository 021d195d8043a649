//! A disk that hangs under any kind of request, with more who ask than there are event threads: everybody
//! else is answered.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, AtFlags, CWD, StatxFlags};
use rustix::process::Pid;
use rustix::thread::gettid;

use crate::common::faulty::{Fault, FaultyDisk};
use crate::common::fixture::Fixture;
use crate::common::mount::{can_mount, program};
use crate::live::{Live, Place};
use crate::worker;

/// More than the extensions that one listing finds ahead.
const SAMPLES: usize = 1500;
/// Event threads are one more.
const THREADS: &str = "2";
const REQUESTERS: usize = 8;
/// Against hanging only.
const LIMIT: Duration = Duration::from_secs(60);
const SHARD: &str = "cache/shards/000000.bin";
const MANIFEST: &str = "cache/manifest.json";

/// What one requester does once the disk hangs. What it gets does not matter.
type Ask = Box<dyn FnOnce() + Send>;

/// One kind of request.
struct Kind {
    name: &'static str,
    /// The file of the disk that hangs.
    file: &'static str,
    /// Whether the requests wait for it.
    waits: bool,
    /// What is done before, while the disk hangs already, and so that something waits for it.
    first: Option<fn(&Path)>,
    /// What requester number n of the mount at a path does; done before the disk hangs.
    prepare: fn(&Path, usize) -> Ask,
}

impl Kind {
    fn new(name: &'static str, prepare: fn(&Path, usize) -> Ask) -> Self {
        Self {
            name,
            file: SHARD,
            waits: true,
            first: None,
            prepare,
        }
    }
}

fn kinds() -> Vec<Kind> {
    vec![
        Kind::new("lookup", |mount, n| {
            let sample = mount.join(format!("samples/0/{n}"));
            Box::new(move || drop(fs::metadata(sample)))
        }),
        Kind {
            waits: false,
            ..Kind::new("getattr", |mount, n| {
                let sample = mount.join(format!("samples/0/{n}"));
                fs::metadata(&sample).unwrap();
                let flags = AtFlags::STATX_FORCE_SYNC;
                Box::new(move || {
                    let known = rustix::fs::statx(CWD, sample, flags, StatxFlags::SIZE);
                    assert_eq!(known.unwrap().stx_size, 50);
                })
            })
        },
        Kind::new("read", |mount, n| {
            let file = File::open(mount.join(format!("samples/0/{n}"))).unwrap();
            Box::new(move || {
                rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
                let _ = rustix::io::pread(&file, &mut [0; 64], 0);
            })
        }),
        Kind::new("readdirplus", |mount, _| {
            let folder = mount.join("samples/0");
            Box::new(move || list(&folder))
        }),
        Kind::new("readdir past the extensions that are known", |mount, _| {
            let mut names = fs::read_dir(mount.join("views/flat/all")).unwrap();
            // After the first answer the kernel asks for names alone.
            assert_eq!(names.by_ref().take(1000).count(), 1000);
            Box::new(move || names.for_each(drop))
        }),
        Kind::new("opendir of a view that is not built", |mount, _| {
            let folder = mount.join("views/late");
            Box::new(move || list(&folder))
        }),
        Kind::new("lookup in a view that is not built", |mount, _| {
            let file = mount.join("views/late/bin/0");
            Box::new(move || drop(fs::metadata(file)))
        }),
        Kind::new("getxattr", |mount, n| {
            let sample = mount.join(format!("samples/0/{n}"));
            fs::metadata(&sample).unwrap();
            let name = "user.datasetrt.verified";
            Box::new(move || {
                let _ = rustix::fs::getxattr(sample, name, &mut [0_u8; 64]);
            })
        }),
        Kind {
            waits: false,
            ..Kind::new("listxattr", |mount, n| {
                let sample = mount.join(format!("samples/0/{n}"));
                fs::metadata(&sample).unwrap();
                Box::new(move || {
                    let _ = rustix::fs::listxattr(sample, &mut [0_u8; 4096]);
                })
            })
        },
        Kind {
            waits: false,
            ..Kind::new("readlink and statfs", |mount, _| {
                let mount = mount.to_path_buf();
                Box::new(move || {
                    fs::read_dir(mount.join("by-name")).unwrap().for_each(drop);
                    rustix::fs::statvfs(&mount).unwrap();
                })
            })
        },
        Kind::new("metadata.jsonl", |mount, _| {
            let file = mount.join("views/late/metadata.jsonl");
            Box::new(move || drop(fs::metadata(file)))
        }),
        Kind::new("metadata.arrow", |mount, _| {
            let file = mount.join("metadata.arrow");
            Box::new(move || drop(fs::metadata(file)))
        }),
        Kind {
            first: Some(|mount| say(&mount.join(".control/verify"), "all")),
            ..Kind::new("write to verify", |mount, _| {
                let file = mount.join(".control/verify");
                Box::new(move || say(&file, "stop"))
            })
        },
        Kind::new("write to prefetch", |mount, _| {
            let file = mount.join(".control/prefetch");
            Box::new(move || say(&file, "views/late/bin/0\n"))
        }),
        Kind {
            file: MANIFEST,
            ..Kind::new("write to migrate", |mount, _| {
                let file = mount.join(".control/migrate");
                Box::new(move || say(&file, "3"))
            })
        },
    ]
}

fn list(folder: &Path) {
    if let Ok(names) = fs::read_dir(folder) {
        names.for_each(drop);
    }
}

fn say(file: &Path, word: &str) {
    if let Ok(mut file) = OpenOptions::new().write(true).open(file) {
        let _ = file.write(word.as_bytes());
    }
}

/// A disk that hangs. It goes on when dropped, so that a test that fails ends.
struct Hung<'a>(&'a mut FaultyDisk);

impl Drop for Hung<'_> {
    fn drop(&mut self) {
        self.0.heal();
    }
}

/// Whether a thread of ours is asleep, or gone: it has nothing to wait for but the mount.
fn sleeps(thread: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    // The state stands behind the name, which is in brackets.
    stat.map_or(true, |stat| {
        stat.rsplit(") ").next().unwrap().starts_with(['S', 'D'])
    })
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// All that needs nothing of the disk that hangs.
fn use_the_rest(mount: &Path) {
    for file in [
        "status", "metrics", "damaged", "log", "verify", "migrate", "prefetch", "caches",
    ] {
        fs::read(mount.join(".control").join(file)).unwrap();
    }
    for folder in [
        "",
        "samples",
        "samples/0",
        "samples/1",
        "caches",
        "caches/0",
        "by-name",
        "views",
    ] {
        assert!(fs::read_dir(mount.join(folder)).unwrap().count() > 0);
    }
    let file = File::open(mount.join("samples/1/0")).unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    assert_eq!(std::io::read_to_string(file).unwrap(), "healthy");
    let sample = mount.join("samples/1/1");
    let mut room = [0_u8; 64];
    let len = rustix::fs::getxattr(&sample, "user.datasetrt.cache_id", &mut room).unwrap();
    assert_eq!(room[..len], *b"1");
    assert_eq!(
        fs::read_link(mount.join("by-name/healthy")).unwrap(),
        PathBuf::from("../samples/1")
    );
    rustix::fs::statvfs(mount).unwrap();
    assert!(fs::metadata(mount.join("samples/1/none")).is_err());
    say(&mount.join(".control/log-level"), "info");
}

fn mount(place: &Place, disk: &FaultyDisk) -> Live {
    let mut by = program();
    by.args(["--xattrs", "--threads", THREADS, "--on-collision=suffix"]);
    by.args(["--view", "flat=all/{sample_id:05}{ext}"]);
    by.args(["--view", "late={ext}/{sample_id}"]);
    let healthy = place.path().join("healthy");
    place.mount_dirs(by, &[disk.point.join("cache"), healthy])
}

/// Whether everybody else is answered meanwhile.
fn holds_up_nobody(kind: &Kind) -> bool {
    let place = Place::new();
    let payloads = (0..SAMPLES).map(|n| vec![n as u8; 50]);
    place.cache("below/cache", Fixture::new().v2().payloads(payloads));
    let healthy = ["healthy", "other"];
    let healthy = Fixture::new().v2().name("healthy").payloads(healthy);
    place.cache("healthy", healthy);
    let point = place.path().join("disk");
    fs::create_dir(&point).unwrap();
    let below = place.path().join("below");
    let mut disk = FaultyDisk::served_by(worker::disk(&below, &point), &point);
    let live = mount(&place, &disk);
    let at = live.path("");
    let asks: Vec<Ask> = (0..REQUESTERS).map(|n| (kind.prepare)(&at, n)).collect();
    let answered = std::thread::scope(|scope| {
        disk.fault(kind.file, Fault::Hang);
        let hung = Hung(&mut disk);
        if let Some(first) = kind.first {
            first(&at);
            wait_for(kind.name, || hung.0.hanging() > 0);
        }
        let (sender, started) = mpsc::channel();
        let requesters = asks.into_iter().map(|ask| {
            let sender = sender.clone();
            scope.spawn(move || {
                sender.send(gettid()).unwrap();
                ask();
            })
        });
        let requesters: Vec<_> = requesters.collect();
        let threads: Vec<Pid> = started.iter().take(REQUESTERS).collect();
        if kind.waits {
            wait_for(kind.name, || hung.0.hanging() > 0);
            wait_for(kind.name, || threads.iter().all(|thread| sleeps(*thread)));
        } else {
            wait_for(kind.name, || requesters.iter().all(|r| r.is_finished()));
        }
        let (sender, answered) = mpsc::channel();
        let rest = at.clone();
        // Not of this scope, which would wait for it.
        std::thread::spawn(move || {
            use_the_rest(&rest);
            let _ = sender.send(());
        });
        let answered = answered.recv_timeout(LIMIT);
        drop(hung);
        answered.is_ok()
    });
    live.assert_sound();
    live.stop();
    answered
}

#[test]
fn a_disk_that_hangs_under_any_kind_of_request_holds_up_no_other() {
    if !can_mount() {
        return;
    }
    let held_up = kinds().into_iter().filter(|kind| !holds_up_nobody(kind));
    let held_up: Vec<&str> = held_up.map(|kind| kind.name).collect();
    assert_eq!(held_up, [""; 0]);
}
