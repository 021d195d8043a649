//! Migrations and the disk: the order of calls, full disks, read-only disks, closed folders.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::common::fixture::{Fixture, TestCache};
use crate::common::mount::{
    MountGuard, USER, as_user, can_be_user, can_mount, is_root, program, skip, within,
};
use crate::live::{Place, command, run};
use crate::migrate::{CONTROL, stored, temporaries};

/// The calls of one thread, in order; a call that was interrupted by others' lines is one again.
fn calls_of(log: &str, thread: &str) -> Vec<String> {
    let mut calls: Vec<String> = Vec::new();
    for line in log.lines() {
        let Some((pid, call)) = line.split_once(' ') else {
            continue;
        };
        let call = call.trim();
        if pid != thread {
            continue;
        }
        match (call.strip_prefix("<... "), calls.last_mut()) {
            (Some(rest), Some(last)) => {
                let rest = rest.split_once("resumed>").map_or("", |(_, rest)| rest);
                last.push_str(rest);
            }
            _ => calls.push(call.trim_end_matches("<unfinished ...>").to_owned()),
        }
    }
    calls
}

#[test]
fn everything_is_durable_before_the_write_is_answered() {
    if !can_mount() {
        return;
    }
    // Who is traced gains no rights by fusermount3.
    if !is_root("mounting under strace") {
        return;
    }
    if run(Command::new("strace").arg("-V"), Duration::from_secs(5))
        .status
        .code()
        != Some(0)
    {
        skip("no strace");
        return;
    }
    let place = Place::new();
    let cache = place.cache("cache", Fixture::tiny().v2());
    let log = place.path().join("strace.log");
    let mut traced = Command::new("strace");
    traced
        .args(["-f", "-y", "-s", "300", "-o"])
        .arg(&log)
        .args([
            "-e",
            "trace=openat,write,writev,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat",
        ])
        .arg(env!("CARGO_BIN_EXE_datasetrt-mount"))
        .stdin(Stdio::null());
    let live = place.mount_by(traced, &[&cache]);
    fs::write(live.path(CONTROL), "3\n").unwrap();
    drop(live);
    let text = fs::read_to_string(&log).unwrap();
    let first = text
        .lines()
        .find(|line| line.contains("O_EXCL") && line.contains(".tmp"))
        .expect("a new file");
    let (thread, _) = first.split_once(' ').unwrap();
    let calls = calls_of(&text, thread);
    let dir = cache.dir.to_str().unwrap();
    let temp = first.split('"').nth(1).unwrap();
    assert!(
        Path::new(temp).parent() == Some(&cache.dir),
        "beside the manifest: {first}"
    );
    let place_of = |what: &str, is: &dyn Fn(&str) -> bool| {
        let found = calls.iter().position(|call| is(call));
        found.unwrap_or_else(|| panic!("no {what} in {calls:#?}"))
    };
    let steps = [
        place_of("creation", &|call| {
            call.starts_with("openat") && call.contains("O_EXCL")
        }),
        place_of("write", &|call| {
            call.starts_with("write(") && call.contains(temp)
        }),
        place_of("sync of the file", &|call| {
            (call.starts_with("fsync(") || call.starts_with("fdatasync(")) && call.contains(temp)
        }),
        place_of("rename", &|call| {
            call.starts_with("rename") && call.contains(temp) && call.contains("manifest.json")
        }),
        place_of("sync of the folder", &|call| {
            call.starts_with("fsync(") && call.contains(&format!("<{dir}>"))
        }),
        // The only answer of this length: a header of 16 bytes, and how much was taken.
        place_of("answer", &|call| {
            call.starts_with("writev(") && call.ends_with("= 24")
        }),
    ];
    assert!(steps.is_sorted(), "{steps:?} of {calls:#?}");
    for step in &steps[..5] {
        assert!(!calls[*step].contains("= -1"), "{}", calls[*step]);
    }
    assert!(
        !calls.iter().any(|call| call.starts_with("unlink")),
        "{calls:#?}"
    );
    let index = calls.iter().filter(|call| call.contains("O_EXCL")).count();
    assert_eq!(index, 1);
}

/// A mount that is taken away in the end.
struct Unmount(PathBuf);

impl Unmount {
    fn mount(words: &[&str], at: &Path) -> Self {
        let output = run(command(words).arg(at), Duration::from_secs(10));
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Self(at.to_path_buf())
    }
}

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A mount by root or by [`USER`], and what that one can do there.
struct Owned<'a> {
    place: &'a Place,
    guard: MountGuard,
    user: bool,
}

impl<'a> Owned<'a> {
    fn mount(place: &'a Place, cache: &TestCache, user: bool) -> Self {
        let guard = MountGuard::at(place.point());
        let by = if user {
            chown(&guard.point, Some(USER), Some(USER)).unwrap();
            as_user(place.path(), "datasetrt-mount")
        } else {
            program()
        };
        let output = guard.background(by, &cache.dir);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Self { place, guard, user }
    }

    /// Runs a line of shell in which `$0` is a path of the mount.
    fn shell(&self, line: &str, path: &str) -> Output {
        let mut command = match self.user {
            true => as_user(self.place.path(), "sh"),
            false => Command::new("sh"),
        };
        let path = self.guard.point.join(path);
        run(
            command.args(["-c", line]).arg(path).env("LC_ALL", "C"),
            Duration::from_secs(20),
        )
    }

