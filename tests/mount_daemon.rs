//! The mount command as a program: starting, refusing, ending, and what the kernel says to changes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod common;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use common::mount::{
    LIMIT, MountGuard, Tiny, USER, as_user, can_be_user, can_mount, daemons, finish, is_mounted,
    mount_options, program, within,
};
use rustix::fs::{CWD, FileType, Mode};
use rustix::process::{Signal, geteuid, kill_process};

const EROFS: i32 = 30;
const EIO: i32 = 5;
const EINVAL: i32 = 22;

struct Place {
    folder: tempfile::TempDir,
    tiny: Tiny,
}

/// A folder that everybody may enter, with a cache in it.
fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let tiny = Tiny::make(folder.path());
    Place { folder, tiny }
}

impl Place {
    fn point(&self, name: impl AsRef<OsStr>) -> PathBuf {
        let point = self.folder.path().join(name.as_ref());
        fs::create_dir_all(&point).unwrap();
        point
    }

    fn mounted(&self, name: &str) -> MountGuard {
        let mut guard = MountGuard::at(self.point(name));
        guard.foreground(program(), &self.tiny.cache);
        guard
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_ready(output: &Output) {
    assert!(output.status.success(), "{}", text(output));
}

fn unmount(point: &Path, lazily: bool) {
    let flags = if lazily { "-uz" } else { "-u" };
    let mut said = String::new();
    // Busy for a moment when another test's child, between fork and exec, has our open folder.
    let unmounted = within(|| {
        let mut command = Command::new("fusermount3");
        command.args([flags, "--"]).arg(point);
        let output = finish(command.stderr(Stdio::piped()));
        said = text(&output);
        output.status.success()
    });
    assert!(unmounted, "{said}");
}

#[test]
fn odd_names_of_the_mountpoint_are_harmless() {
    if !can_mount() {
        return;
    }
    let place = place();
    let user = can_be_user();
    let names: [&[u8]; 9] = [
        b"a,ro",
        b"a,b",
        b"a b",
        b"a\\b",
        b"a\\,b",
        b"a\nb",
        b"a\xff",
        b"-o",
        "\u{e9}#".as_bytes(),
    ];
    for name in names {
        let name = OsStr::from_bytes(name);
        for as_root in [true, false] {
            if !as_root && !user {
                continue;
            }
            let point = place.point(name);
            let command = if as_root {
                program()
            } else {
                chown(&point, Some(USER), Some(USER)).unwrap();
                as_user(place.folder.path(), "datasetrt-mount")
            };
            let guard = MountGuard::at(point);
            assert_ready(&guard.background(command, &place.tiny.cache));
            let options = mount_options(&guard.point);
            let options = options.unwrap_or_else(|| panic!("{name:?} as root: {as_root}"));
            assert!(options.starts_with("rw,"), "{name:?}: {options}");
            if as_root {
                assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);
            }
            guard.signal(Signal::TERM);
            assert!(guard.is_gone(), "{name:?}");
        }
    }
}

#[test]
fn a_background_mount_answers_as_soon_as_the_command_returns() {
    if !can_mount() {
        return;
    }
    let place = place();
    let guard = MountGuard::at(place.point("m"));
    for _ in 0..20 {
        assert_ready(&guard.background(program(), &place.tiny.cache));
        assert_eq!(
            fs::read_dir(guard.point.join("samples")).unwrap().count(),
            1
        );
        assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);
        unmount(&guard.point, false);
        assert!(guard.is_gone());
    }
}

#[test]
fn a_background_mount_survives_its_terminal() {
    if !can_mount() {
        return;
    }
    let place = place();
    let guard = MountGuard::at(place.point("m"));
    let line = format!(
        "{:?} {:?} {:?}",
        env!("CARGO_BIN_EXE_datasetrt-mount"),
        place.tiny.cache,
        guard.point
    );
    let run = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    if run.is_err() {
        eprintln!("SKIPPED: no script(1)");
        return;
    }
    assert!(run.unwrap().success());
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);
}

#[test]
fn a_failed_start_says_why_and_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let place = place();
    let missing = place.folder.path().join("missing");
    let file = place.folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let inside = place.tiny.cache.join("inside");
    fs::create_dir(&inside).unwrap();
    let link = place.folder.path().join("link");
    symlink(&inside, &link).unwrap();
    let cases = [
        (missing, "does not exist"),
        (file, "not a directory"),
        (place.tiny.cache.clone(), "is the cache folder"),
        (inside, "lies inside the cache folder"),
        (link, "lies inside the cache folder"),
        (
            place.folder.path().to_path_buf(),
            "contains the cache folder",
        ),
    ];
    for (point, cause) in cases {
        let guard = MountGuard::at(point);
        let mut foreground = program();
        foreground.arg("-f");
        let said: Vec<String> = [program(), foreground]
            .into_iter()
            .map(|command| {
                let output = guard.background(command, &place.tiny.cache);
                assert_eq!(output.status.code(), Some(1));
                text(&output)
            })
            .collect();
        assert!(said[0].contains(cause), "{said:?}");
        assert!(
            said[0].contains(guard.point.file_name().unwrap().to_str().unwrap()),
            "{said:?}"
        );
        assert_eq!(said[0], said[1]);
        assert!(guard.is_gone());
    }
}

