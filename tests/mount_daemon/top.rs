//! `datasetrt top`: one snapshot for programs, a live view for people.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::common::mount::{can_mount, finish, skip, tool};
use crate::{place, text, unmount};

#[test]
fn a_snapshot_is_printed_when_nobody_watches() {
    if !can_mount() {
        return;
    }
    let place = place();
    let guard = place.mounted("m");
    for _ in 0..3 {
        fs::read(guard.point.join(place.tiny.sample)).unwrap();
    }
    for options in [&[][..], &["--once"], &["--interval", "1"]] {
        let mut command = tool();
        command.arg("top").args(options).arg(&guard.point);
        let output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        assert!(output.status.success(), "{}", text(&output));
        let shown = String::from_utf8(output.stdout).unwrap();
        let first = format!("{}: 1 cache, 2 samples, up ", guard.point.display());
        assert!(shown.starts_with(&first), "{shown}");
        assert!(
            shown.ends_with('\n') && !shown.contains('\u{1b}'),
            "{shown:?}"
        );
        let read = shown.lines().find(|line| line.starts_with("bytes read"));
        assert!(read.unwrap().ends_with(" 6 B"), "{shown}");
        let lookups = shown.lines().find(|line| line.starts_with("lookup"));
        assert!(lookups.unwrap().contains(" us"), "{shown}");
    }
}

#[test]
fn what_is_no_mount_is_refused() {
    let place = place();
    for (path, reason) in [
        (place.point("folder"), "no datasetrt-mount lies here"),
        (
            place.folder.path().join("missing"),
            "no datasetrt-mount lies here",
        ),
        (place.tiny.cache.join("manifest.json"), "read the metrics"),
    ] {
        let mut command = tool();
        command.arg("top").arg(&path);
        let output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(reason), "{said}");
    }
    let mut command = tool();
    command.args(["top", "--interval", "0", "/"]);
    let output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
}

#[test]
fn a_terminal_is_refreshed_until_the_mount_ends() {
    if !can_mount() {
        return;
    }
    let program = Command::new("script").arg("--version").output();
    if !program.is_ok_and(|output| output.status.success()) {
        skip("no script(1), which makes a terminal");
        return;
    }
    let place = place();
    let guard = place.mounted("m");
    let line = format!(
        "{} top --interval 1 {}",
        env!("CARGO_BIN_EXE_datasetrt"),
        guard.point.display()
    );
    let mut child = Command::new("script")
        .args([
            "--quiet",
            "--flush",
            "--return",
            "--command",
            &line,
            "/dev/null",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdout, mut seen) = (child.stdout.take().unwrap(), Vec::new());
    let mut unmounted = false;
    let mut room = [0; 4096];
    // Ends when the program does; each look at the mount is an answer, so nothing hangs here.
    loop {
        let n = stdout.read(&mut room).unwrap();
        if n == 0 {
            break;
        }
        seen.extend_from_slice(&room[..n]);
        let shown = String::from_utf8_lossy(&seen);
        if !unmounted && shown.contains("rates of the last") {
            unmounted = true;
            unmount(&guard.point, true);
        }
    }
    let shown = String::from_utf8_lossy(&seen).into_owned();
    assert!(child.wait().unwrap().success(), "{shown}");
    assert!(shown.matches("\u{1b}[H").count() >= 2, "{shown:?}");
    assert!(shown.contains("rates since the start"), "{shown:?}");
    assert!(
        shown.trim_end().ends_with("the mount has ended"),
        "{shown:?}"
    );
}

#[test]
fn a_daemon_that_is_stopped_is_told_and_not_waited_for() {
    if !can_mount() {
        return;
    }
    let place = place();
    let guard = place.mounted("m");
    guard.signal(Signal::STOP);
    let mut command = tool();
    command.args(["top", "--once"]).arg(&guard.point);
    let output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    guard.signal(Signal::CONT);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no answer in"), "{said}");
}
