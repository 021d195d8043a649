//! What the process that starts the daemon leaves it: signals, descriptors, a log that nobody reads.

use std::fs;
use std::io::{PipeWriter, Write, pipe};
use std::os::unix::fs::chown;
use std::process::{Command, Stdio};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;

use crate::common::mount::{
    MountGuard, USER, as_user, can_be_user, can_mount, finish, is_mounted, program,
    program_that_hears_hangups, started_with, within,
};
use crate::{assert_ready, place, text};

#[test]
fn a_parent_that_ignores_the_end_of_its_children_is_no_obstacle() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = place();
    let folder = place.folder.path();
    let guard = MountGuard::at(place.point("m"));
    chown(&guard.point, Some(USER), Some(USER)).unwrap();
    let ignoring = |command| started_with("--ignore-signal=CHLD", command);
    let command = ignoring(as_user(folder, "datasetrt-mount"));
    assert_ready(&guard.background(command, &place.tiny.cache));
    assert!(is_mounted(&guard.point));
    let mut umount = ignoring(as_user(folder, "datasetrt"));
    umount.arg("umount").arg("--lazy").arg(&guard.point);
    let output = finish(umount.stderr(Stdio::piped()));
    assert!(output.status.success(), "{}", text(&output));
    assert!(guard.is_gone());
}

#[test]
fn a_signal_that_the_parent_blocked_is_heard() {
    if !can_mount() {
        return;
    }
    let place = place();
    for signal in [Signal::TERM, Signal::INT] {
        let mut guard = MountGuard::at(place.point("m"));
        let command = started_with("--block-signal", program());
        guard.foreground(command, &place.tiny.cache);
        guard.signal(signal);
        assert_eq!(guard.status().code(), Some(0), "{signal:?}");
        assert!(guard.is_gone());
    }
}

/// Fills the pipe, so that whoever else writes to it waits.
fn fill(end: &mut PipeWriter) {
    let flags = fcntl_getfl(&*end).unwrap();
    fcntl_setfl(&*end, flags | OFlags::NONBLOCK).unwrap();
    for len in [4096, 1] {
        while end.write(&vec![b'x'; len]).is_ok() {}
    }
    fcntl_setfl(&*end, flags).unwrap();
}

#[test]
fn a_log_that_nobody_reads_holds_up_nobody() {
    if !can_mount() {
        return;
    }
    let place = place();
    let point = place.point("m");
    let (_reader, mut writer) = pipe().unwrap();
    let mut daemon = program()
        .arg("-f")
        .arg(&place.tiny.cache)
        .arg(&point)
        .stdout(Stdio::null())
        .stderr(writer.try_clone().unwrap())
        .spawn()
        .unwrap();
    let guard = MountGuard::at(&point);
    assert!(within(|| guard.read(place.tiny.sample).is_ok()));
    fill(&mut writer);
    // Each of these is a line of the log.
    for _ in 0..100 {
        let _ = fs::write(point.join(".control/migrate"), "nonsense");
        let _ = fs::write(point.join(".control/verify"), "all");
    }
    assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);
    guard.signal(Signal::TERM);
    assert!(within(|| daemon.try_wait().unwrap().is_some()));
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    assert!(guard.is_gone());
}

#[test]
fn a_background_daemon_keeps_no_descriptor_that_it_was_not_given() {
    if !can_mount() {
        return;
    }
    let place = place();
    let guard = MountGuard::at(place.point("m"));
    let lock = place.folder.path().join("lock");
    let mut holder = Command::new("flock");
    holder.arg(&lock).arg(program().get_program());
    assert_ready(&guard.background(holder, &place.tiny.cache));
    assert!(is_mounted(&guard.point));
    let mut again = Command::new("flock");
    let output = finish(again.arg("--nonblock").arg(&lock).arg("true"));
    assert!(output.status.success(), "the lock is held");
    guard.signal(Signal::TERM);
    assert!(guard.is_gone());

    // cat ends when the last copy of the pipe is closed; the list is a pipe that is given.
    let line = "\"$0\" --caches-from <(echo \"$1\") \"$2\" 7>&1 | cat";
    let mut shell = Command::new("bash");
    shell
        .args(["-c", line, env!("CARGO_BIN_EXE_datasetrt-mount")])
        .arg(&place.tiny.cache)
        .arg(&guard.point);
    let output = finish(shell.stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);
    let descriptors = format!("/proc/{}/fd", guard.pid().as_raw_nonzero());
    let open = fs::read_dir(descriptors).unwrap().flatten();
    let pipes = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    let pipes: Vec<_> = pipes.filter(|to| to.starts_with("pipe:")).collect();
    assert!(pipes.is_empty(), "{pipes:?}");
}

#[test]
fn a_hangup_opens_the_log_anew_where_there_is_one() {
    if !can_mount() {
        return;
    }
    let place = place();
    for background in [false, true] {
        let log = place.folder.path().join(format!("log-{background}"));
        let rotated = log.with_extension("1");
        let mut guard = MountGuard::at(place.point("m"));
        let mut command = program_that_hears_hangups();
        command.arg("--log-file").arg(&log);
        if background {
            assert_ready(&guard.background(command, &place.tiny.cache));
        } else {
            guard.foreground(command, &place.tiny.cache);
        }
        for round in 0..2 {
            fs::rename(&log, &rotated).unwrap();
            guard.signal(Signal::HUP);
            let anew = || fs::read_to_string(&log).is_ok_and(|text| text.contains("anew"));
            assert!(within(anew), "{background}, {round}");
            assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);
        }
        guard.signal(Signal::TERM);
        assert!(guard.is_gone());
        let text = fs::read_to_string(&log).unwrap();
        assert!(text.contains("SIGTERM"), "{text}");
        if !background {
            assert_eq!(guard.status().code(), Some(0));
        }
    }
}
