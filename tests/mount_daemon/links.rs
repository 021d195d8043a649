//! Neighbours who own a cache that root serves: what they put in its place is not followed, not opened
//! and not waited for.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use serde_json::Value as Json;

use crate::common::fixture::{Fixture, TestCache};
use crate::common::mount::{
    MountGuard, USER, can_be_user, can_mount, finish, is_root, program, tool, within,
};
use crate::{Place, place, text};

const CONTROL: &str = ".control/caches";

/// Two samples, each in a shard of its own.
fn cache(at: &Path, id: u64) -> TestCache {
    let fixture = Fixture::new().cache_id(id).name(&format!("cache-{id}"));
    let payloads = [format!("first of {id}"), format!("second of {id}")];
    fixture.payloads(payloads).max_shard_bytes(1).write(at)
}

fn give(path: &Path, user: u32) {
    lchown(path, Some(user), Some(user)).unwrap();
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path(), user);
        }
    }
}

fn instead(path: &Path, target: &Path) {
    fs::remove_file(path).unwrap();
    symlink(target, path).unwrap();
}

fn run(command: &mut Command) -> Output {
    finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

fn rescan(guard: &MountGuard) -> Json {
    fs::write(guard.point.join(CONTROL), "rescan\n").unwrap();
    serde_json::from_slice(&guard.read(CONTROL).unwrap()).unwrap()
}

/// A folder of caches with a good one in it, id 5.
fn caches(place: &Place) -> PathBuf {
    let folder = place.point("caches");
    let _ = cache(&folder.join("good"), 5);
    folder
}

#[test]
fn a_link_of_another_user_shows_nothing_that_is_not_the_caches_owners() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = place();
    let folder = caches(&place);
    let secret = cache(&place.point("roots").join("secret"), 6);
    fs::set_permissions(place.point("roots"), fs::Permissions::from_mode(0o700)).unwrap();
    let mut guard = MountGuard::at(place.point("m"));
    let mut command = program();
    command.args(["--allow-other"]);
    guard.foreground(command, &folder);

    // Each file of a cache, the folder of its shards, and the cache itself.
    let names = [
        "manifest.json",
        "metadata.arrow",
        "index.bin",
        "shards/000000.bin",
    ];
    let mut evil = Vec::new();
    for (n, name) in names.into_iter().enumerate() {
        let theirs = folder.join(format!("evil-{n}"));
        let made = cache(&theirs, 6);
        instead(&made.path(name), &secret.path(name));
        give(&theirs, USER);
        evil.push(theirs);
    }
    let theirs = folder.join("evil-shards");
    let made = cache(&theirs, 6);
    fs::remove_dir_all(made.path("shards")).unwrap();
    symlink(secret.path("shards"), made.path("shards")).unwrap();
    give(&theirs, USER);
    evil.push(theirs);
    symlink(&secret.dir, folder.join("evil-whole")).unwrap();
    give(&folder.join("evil-whole"), USER);
    evil.push(folder.join("evil-whole"));
    // A shard on another disk of the same owner, and one that root put there, are nobody's attack.
    for (name, user, id) in [("own", USER, 8), ("by-root", 0, 9)] {
        let theirs = cache(&folder.join(name), id);
        let disk = place.point(format!("disk-{name}")).join("shard");
        fs::rename(theirs.path("shards/000000.bin"), &disk).unwrap();
        symlink(&disk, theirs.path("shards/000000.bin")).unwrap();
        give(&theirs.dir, USER);
        lchown(theirs.path("shards/000000.bin"), Some(user), Some(user)).unwrap();
        lchown(&disk, Some(user), Some(user)).unwrap();
    }

    let result = rescan(&guard);
    let refused: Vec<&str> = result["refused"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r.as_str().unwrap())
        .collect();
    for dir in &evil {
        let name = dir.file_name().unwrap().to_str().unwrap();
        let told = refused
            .iter()
            .filter(|r| r.contains(name) && r.contains("link"));
        assert_eq!(told.count(), 1, "{name}: {result}");
    }
    assert!(guard.read("samples/6/0").is_err());
    for id in [5, 8, 9] {
        let read = guard.read(&format!("samples/{id}/0")).unwrap();
        assert_eq!(read, format!("first of {id}").as_bytes(), "{result}");
    }
    // The tools do the same.
    for dir in &evil {
        for words in [&["verify"][..], &["info"], &["ls"], &["cat"]] {
            let mut command = tool();
            command.args(words).arg(dir);
            if words == ["cat"] {
                command.arg("0");
            }
            let output = run(&mut command);
            assert!(!output.status.success(), "{words:?} {dir:?}");
            let shown = String::from_utf8_lossy(&output.stdout);
            assert!(!shown.contains("of 6"), "{words:?} {dir:?}: {shown}");
        }
    }
}