#[test]
fn a_wrong_command_line_exits_with_2() {
    for line in [
        &["only-one"][..],
        &[],
        &["c", "m", "-o", "alow_other"],
        &["c", "m", "--threads", "0"],
        &["c", "m", "-q", "-v"],
    ] {
        let output = finish(
            program()
                .args(line)
                .stdout(Stdio::null())
                .stderr(Stdio::piped()),
        );
        assert_eq!(output.status.code(), Some(2), "{line:?}");
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn signals_unmount_and_exit_with_0() {
    if !can_mount() {
        return;
    }
    let place = place();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        for open in [false, true] {
            let mut guard = place.mounted("m");
            let file = open.then(|| File::open(guard.point.join(place.tiny.sample)).unwrap());
            guard.signal(signal);
            assert_eq!(
                guard.status().code(),
                Some(0),
                "{signal:?}, open file: {open}"
            );
            assert!(!is_mounted(&guard.point));
            drop(file);
        }
    }
}

#[test]
fn an_unmount_from_outside_ends_the_daemon() {
    if !can_mount() {
        return;
    }
    let place = place();
    let mut guard = place.mounted("m");
    unmount(&guard.point, false);
    assert_eq!(guard.status().code(), Some(0));

    let mut guard = place.mounted("m");
    let mut file = File::open(guard.point.join(place.tiny.sample)).unwrap();
    unmount(&guard.point, true);
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, place.tiny.payload);
    guard.signal(Signal::INT);
    assert_eq!(guard.status().code(), Some(0));
}

#[test]
fn another_mount_at_the_same_place_is_left_alone() {
    if !can_mount() || !geteuid().is_root() {
        return;
    }
    let place = place();
    let mut guard = place.mounted("m");
    let status = Command::new("mount")
        .args(["-t", "tmpfs", "over"])
        .arg(&guard.point)
        .status()
        .unwrap();
    assert!(status.success());
    guard.signal(Signal::TERM);
    assert_eq!(guard.status().code(), Some(0));
    fs::write(guard.point.join("still-here"), "x").unwrap();
}

#[test]
fn a_dead_leftover_is_cleared_and_a_live_mount_refused() {
    if !can_mount() {
        return;
    }
    let place = place();
    let mut guard = place.mounted("m");
    let second = guard.background(program(), &place.tiny.cache);
    assert_eq!(second.status.code(), Some(1));
    assert!(
        text(&second).contains("fusermount3 -u"),
        "{}",
        text(&second)
    );
    assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);

    guard.signal(Signal::KILL);
    guard.status();
    assert!(is_mounted(&guard.point));
    let again = guard.background(program(), &place.tiny.cache);
    assert_ready(&again);
    assert!(text(&again).contains("dead mount"), "{}", text(&again));
    assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);
    unmount(&guard.point, false);
    assert!(guard.is_gone());
}

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
    let write = finish(
        as_user(folder, "sh")
            .args(["-c", "echo 3 > \"$1\"", "sh"])
            .arg(guard.point.join(".control/migrate"))
            .stderr(Stdio::piped()),
    );
    assert!(
        text(&write).contains("Permission denied"),
        "{}",
        text(&write)
    );
}

#[test]
fn every_change_is_refused_as_read_only() {
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
    for (what, result) in attempts {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(EROFS), "{what}");
    }
    let flags = rustix::fs::XattrFlags::empty();
    let refused = rustix::fs::setxattr(&sample, "user.x", b"y", flags).unwrap_err();
    assert!(
        [rustix::io::Errno::ROFS, rustix::io::Errno::OPNOTSUPP].contains(&refused),
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
fn the_launching_half_takes_the_other_with_it() {
    if !can_mount() {
        return;
    }
    let place = place();
    let guard = MountGuard::at(place.point("m"));
    // Nobody ever writes to this list, so the start takes as long as we like.
    let list = place.folder.path().join("list");
    rustix::fs::mknodat(CWD, &list, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut child = program()
        .arg("--caches-from")
        .arg(&list)
        .arg(&guard.point)
        .spawn()
        .unwrap();
    assert!(within(|| daemons(&guard.point).len() == 2));
    kill_process(rustix::process::Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    assert!(guard.is_gone());
}

#[test]
fn whoever_started_it_can_hear_that_it_is_ready() {
    if !can_mount() {
        return;
    }
    let place = place();
    let guard = MountGuard::at(place.point("m"));
    for redirect in ["3>&1 1>&2 | cat", "| cat"] {
        let number = if redirect.starts_with('3') { "3" } else { "1" };
        // cat ends when the last copy of the pipe is closed, though the daemon lives on.
        let line = format!("\"$0\" --ready-fd {number} \"$1\" \"$2\" {redirect}");
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &line, env!("CARGO_BIN_EXE_datasetrt-mount")])
            .arg(&place.tiny.cache)
            .arg(&guard.point);
        let output = finish(shell.stdout(Stdio::piped()).stderr(Stdio::piped()));
        assert_eq!(output.stdout, b"READY=1\n", "{}", text(&output));
        assert!(is_mounted(&guard.point));
        unmount(&guard.point, false);
        assert!(guard.is_gone());
    }

    let path = place.folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let mut command = program();
    command.env("NOTIFY_SOCKET", &path);
    assert_ready(&guard.background(command, &place.tiny.cache));
    let mut message = [0; 100];
    let length = socket.recv(&mut message).unwrap();
    assert!(message[..length].starts_with(b"READY=1\nMAINPID="));
    guard.signal(Signal::TERM);
    let length = socket.recv(&mut message).unwrap();
    assert_eq!(&message[..length], b"STOPPING=1\n");
    assert!(guard.is_gone());
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
