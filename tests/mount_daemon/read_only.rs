//! `-o ro`, and `mount -o remount`.

use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;

use crate::common::fixture::Fixture;
use crate::common::mount::{
    MountGuard, USER, as_user, can_be_user, can_mount, finish, is_root, mount_options, program,
    skip,
};
use crate::{assert_ready, place, text};

fn write_errno(path: &Path) -> Option<i32> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    opened.err().and_then(|error| error.raw_os_error())
}

/// The options of the mount at `guard`, and of the file system that it shows.
fn is_read_only(guard: &MountGuard) -> bool {
    let options = mount_options(&guard.point).unwrap();
    options.split(',').any(|option| option == "ro")
}

#[test]
fn a_read_only_mount_lets_nobody_write_not_even_to_control_files() {
    if !can_mount() {
        return;
    }
    let place = place();
    let mut guard = MountGuard::at(place.point("m"));
    let mut command = program();
    command.args(["-o", "ro,noatime"]);
    guard.foreground(command, &place.tiny.cache);
    assert!(is_read_only(&guard));
    for file in [
        place.tiny.sample,
        ".control/migrate",
        ".control/status",
        "caches/0/manifest.json",
    ] {
        let errno = write_errno(&guard.point.join(file));
        assert_eq!(errno, Some(Errno::ROFS.raw_os_error()), "{file}");
    }
    assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);
    assert!(!guard.read(".control/status").unwrap().is_empty());
}

#[test]
fn an_ordinary_user_mounts_read_only_and_from_any_path() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = place();
    let folder = place.folder.path();
    let cache = folder.join("a, b\\c\"#\u{e9}");
    fs::rename(&place.tiny.cache, &cache).unwrap();
    let guard = MountGuard::at(place.point("m"));
    chown(&guard.point, Some(USER), Some(USER)).unwrap();
    let mut command = as_user(folder, "datasetrt-mount");
    command.args(["-o", "ro"]);
    assert_ready(&guard.background(command, &cache));
    assert!(is_read_only(&guard));
    assert_eq!(source_of(&guard.point), cache.as_os_str().as_bytes());
}

/// The source that libmount finds for `point`.
fn source_of(point: &Path) -> Vec<u8> {
    let mut findmnt = Command::new("findmnt");
    findmnt.args(["--raw", "-n", "-o", "SOURCE"]).arg(point);
    let shown = finish(findmnt.stdout(Stdio::piped())).stdout;
    let shown = shown.strip_suffix(b"\n").unwrap_or(&shown);
    unescape(shown)
}

/// Undoes `\x20`, as `findmnt --raw` writes what is not plain.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let digits = (*first == b'\\' && after.first() == Some(&b'x'))
            .then(|| std::str::from_utf8(after.get(1..3)?).ok())
            .flatten();
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

#[test]
fn a_mount_becomes_read_only_and_writable_again() {
    if !can_mount() || !is_root("remounting") {
        return;
    }
    let place = place();
    let mut guard = MountGuard::at(place.point("m x"));
    let mut command = program();
    command.args(["-o", "noexec,allow_other"]);
    guard.foreground(command, &place.tiny.cache);
    let remount = |words: &str| {
        let mut command = program();
        command.args(["-o", words]).stderr(Stdio::piped());
        finish(command.arg(&place.tiny.cache).arg(&guard.point))
    };
    let control = guard.point.join(".control/migrate");
    for words in [
        "remount,ro",
        "rw,remount",
        "remount,ro,nosuid,nodev,noexec,relatime,user_id=0,group_id=0,default_permissions,allow_other",
        "remount,rw,threads=2",
    ] {
        let before = mount_options(&guard.point).unwrap();
        assert_ready(&remount(words));
        let read_only = words.split(',').any(|word| word == "ro");
        assert_eq!(is_read_only(&guard), read_only, "{words}");
        let errno = write_errno(&control);
        let expected = read_only.then(|| Errno::ROFS.raw_os_error());
        assert_eq!(errno, expected, "{words}");
        let others = |options: &str| {
            let words = options
                .split(',')
                .filter(|word| !["ro", "rw"].contains(word));
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            others(&mount_options(&guard.point).unwrap()),
            others(&before)
        );
    }
    let writer = OpenOptions::new().write(true).open(&control).unwrap();
    let output = remount("remount,ro");
    assert!(
        !output.status.success() && text(&output).contains("control file"),
        "{}",
        text(&output)
    );
    drop(writer);
    // Nothing of ours is there.
    let mut command = program();
    command
        .args(["-o", "remount,ro"])
        .arg(&place.tiny.cache)
        .arg(place.point("n"));
    let output = finish(command.stderr(Stdio::piped()));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
}

