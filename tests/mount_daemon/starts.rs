//! Starts at one place at the same moment, and places that change while a start goes on.

use std::fs::{self, File};
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;

use crate::common::fixture::Fixture;
use crate::common::mount::{
    MountGuard, USER, as_user, can_be_user, can_mount, daemons, is_mounted, program,
};
use crate::{Place, place, text, unmount};

/// For a condition that comes true sooner or later on any machine.
const LIMIT: Duration = Duration::from_secs(120);
/// As on a kernel without fsmount(2).
const ONE_STEP: &str = "DATASETRT_TEST_MOUNT_IN_ONE_STEP";

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < until, "{what}");
        sleep(Duration::from_millis(10));
    }
}

/// Mounts of our kind in the table, by their mountpoint.
fn mounts_below(folder: &Path) -> Vec<String> {
    let table = fs::read("/proc/self/mounts").unwrap();
    let table = String::from_utf8_lossy(&table);
    let points = table.lines().filter_map(|line| line.split(' ').nth(1));
    let below = points.filter(|point| Path::new(point).starts_with(folder));
    below.map(str::to_owned).collect()
}

/// How a start mounts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum How {
    Root,
    RootInOneStep,
    User,
}

impl How {
    fn command(self, place: &Place) -> Command {
        match self {
            Self::Root => program(),
            Self::RootInOneStep => {
                let mut command = program();
                command.env(ONE_STEP, "1");
                command
            }
            Self::User => as_user(place.folder.path(), "datasetrt-mount"),
        }
    }
}

fn ways() -> Vec<How> {
    let mut ways = vec![How::Root, How::RootInOneStep];
    if can_be_user() {
        ways.push(How::User);
    }
    ways
}

/// Starts `number` at once, and gives how many of them said that they mounted.
fn start_at_once(how: How, place: &Place, point: &Path, number: usize) -> usize {
    let spawn = |_| {
        let mut command = how.command(place);
        command.arg(&place.tiny.cache).arg(point);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children: Vec<Child> = (0..number).map(spawn).collect();
    let ends = children.into_iter().map(|child| {
        let output = child.wait_with_output().unwrap();
        let said = text(&output);
        match output.status.code() {
            Some(0) => true,
            Some(1) => {
                let refused = said.contains("is starting here") || said.contains("already mounted");
                assert!(refused, "{how:?}: {said}");
                false
            }
            other => panic!("{how:?}: {other:?}: {said}"),
        }
    });
    ends.collect::<Vec<_>>().iter().filter(|won| **won).count()
}

#[test]
fn of_several_starts_at_one_place_one_wins_and_the_others_leave_nothing() {
    if !can_mount() {
        return;
    }
    let place = place();
    for how in ways() {
        let guard = MountGuard::at(place.point(format!("{how:?}")));
        if how == How::User {
            chown(&guard.point, Some(USER), Some(USER)).unwrap();
        }
        // A dead mount is cleared by one of them, and by none that comes after the one that won.
        for leftover in [false, true, true] {
            assert_eq!(mounts_below(&guard.point).len(), usize::from(leftover));
            assert_eq!(start_at_once(how, &place, &guard.point, 4), 1, "{how:?}");
            assert_eq!(mounts_below(&guard.point).len(), 1, "{how:?}");
            let running = || daemons(&guard.point).len();
            wait_for("losers end", || running() == 1);
            if how != How::User {
                assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);
            }
            guard.signal(Signal::KILL);
            wait_for("the daemon ends", || running() == 0);
        }
        unmount(&guard.point, true);
        assert!(guard.is_gone());
    }
}

#[test]
fn somebody_elses_lock_on_the_directory_keeps_nobody_from_mounting() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = place();
    let guard = MountGuard::at(place.point("m"));
    let mut command = as_user(place.folder.path(), "flock");
    command.arg("--exclusive").arg(&guard.point);
    let mut holder = command.args(["sleep", "600"]).spawn().unwrap();
    let directory = File::open(&guard.point).unwrap();
    wait_for("the lock is held", || {
        let free = flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok();
        if free {
            flock(&directory, FlockOperation::Unlock).unwrap();
        }
        !free
    });
    let output = guard.background(program(), &place.tiny.cache);
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(is_mounted(&guard.point));
}

/// A cache whose shard lies on a disk that can hang: another mount of ours, whose daemon is stopped.
struct SlowCache {
    disk: MountGuard,
    cache: PathBuf,
}

