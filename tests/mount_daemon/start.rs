//! Starting and refusing to start.

use rustix::fs::{CWD, FileType, Mode};
use rustix::process::{Signal, kill_process};
use std::ffi::OsStr;
use std::fs::{self};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{chown, symlink};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::mount::{
    LIMIT, MountGuard, USER, as_user, can_be_user, can_mount, daemons, finish, is_mounted,
    mount_options, program, within,
};
use crate::{assert_ready, place, text, unmount};

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
            let options = mount_options(&guard.point).unwrap();
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
        assert!(said[0].contains(guard.point.to_str().unwrap()), "{said:?}");
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
fn a_word_of_validation_after_a_space_gets_a_hint() {
    let place = place();
    let mut command = program();
    command.args(["--validate-cache", "startup"]);
    command.arg(&place.tiny.cache).arg(place.point("m"));
    let output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output);
    assert!(said.contains("--validate-cache=startup"), "{said}");
}

#[test]
fn a_size_that_lacks_its_unit_is_told() {
    if !can_mount() {
        return;
    }
    let place = place();
    let guard = MountGuard::at(place.point("m"));
    let mut command = program();
    command.args(["--cache-memory", "10"]);
    let output = guard.background(command, &place.tiny.cache);
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("10 bytes") && said.contains("10MiB"),
        "{said}"
    );
}