#[test]
fn a_file_system_inside_a_sample_is_mounted_as_from_any_read_only_disk() {
    if !can_mount() || !is_root("loop devices") {
        return;
    }
    let place = place();
    let folder = place.folder.path();
    let (image, inner) = (folder.join("image"), folder.join("inner"));
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("hello"), "from inside\n").unwrap();
    fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
    let mut mkfs = Command::new("mkfs.ext4");
    mkfs.arg("-q")
        .arg("-d")
        .arg(&inner)
        .arg(&image)
        .stderr(Stdio::piped());
    if !mkfs.output().is_ok_and(|output| output.status.success()) {
        skip("no mkfs.ext4");
        return;
    }
    let free = Command::new("losetup").arg("-f").output();
    if !free.is_ok_and(|output| output.status.success()) {
        skip("no loop devices");
        return;
    }
    let cache = folder.join("images");
    let _ = Fixture::new()
        .v2()
        .payloads([fs::read(&image).unwrap()])
        .write(&cache);
    for options in ["ro", "rw"] {
        let mut guard = MountGuard::at(place.point("m"));
        let mut command = program();
        command.args(["-o", options]);
        guard.foreground(command, &cache);
        let at = place.point("loop");
        let inside = MountGuard::at(&at);
        let mut mount = Command::new("mount");
        mount
            .args(["-o", "loop"])
            .arg(guard.point.join("samples/0/0"))
            .arg(&at);
        let output = finish(mount.stderr(Stdio::piped()));
        assert!(output.status.success(), "{options}: {}", text(&output));
        assert_eq!(inside.read("hello").unwrap(), b"from inside\n");
        assert!(is_read_only(&inside), "{options}");
        let done = finish(Command::new("umount").arg(&at).stderr(Stdio::piped()));
        assert!(done.status.success(), "{}", text(&done));
    }
}

#[test]
fn owners_are_given_by_name() {
    if !can_mount() || !is_root("showing other owners to all") {
        return;
    }
    use std::os::unix::fs::MetadataExt;
    let place = place();
    let mut guard = MountGuard::at(place.point("m"));
    let mut command = program();
    command.args(["-o", "uid=daemon", "--gid", "daemon"]);
    guard.foreground(command, &place.tiny.cache);
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let line = passwd.lines().find_map(|line| line.strip_prefix("daemon:"));
    let mut fields = line
        .unwrap()
        .split(':')
        .skip(1)
        .map(|field| field.parse().ok());
    let shown = fs::metadata(guard.point.join(place.tiny.sample)).unwrap();
    assert_eq!(fields.next().flatten(), Some(shown.uid()));
    assert_eq!(fields.next().flatten(), Some(shown.gid()));
    for (option, value) in [
        ("--uid", "no-such-user"),
        ("--gid", "no-such-group"),
        ("--gid", "4294967295"),
    ] {
        let mut command = program();
        command
            .args([option, value])
            .arg(&place.tiny.cache)
            .arg(place.point("n"));
        let output = finish(command.stderr(Stdio::piped()));
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output).contains(value), "{}", text(&output));
    }
}

#[test]
fn words_that_mean_nothing_here_are_accepted_and_noted() {
    if !can_mount() {
        return;
    }
    let place = place();
    let mut guard = MountGuard::at(place.point("m"));
    let mut command = program();
    command.args([
        "-vv",
        "-o",
        "fsname=other,subtype=x,auto_unmount,max_read=131072,attr_timeout=1",
    ]);
    // Not to stderr, which nobody reads while a test runs.
    let log = place.folder.path().join("log");
    command.arg("--log-file").arg(&log);
    guard.foreground(command, &place.tiny.cache);
    let log = fs::read_to_string(log).unwrap();
    for word in ["fsname=other", "auto_unmount", "max_read=131072"] {
        assert!(
            log.contains(&format!("-o {word}: means nothing here")),
            "{log}"
        );
    }
}