impl SlowCache {
    /// A new one each time: of what was read before, the kernel keeps the pages.
    fn make(place: &Place, name: &str) -> Self {
        let folder = &place.point(name);
        let cache = Fixture::new()
            .payloads([b"slow\n"])
            .write(&folder.join("slow"));
        let shard = cache.read("shards/000000.bin");
        let below = folder.join("below");
        let _ = Fixture::new().v2().payloads([shard]).write(&below);
        let mut disk = MountGuard::at(place.point(format!("{name}/disk")));
        let mut command = program();
        command.arg("--allow-other");
        disk.foreground(command, &below);
        cache.remove("shards/000000.bin");
        symlink(
            disk.point.join("samples/0/0"),
            cache.path("shards/000000.bin"),
        )
        .unwrap();
        Self {
            disk,
            cache: folder.join("slow"),
        }
    }

    /// Starts while the disk hangs, does `meanwhile` once the start has taken its mountpoint and waits
    /// for the disk, and gives what the start said, which must be refused.
    fn refused_start(&self, mut command: Command, point: &Path, meanwhile: &dyn Fn()) -> String {
        self.disk.signal(Signal::STOP);
        let mut child = command
            .args(["-f", "--validate-cache", "--no-receipts"])
            .arg(&self.cache)
            .arg(point)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let descriptors = format!("/proc/{}/fd", child.id());
        wait_for("the start takes its mountpoint", || {
            let open = fs::read_dir(&descriptors).unwrap().flatten();
            let mut open = open.filter_map(|entry| fs::read_link(entry.path()).ok());
            open.any(|path| path == point)
        });
        meanwhile();
        self.disk.signal(Signal::CONT);
        wait_for("the start ends", || child.try_wait().unwrap().is_some());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        text(&output)
    }
}

#[test]
fn a_mountpoint_that_is_replaced_during_the_start_is_not_mounted_on() {
    if !can_mount() {
        return;
    }
    let place = place();
    let folder = place.folder.path();
    let victim = place.point("victim");
    for how in ways() {
        let home = place.point(format!("home-{how:?}"));
        let point = place.point(format!("home-{how:?}/m"));
        let moved = home.join("moved");
        for path in [&home, &point] {
            chown(path, Some(USER), Some(USER)).unwrap();
        }
        type Swap<'a> = &'a dyn Fn();
        let to_link: Swap<'_> = &|| {
            fs::rename(&point, &moved).unwrap();
            symlink(&victim, &point).unwrap();
        };
        let to_folder: Swap<'_> = &|| {
            fs::rename(&point, &moved).unwrap();
            fs::create_dir(&point).unwrap();
        };
        let parent: Swap<'_> = &|| {
            fs::rename(&home, folder.join("away")).unwrap();
            fs::create_dir(folder.join("other")).unwrap();
            fs::create_dir(folder.join("other/m")).unwrap();
            symlink(folder.join("other"), &home).unwrap();
        };
        let gone: Swap<'_> = &|| fs::remove_dir(&point).unwrap();
        for (name, swap) in [
            ("link", to_link),
            ("folder", to_folder),
            ("gone", gone),
            ("parent", parent),
        ] {
            let slow = SlowCache::make(&place, &format!("slow-{how:?}-{name}"));
            let said = slow.refused_start(how.command(&place), &point, swap);
            assert!(said.contains("replaced"), "{how:?}, {name}: {said}");
            let disk = slow.disk.point.to_str().unwrap();
            assert_eq!(mounts_below(folder), [disk], "{how:?}, {name}");
            // As before, for the next one.
            let _ = fs::remove_file(&point);
            let _ = fs::remove_dir(&point);
            let _ = fs::remove_dir(&moved);
            if name != "parent" {
                fs::create_dir(&point).unwrap();
                chown(&point, Some(USER), Some(USER)).unwrap();
            }
        }
        let _ = fs::remove_file(&home);
        fs::remove_dir_all(folder.join("away")).unwrap();
        fs::remove_dir_all(folder.join("other")).unwrap();
    }
}

#[test]
fn a_mount_whose_folder_was_renamed_is_unmounted_all_the_same() {
    if !can_mount() {
        return;
    }
    let place = place();
    let folder = place.folder.path();
    for how in ways() {
        let home = place.point(format!("home-{how:?}"));
        let mut guard = MountGuard::at(place.point(format!("home-{how:?}/m")));
        chown(&guard.point, Some(USER), Some(USER)).unwrap();
        guard.foreground(how.command(&place), &place.tiny.cache);
        // Another folder takes its place.
        fs::rename(&home, folder.join("renamed")).unwrap();
        fs::create_dir_all(&guard.point).unwrap();
        guard.signal(Signal::TERM);
        assert_eq!(guard.status().code(), Some(0), "{how:?}");
        assert_eq!(mounts_below(folder), [""; 0], "{how:?}");
        fs::remove_dir_all(folder.join("renamed")).unwrap();
    }
}
