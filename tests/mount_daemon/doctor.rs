//! `datasetrt doctor`: each check in its good and its bad state.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Signal, geteuid};
use serde_json::Value;

use crate::common::mount::{USER, as_user, can_be_user, can_mount, finish, tool};
use crate::{place, text};

fn doctor(mut command: Command, paths: &[&Path]) -> (Option<i32>, Vec<Value>) {
    command.args(["doctor", "--json"]).args(paths);
    let output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let code = output.status.code();
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let checks = report["checks"].as_array().unwrap().clone();
    let failed = checks
        .iter()
        .filter(|check| check["status"] == "fail")
        .count();
    assert_eq!(report["failed"], failed);
    assert_eq!(code, Some(i32::from(failed > 0)), "{report}");
    for check in &checks {
        assert_eq!(check["status"] == "ok", check["fix"].is_null(), "{check}");
    }
    (code, checks)
}

/// The checks of one name that have `text` in what was found, or in what to do.
fn found<'a>(checks: &'a [Value], name: &str, text: &str) -> &'a Value {
    let mut matching = checks
        .iter()
        .filter(|check| check["check"] == name && check.to_string().contains(text));
    let names = format!("{checks:#?}");
    matching
        .next()
        .unwrap_or_else(|| panic!("no {name} with {text} in {names}"))
}

#[test]
fn a_machine_that_can_mount_is_well() {
    if !can_mount() {
        return;
    }
    let place = place();
    let point = place.point("m");
    let (_, checks) = doctor(tool(), &[&place.tiny.cache, &point]);
    for name in [
        "device",
        "kernel",
        "fusermount3",
        "other users",
        "mount(8)",
        "open files",
        "mounts",
        "mountpoint",
        "caches",
    ] {
        found(&checks, name, "");
    }
    for name in ["device", "mountpoint", "caches"] {
        assert_eq!(found(&checks, name, "")["status"], "ok");
    }
    assert!(
        found(&checks, "caches", "1 cache")["found"]
            .as_str()
            .unwrap()
            .contains("2 samples")
    );
    // Other tests leave dead mounts for moments, so what is found of mounts is not looked at.
    let output = finish(tool().arg("doctor").stdout(Stdio::piped()));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.lines().any(|line| line.starts_with("ok    device")),
        "{text}"
    );
}

#[test]
fn bad_mountpoints_are_told_with_what_to_do() {
    let place = place();
    let cache = place.tiny.cache.as_path();
    let missing = place.folder.path().join("not there");
    let (_, checks) = doctor(tool(), &[cache, &missing]);
    let check = found(&checks, "mountpoint", "does not exist");
    assert_eq!(check["status"], "fail");
    assert_eq!(check["fix"], format!("mkdir -p '{}'", missing.display()));
    let file = cache.join("manifest.json");
    let (_, checks) = doctor(tool(), &[cache, &file]);
    assert_eq!(
        found(&checks, "mountpoint", "not a directory")["status"],
        "fail"
    );
    let (_, checks) = doctor(tool(), &[cache, cache]);
    assert_eq!(
        found(&checks, "mountpoint", "is the cache folder")["status"],
        "fail"
    );
    let full = place.point("full");
    fs::write(full.join("x"), "x").unwrap();
    let (_, checks) = doctor(tool(), &[cache, &full]);
    assert_eq!(found(&checks, "mountpoint", "not empty")["status"], "warn");
    let (_, checks) = doctor(tool(), &[cache, Path::new("/proc")]);
    assert_eq!(found(&checks, "mountpoint", "type proc")["status"], "warn");
}

