//! Who may do what in the mount.

use rustix::fs::{CWD, FileType, Mode};
use rustix::process::{Signal, geteuid};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::process::Stdio;
use std::time::SystemTime;

use crate::common::mount::{
    MountGuard, USER, as_user, can_be_user, can_mount, daemons, finish, is_mounted, program, within,
};
use crate::{assert_ready, place, text};

const EACCES: i32 = 13;
const EROFS: i32 = 30;
const EOVERFLOW: i32 = 75;
const EIO: i32 = 5;
const EINVAL: i32 = 22;

#[test]
fn an_ordinary_user_mounts_through_fusermount3() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = place();
    let folder = place.folder.path();
    let guard = MountGuard::at(place.point("m"));
    chown(&guard.point, Some(USER), Some(USER)).unwrap();
    for round in 0..2 {
        assert_ready(&guard.background(as_user(folder, "datasetrt-mount"), &place.tiny.cache));
        let sample = guard.point.join(place.tiny.sample);
        let read = finish(as_user(folder, "cat").arg(sample).stdout(Stdio::piped()));
        assert_eq!(read.stdout, place.tiny.payload);
        guard.signal(if round == 0 {
            Signal::KILL
        } else {
            Signal::TERM
        });
        assert!(within(|| daemons(&guard.point).is_empty()));
        // The next round starts on the dead mount of this one.
        assert_eq!(is_mounted(&guard.point), round == 0);
    }
    let mut command = as_user(folder, "datasetrt-mount");
    command.arg("--allow-other");
    let config = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    let allowed = config.lines().any(|line| line.trim() == "user_allow_other");
    let output = guard.background(command, &place.tiny.cache);
    assert_eq!(output.status.success(), allowed, "{}", text(&output));
    assert!(allowed || text(&output).contains("user_allow_other"));
}

#[test]
fn others_come_in_by_the_mode_bits_where_root_lets_them() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = place();
    let folder = place.folder.path();
    let mut guard = MountGuard::at(place.point("m"));
    let mut command = program();
    command.args(["-o", "allow_other"]);
    guard.foreground(command, &place.tiny.cache);
    let read = finish(
        as_user(folder, "cat")
            .arg(guard.point.join(place.tiny.sample))
            .stdout(Stdio::piped()),
    );
    assert_eq!(read.stdout, place.tiny.payload);
    let mut shell = as_user(folder, "sh");
    shell
        .args(["-c", "echo 3 > \"$0\""])
        .arg(guard.point.join(".control/migrate"))
        .stderr(Stdio::piped());
    let write = finish(&mut shell);
    assert!(
        text(&write).contains("Permission denied"),
        "{}",
        text(&write)
    );
}

#[test]
fn every_change_is_refused() {
    if !can_mount() || !geteuid().is_root() {
        return;
    }
    let place = place();
    let guard = place.mounted("m");
    let dir = guard.point.join("samples/0");
    let sample = guard.point.join(place.tiny.sample);
    let new = dir.join("new");
    let opened = |options: &mut OpenOptions| options.open(&sample).map(drop);
    let wrote = |options: &mut OpenOptions| {
        options
            .open(&sample)
            .and_then(|mut file| file.write_all(b"x"))
    };
    let stamped = || File::open(&sample)?.set_modified(SystemTime::UNIX_EPOCH);
    let fifo = || {
        Ok(rustix::fs::mknodat(
            CWD,
            &new,
            FileType::Fifo,
            Mode::RUSR,
            0,
        )?)
    };
    let attempts: Vec<(&str, io::Result<()>)> = vec![
        ("mkdir", fs::create_dir(&new)),
        ("create", File::create(&new).map(drop)),
        ("unlink", fs::remove_file(&sample)),
        ("rmdir", fs::remove_dir(&dir)),
        ("rename", fs::rename(&sample, &new)),
        ("symlink", symlink("x", &new)),
        ("link", fs::hard_link(&sample, &new)),
        (
            "chmod",
            fs::set_permissions(&sample, fs::Permissions::from_mode(0o644)),
        ),
        ("chown", chown(&sample, Some(1), None)),
        ("utimensat", stamped()),
        (
            "truncate",
            OpenOptions::new()
                .write(true)
                .open(&sample)
                .and_then(|file| file.set_len(0)),
        ),
        ("mkfifo", fifo()),
        (
            "open O_TRUNC",
            opened(OpenOptions::new().write(true).truncate(true)),
        ),
        ("write", wrote(OpenOptions::new().write(true))),
        (
            "write O_RDWR",
            wrote(OpenOptions::new().read(true).write(true)),
        ),
        ("append", wrote(OpenOptions::new().append(true))),
    ];
    // Some the kernel refuses by itself, since the file's group is none that it knows.
    for (what, result) in attempts {
        let errno = result.unwrap_err().raw_os_error();
        let expected = match what {
            "unlink" | "rename" | "link" | "chmod" | "chown" | "utimensat" => EOVERFLOW,
            "truncate" | "open O_TRUNC" | "write" | "write O_RDWR" | "append" => EACCES,
            _ => EROFS,
        };
        assert_eq!(errno, Some(expected), "{what}");
    }
    let flags = rustix::fs::XattrFlags::empty();
    let refused = rustix::fs::setxattr(&sample, "user.x", b"y", flags).unwrap_err();
    assert!(
        [rustix::io::Errno::PERM, rustix::io::Errno::OPNOTSUPP].contains(&refused),
        "{refused:?}"
    );
    assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);

    let control = guard.point.join(".control/migrate");
    let mut file = OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&control)
        .unwrap();
    assert_eq!(
        file.write(b"nonsense").unwrap_err().raw_os_error(),
        Some(EINVAL)
    );
    drop(file);
    fs::write(&control, "3\n").unwrap();
}

#[test]
fn a_panic_is_an_io_error_for_one_caller() {
    if !can_mount() {
        return;
    }
    let place = place();
    let mut guard = MountGuard::at(place.point("m"));
    let log = place.folder.path().join("log");
    let mut command = program();
    command.arg("--log-file").arg(&log);
    command.env("DATASETRT_TEST_PANIC_AT_SAMPLE", "1");
    guard.foreground(command, &place.tiny.cache);
    for _ in 0..10 {
        assert_eq!(
            guard.read("samples/0/1").unwrap_err().raw_os_error(),
            Some(EIO)
        );
        assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);
    }
    assert!(fs::read_to_string(log).unwrap().contains("read of inode"));
}
