//! The log: for people, for the journal, for programs; and its level, changed while mounted.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::mount::{MountGuard, as_user, can_be_user, can_mount, finish, program, within};
use crate::{assert_ready, place, text, unmount};

fn lines(path: &std::path::Path) -> Vec<String> {
    let log = fs::read_to_string(path).unwrap();
    log.lines().map(str::to_owned).collect()
}

#[test]
fn a_log_in_json_is_one_object_a_line() {
    if !can_mount() {
        return;
    }
    let place = place();
    let guard = MountGuard::at(place.point("a\nb"));
    let log = place.folder.path().join("log");
    let mut command = program();
    command
        .args(["-o", "log_format=json"])
        .arg("--log-file")
        .arg(&log);
    assert_ready(&guard.background(command, &place.tiny.cache));
    let pid = guard.pid().as_raw_nonzero().get();
    guard.signal(Signal::TERM);
    assert!(guard.is_gone());
    let events: Vec<Value> = lines(&log)
        .iter()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    let mounted = format!("{}: mounted (process {pid})", guard.point.display());
    assert!(
        events.iter().any(|event| event["message"] == mounted),
        "{events:?}"
    );
    for event in &events {
        assert_eq!(event["pid"], pid);
        assert_eq!(event["program"], "datasetrt-mount");
        assert!(event["time"].as_str().unwrap().ends_with('Z'));
    }

    // What is refused is said the same way, where programs read it.
    let mut command = program();
    command.args(["--log-format", "json"]);
    let output = guard.background(command, &place.folder.path().join("missing"));
    assert_eq!(output.status.code(), Some(1));
    let event: Value = serde_json::from_str(text(&output).trim_end()).unwrap();
    assert_eq!(event["level"], "error");
    assert!(event["message"].as_str().unwrap().contains("missing"));
}

#[test]
fn the_journal_hears_the_priority_of_each_line() {
    if !can_mount() {
        return;
    }
    let place = place();
    let guard = MountGuard::at(place.point("m"));
    let stream = File::create(place.folder.path().join("stream")).unwrap();
    let found = stream.metadata().unwrap();
    for (named, prefix) in [
        (format!("{}:{}", found.dev(), found.ino()), "<3>"),
        // Another stream: stderr was redirected.
        (format!("{}:1", found.dev()), "datasetrt-mount: error: "),
    ] {
        stream.set_len(0).unwrap();
        let mut command = program();
        command
            .args(["-f", "/not/here"])
            .arg(&guard.point)
            .env("JOURNAL_STREAM", named)
            .stderr(stream.try_clone().unwrap());
        assert_eq!(finish(&mut command).status.code(), Some(1));
        let said = lines(&place.folder.path().join("stream"));
        let last = said.last().unwrap().trim_start_matches('\0');
        assert!(last.starts_with(prefix), "{last}");
    }
}

#[test]
fn the_level_changes_while_mounted() {
    if !can_mount() {
        return;
    }
    let place = place();
    let guard = MountGuard::at(place.point("m"));
    let log = place.folder.path().join("log");
    let mut command = program();
    command.arg("--allow-other").arg("--log-file").arg(&log);
    let allowed = rustix::process::geteuid().is_root();
    if !allowed {
        command = program();
        command.arg("--log-file").arg(&log);
    }
    assert_ready(&guard.background(command, &place.tiny.cache));
    let control = guard.point.join(".control/log-level");
    let read = || fs::read_to_string(&control).unwrap();
    assert_eq!(read(), "info\n");
    assert_eq!(fs::metadata(&control).unwrap().mode() & 0o777, 0o600);
    for level in ["error", "WARN", " trace\n", "debug"] {
        fs::write(&control, level).unwrap();
        let expected = format!("{}\n", level.trim().to_ascii_lowercase());
        assert_eq!(read(), expected);
        assert_eq!(fs::metadata(&control).unwrap().len(), expected.len() as u64);
    }
    for word in ["loud", "off", "info,fuser=trace", ""] {
        let mut file = fs::OpenOptions::new().write(true).open(&control).unwrap();
        if word.is_empty() {
            continue;
        }
        assert_eq!(
            file.write(word.as_bytes()).unwrap_err().raw_os_error(),
            Some(22),
            "{word}"
        );
    }
    assert_eq!(read(), "debug\n");
    let warned = |log: &[String]| log.iter().filter(|line| line.contains(" warn ")).count();
    // Also the change itself is logged, except where the new level is below it.
    assert!(within(|| warned(&lines(&log)) == 3), "{:?}", lines(&log));

    if allowed && can_be_user() {
        let mut shell = as_user(place.folder.path(), "sh");
        shell
            .args(["-c", "echo trace > \"$0\""])
            .arg(&control)
            .stderr(Stdio::piped());
        let said = text(&finish(&mut shell));
        assert!(said.contains("Permission denied"), "{said}");
        assert_eq!(read(), "debug\n");
    }
    unmount(&guard.point, false);
    assert!(guard.is_gone());
}