#[test]
fn bad_caches_are_each_named() {
    let place = place();
    let point = place.point("m");
    let (first, second) = (
        place.folder.path().join("c1"),
        place.folder.path().join("c2"),
    );
    for cache in [&first, &second] {
        fs::create_dir(cache).unwrap();
    }
    fs::write(second.join("manifest.json"), "{\"format_version\": 4}").unwrap();
    let (code, checks) = doctor(tool(), &[&first, &place.tiny.cache, &second, &point]);
    assert_eq!(code, Some(1));
    found(&checks, "caches", "no caches in this folder");
    found(&checks, "caches", "unsupported format version");
    assert_eq!(
        checks
            .iter()
            .filter(|check| check["check"] == "caches")
            .count(),
        2
    );

    let third = place.folder.path().join("c3");
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(&place.tiny.cache).arg(&third);
    assert!(finish(&mut copy).status.success());
    let (_, checks) = doctor(tool(), &[&place.tiny.cache, &third, &point]);
    assert_eq!(found(&checks, "identity", "migrate")["status"], "warn");
}

#[test]
fn dead_and_living_mounts_are_told_apart() {
    if !can_mount() {
        return;
    }
    let place = place();
    let mut guard = place.mounted("m");
    let point = guard.point.clone();
    let shown = point.to_str().unwrap();
    let (_, checks) = doctor(tool(), &[&place.tiny.cache, &point]);
    assert_eq!(found(&checks, "mounts", shown)["status"], "ok");
    assert_eq!(found(&checks, "mountpoint", "already")["status"], "warn");
    guard.signal(Signal::KILL);
    guard.status();
    let (code, checks) = doctor(tool(), &[&place.tiny.cache, &point]);
    assert_eq!(code, Some(1));
    let check = found(&checks, "mounts", shown);
    assert_eq!(check["status"], "fail");
    // What it says to do works.
    let fix = check["fix"].as_str().unwrap();
    let line = fix.split(',').next().unwrap();
    let line = line.replacen("datasetrt", env!("CARGO_BIN_EXE_datasetrt"), 1);
    assert!(
        finish(Command::new("sh").args(["-c", &line]))
            .status
            .success()
    );
    assert!(guard.is_gone());
}

#[test]
fn what_fails_for_an_ordinary_user_is_said_to_that_user() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = place();
    let folder = place.folder.path();
    let point = place.point("m");
    let (code, checks) = doctor(as_user(folder, "datasetrt"), &[&place.tiny.cache, &point]);
    assert_eq!(code, Some(1));
    assert_eq!(found(&checks, "mountpoint", "not yours")["status"], "fail");
    chown(&point, Some(USER), Some(USER)).unwrap();
    let (_, checks) = doctor(as_user(folder, "datasetrt"), &[&place.tiny.cache, &point]);
    assert_eq!(found(&checks, "mountpoint", "is free")["status"], "ok");
}

/// Runs the doctor in a mount namespace that `script` has changed.
fn elsewhere(script: &str, point: &OsStr) -> Output {
    let script = format!("{script}; exec \"$0\" doctor \"$1\"");
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-euc", &script])
        .args([OsStr::new(env!("CARGO_BIN_EXE_datasetrt")), point])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    finish(&mut command)
}

#[test]
fn a_machine_that_cannot_mount_is_told_why() {
    if !geteuid().is_root() {
        return;
    }
    let place = place();
    let point = place.point("m");
    for (script, lines) in [
        (
            "mount -t tmpfs none /dev; mknod /dev/null c 1 3",
            &["FAIL  device", "--device /dev/fuse"][..],
        ),
        (
            "mount -t tmpfs none \"$1\"; mkdir \"$1\"/m; set -- \"$1\"/m",
            &["warn  propagation", "mount --make-rshared"],
        ),
        (
            "mount -t tmpfs none \"$1\"; mount --make-shared \"$1\"; mkdir \"$1\"/m; set -- \"$1\"/m",
            &["ok    propagation"],
        ),
        (
            "mount --bind /dev/null /etc/fuse.conf",
            &["other users", "root only"],
        ),
        ("ulimit -n 64", &["warn  open files", "LimitNOFILE"]),
    ] {
        let output = elsewhere(script, point.as_os_str());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        for line in lines {
            assert!(
                said.contains(line),
                "{script}: {line}: {said}{}",
                text(&output)
            );
        }
    }
}