    /// What writing the word says; nothing when it was taken.
    fn migrate(&self) -> String {
        let output = self.shell(r#"env printf 3 > "$0""#, CONTROL);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.success(), said.is_empty(), "{said}");
        said
    }

    fn read(&self, path: &str) -> Vec<u8> {
        let output = self.shell(r#"cat "$0""#, path);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        output.stdout
    }

    fn assert_readable(&self, cache: &TestCache) {
        for (n, sample) in cache.samples.iter().enumerate() {
            assert_eq!(self.read(&format!("samples/0/{n}")), sample.payload);
        }
    }

    fn result(&self) -> serde_json::Value {
        serde_json::from_slice(&self.read(CONTROL)).unwrap()
    }
}

fn own(cache: &TestCache, user: bool) {
    let owner = if user { USER } else { 0 };
    let files = [
        "",
        "shards",
        "manifest.json",
        "metadata.arrow",
        "index.bin",
        "shards/000000.bin",
    ];
    for file in files {
        chown(cache.path(file), Some(owner), Some(owner)).unwrap();
    }
}

/// Root and an ordinary user, where this test can be both.
fn both() -> Vec<bool> {
    if !can_mount() {
        return Vec::new();
    }
    if !is_root("mounting other disks") {
        return Vec::new();
    }
    if can_be_user() {
        vec![false, true]
    } else {
        vec![false]
    }
}

fn assert_says(said: &str, error: &str) {
    assert!(said.contains(error), "{said:?} instead of {error:?}");
}

fn assert_untouched(cache: &TestCache, manifest: &[u8]) {
    assert_eq!(cache.read("manifest.json"), manifest);
    assert!(temporaries(cache).is_empty());
}

#[test]
fn a_full_disk_is_said_and_leaves_everything_as_it_was() {
    for user in both() {
        let place = Place::new();
        let disk = place.path().join("disk");
        fs::create_dir(&disk).unwrap();
        let _disk = Unmount::mount(
            &["mount", "-t", "tmpfs", "-o", "size=4m,mode=0777", "small"],
            &disk,
        );
        let cache = Fixture::tiny().v2().write(&disk.join("cache"));
        own(&cache, user);
        let manifest = cache.read("manifest.json");
        let owned = Owned::mount(&place, &cache, user);
        let filler = disk.join("filler");
        let mut file = File::create(&filler).unwrap();
        // To the last page.
        while file.write_all(&[0xEE; 4096]).is_ok() {}
        drop(file);
        assert_says(&owned.migrate(), "No space left on device");
        assert_untouched(&cache, &manifest);
        assert_eq!(owned.result()["Err"]["entries"], serde_json::json!([]));
        owned.assert_readable(&cache);
        fs::remove_file(&filler).unwrap();
        assert_eq!(owned.migrate(), "");
        assert_eq!(stored(&cache), (3, Some(0)));
        owned.assert_readable(&cache);
    }
}

#[test]
fn a_read_only_disk_is_said_and_serves_on() {
    for user in both() {
        let place = Place::new();
        let cache = place.cache("cache", Fixture::tiny().v2());
        own(&cache, user);
        let manifest = cache.read("manifest.json");
        let bound = place.path().join("bound");
        fs::create_dir(&bound).unwrap();
        let _bound = Unmount::mount(&["mount", "--bind", cache.dir.to_str().unwrap()], &bound);
        let remounted = run(
            command(&["mount", "-o", "remount,bind,ro"]).arg(&bound),
            Duration::from_secs(5),
        );
        assert!(remounted.status.success());
        let mut through = TestCache::at(&bound);
        through.samples = cache.samples.clone();
        let owned = Owned::mount(&place, &through, user);
        owned.assert_readable(&through);
        assert_says(&owned.migrate(), "Read-only file system");
        assert_untouched(&cache, &manifest);
        owned.assert_readable(&through);
    }
}

#[test]
fn a_closed_folder_is_said_to_its_user_and_serves_on() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = Place::new();
    let cache = place.cache("cache", Fixture::tiny().v2());
    own(&cache, true);
    fs::set_permissions(&cache.dir, Permissions::from_mode(0o555)).unwrap();
    let manifest = cache.read("manifest.json");
    let owned = Owned::mount(&place, &cache, true);
    owned.assert_readable(&cache);
    assert_says(&owned.migrate(), "Permission denied");
    assert_untouched(&cache, &manifest);
    fs::set_permissions(&cache.dir, Permissions::from_mode(0o755)).unwrap();
    assert_eq!(owned.migrate(), "");
    assert_eq!(stored(&cache), (3, Some(0)));
    drop(owned);
    // The files of an ordinary user stay those of that user.
    let meta = fs::metadata(cache.path("manifest.json")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&meta), USER);
}

#[test]
fn a_failed_step_is_the_error_of_the_write() {
    if !can_mount() {
        return;
    }
    for (step, errno) in [(1, 28), (3, 5), (4, 5), (5, 1)] {
        let place = Place::new();
        let cache = place.cache("cache", Fixture::tiny().v2());
        let manifest = cache.read("manifest.json");
        let mut by = program();
        by.env("DATASETRT_TEST_STEP", format!("fail:{step}:{errno}"));
        let live = place.mount_by(by, &[&cache]);
        let failed = fs::write(live.path(CONTROL), "3\n").unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(errno), "step {step}");
        assert_untouched(&cache, &manifest);
        assert!(
            live.log().contains("migration ended early"),
            "{}",
            live.log()
        );
        fs::write(live.path(CONTROL), "3\n").unwrap();
        assert!(within(|| stored(&cache) == (3, Some(0))));
    }
}