#[test]
fn pipes_and_devices_in_the_place_of_files_are_never_opened() {
    if !can_mount() || !is_root("devices") {
        return;
    }
    let place = place();
    for name in [
        "manifest.json",
        "metadata.arrow",
        "index.bin",
        "shards/000000.bin",
    ] {
        let evil = cache(&place.point("evil").join(name.replace('/', "-")), 1);
        let path = evil.path(name);
        fs::remove_file(&path).unwrap();
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        // The end for writing opens at once when somebody opens the other, and else not at all.
        let writer = {
            let path = path.clone();
            std::thread::spawn(move || fs::OpenOptions::new().write(true).open(path).map(drop))
        };
        for words in [
            &["verify"][..],
            &["info"],
            &["ls"],
            &["migrate", "--to", "3"],
        ] {
            let output = run(tool().args(words).arg(&evil.dir));
            assert_eq!(output.status.code(), Some(1), "{name} {words:?}");
            assert!(text(&output).len() + output.stdout.len() > 0);
        }
        let mut command = program();
        let output = run(command.arg(&evil.dir).arg(place.point("m")));
        assert_eq!(output.status.code(), Some(1), "{name}: {}", text(&output));
        assert!(!writer.is_finished(), "{name} was opened");
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
        let open = fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&path);
        writer.join().unwrap().unwrap();
        drop(open);
        // A file of the kernel's, which reading changes.
        fs::remove_file(&path).unwrap();
        symlink("/proc/kmsg", &path).unwrap();
        let output = run(tool().args(["verify", "--json"]).arg(&evil.dir));
        assert_eq!(output.status.code(), Some(1), "{name}: {}", text(&output));
    }
}

/// A terminal that no session has yet; it ends with the process that holds it.
fn terminal() -> Option<(std::process::Child, PathBuf)> {
    let script = "import os, pty, sys\nm, s = pty.openpty()\nprint(os.ttyname(s), flush=True)\nsys.stdin.read()";
    let mut child = Command::new("python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut name = String::new();
    let stdout = child.stdout.as_mut().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut name).unwrap();
    Some((child, PathBuf::from(name.trim())))
}

#[test]
fn a_cache_gives_the_daemon_no_terminal() {
    if !can_mount() || !is_root("opening another's terminal") {
        return;
    }
    let Some((mut holder, terminal)) = terminal() else {
        eprintln!("SKIPPED: no python3 that opens a terminal");
        return;
    };
    let place = place();
    let folder = caches(&place);
    for name in [
        "manifest.json",
        "metadata.arrow",
        "index.bin",
        "shards/000000.bin",
    ] {
        let evil = cache(&folder.join(format!("evil-{}", name.replace('/', "-"))), 6);
        instead(&evil.path(name), &terminal);
    }
    let mut guard = MountGuard::at(place.point("m"));
    // The leader of a session of its own, as a service is: it takes the first terminal that it opens.
    let mut command = Command::new("setsid");
    command.args(["--wait"]).arg(program().get_program());
    command.arg("--skip-invalid");
    guard.foreground(command, &folder);
    assert_eq!(guard.read("samples/5/0").unwrap(), b"first of 5");
    let daemon = crate::common::mount::daemons(&guard.point)[0];
    let stat = fs::read_to_string(format!("/proc/{}/stat", daemon.as_raw_nonzero())).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    assert_eq!(
        fields.split_whitespace().nth(4),
        Some("0"),
        "terminal: {stat}"
    );
    holder.kill().unwrap();
    holder.wait().unwrap();
}

#[test]
fn what_was_mounted_is_served_when_its_link_is_flipped_or_its_folder_renamed() {
    if !can_mount() {
        return;
    }
    let place = place();
    let folder = place.point("caches");
    let versions = place.point("versions");
    let many = |dir: &Path, id: u64, word: &str| {
        let payloads: Vec<String> = (0..300).map(|n| format!("{word} {n}")).collect();
        let fixture = Fixture::new().cache_id(id).name(&id.to_string()).v3();
        let _ = fixture.payloads(payloads).max_shard_bytes(1).write(dir);
    };
    many(&versions.join("1"), 5, "old");
    many(&versions.join("2"), 5, "new");
    many(&folder.join("renamed"), 6, "old");
    many(&folder.join("rewritten"), 7, "old");
    symlink("../versions/1", folder.join("current")).unwrap();
    let mut guard = MountGuard::at(place.point("m"));
    guard.foreground(program(), &folder);
    assert_eq!(guard.read("samples/5/0").unwrap(), b"old 0");
    assert_eq!(rescan(&guard)["replaced"], Json::Array(Vec::new()));

    fs::remove_file(folder.join("current")).unwrap();
    symlink("../versions/2", folder.join("current")).unwrap();
    fs::rename(folder.join("renamed"), versions.join("aside")).unwrap();
    many(&folder.join("renamed"), 6, "new");
    for id in [5, 6] {
        for n in 0..300 {
            let read = guard.read(&format!("samples/{id}/{n}")).unwrap();
            assert_eq!(read, format!("old {n}").as_bytes(), "{id}/{n}");
        }
        assert!(guard.read(&format!("caches/{id}/metadata.arrow")).is_ok());
    }
    let result = rescan(&guard);
    let replaced: Vec<&str> = result["replaced"]
        .as_array()
        .unwrap()
        .iter()
        .map(|dir| dir.as_str().unwrap())
        .collect();
    assert_eq!(replaced.len(), 2, "{result}");
    assert!(
        replaced.iter().any(|dir| dir.ends_with("/current")),
        "{result}"
    );
    assert!(
        replaced.iter().any(|dir| dir.ends_with("/renamed")),
        "{result}"
    );
    // Another manifest in the same folder.
    let again = versions.join("again");
    many(&again, 8, "new");
    fs::rename(
        again.join("manifest.json"),
        folder.join("rewritten/manifest.json"),
    )
    .unwrap();
    let result = rescan(&guard);
    assert_eq!(result["replaced"].as_array().unwrap().len(), 3, "{result}");
}

#[test]
fn a_migration_leaves_the_manifest_of_another_cache_at_the_same_place_alone() {
    if !can_mount() {
        return;
    }
    let place = place();
    let folder = place.point("caches");
    let old = |name: &str, word: &str| {
        let fixture = Fixture::new().v2().name(name).payloads([word]);
        fixture.write(&folder.join(name))
    };
    let _ = old("mounted", "mounted");
    let mut guard = MountGuard::at(place.point("m"));
    guard.foreground(program(), &folder);
    let aside = place.point("aside").join("mounted");
    fs::rename(folder.join("mounted"), &aside).unwrap();
    let other = old("mounted", "another");
    let before = [
        other.read("manifest.json"),
        fs::read(aside.join("manifest.json")).unwrap(),
    ];
    fs::write(guard.point.join(".control/migrate"), "3\n").unwrap_err();
    let after = [
        other.read("manifest.json"),
        fs::read(aside.join("manifest.json")).unwrap(),
    ];
    assert!(before == after);
    // Back at its place it is migrated.
    fs::rename(folder.join("mounted"), place.point("aside").join("other")).unwrap();
    fs::rename(&aside, folder.join("mounted")).unwrap();
    fs::write(guard.point.join(".control/migrate"), "3\n").unwrap();
    assert_eq!(guard.read("samples/0/0").unwrap(), b"mounted");
}

#[test]
fn a_shard_that_leads_back_into_the_mount_is_an_error_and_holds_up_nobody() {
    if !can_mount() {
        return;
    }
    let place = place();
    let made = cache(&place.point("caches").join("loop"), 5);
    let mut guard = MountGuard::at(place.point("m"));
    guard.foreground(program(), &made.dir);
    let inside = guard.point.join("samples/5/1");
    assert!(inside.exists());
    let shard = made.path("shards/000000.bin");
    let aside = made.path("aside");
    fs::rename(&shard, &aside).unwrap();
    symlink(&inside, &shard).unwrap();
    let error = guard.read("samples/5/0").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
    fs::remove_file(&shard).unwrap();
    fs::rename(&aside, &shard).unwrap();
    if is_root("a bind mount") {
        let bind = |from: &Path| {
            let output = run(Command::new("mount").arg("--bind").arg(from).arg(&shard));
            assert!(output.status.success(), "{}", text(&output));
        };
        bind(&inside);
        // Also more at once than there are threads.
        std::thread::scope(|scope| {
            for _ in 0..24 {
                scope.spawn(|| assert!(guard.read("samples/5/0").is_err()));
            }
        });
        let output = run(Command::new("umount").arg(&shard));
        assert!(output.status.success(), "{}", text(&output));
    }
    assert_eq!(guard.read("samples/5/1").unwrap(), b"second of 5");
    assert!(within(|| guard
        .read("samples/5/0")
        .is_ok_and(|read| read == b"first of 5")));
    guard.signal(rustix::process::Signal::TERM);
    assert!(guard.status().success());
}

#[test]
fn more_caches_than_descriptors_are_served_and_found_again() {
    if !can_mount() {
        return;
    }
    let place = place();
    let folder = place.point("caches");
    for id in 0..150 {
        let _ = cache(&folder.join(format!("{id:03}")), id + 1);
    }
    let mut guard = MountGuard::at(place.point("m"));
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 128; exec \"$0\" \"$@\""]);
    command.arg(program().get_program());
    guard.foreground(command, &folder);
    for _ in 0..2 {
        for id in 1..=150 {
            let read = guard.read(&format!("samples/{id}/1")).unwrap();
            assert_eq!(read, format!("second of {id}").as_bytes());
            assert!(guard.read(&format!("caches/{id}/metadata.arrow")).is_ok());
        }
    }
    // One that is not held open, and so is looked for at its place: another folder there is refused.
    let last = folder.join("149");
    fs::rename(&last, place.point("aside").join("149")).unwrap();
    let _ = cache(&last, 999);
    assert_eq!(
        guard.read("samples/150/0").unwrap_err().raw_os_error(),
        Some(5)
    );
    assert_eq!(guard.read("samples/1/0").unwrap(), b"first of 1");
    let mut log = String::new();
    let mut file = fs::File::open(guard.point.join(".control/log")).unwrap();
    file.read_to_string(&mut log).unwrap();
    assert!(log.contains("/149"), "{log}");
}
