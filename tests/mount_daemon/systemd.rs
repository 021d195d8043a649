//! The systemd unit: its lines run as systemd runs them, and its settings looked at.

use std::collections::HashMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::mount::{LIMIT, MountGuard, can_mount, finish, is_mounted, within};
use crate::{Place, place, text};

const UNIT: &str = include_str!("../../scripts/packaging/datasetrt-mount@.service");
const INSTALLED: &str = "/usr/bin/";

/// What the unit says for `key`, in order.
pub(crate) fn settings(key: &str) -> Vec<&'static str> {
    let lines = UNIT.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once('='))
        .filter(|(name, _)| *name == key)
        .map(|(_, value)| value)
        .collect()
}

fn setting(key: &str) -> &'static str {
    let found = settings(key);
    assert_eq!(found.len(), 1, "{key}");
    found[0]
}

/// The folder of the built programs, which stands for /usr/bin.
fn bin() -> String {
    let folder = Path::new(env!("CARGO_BIN_EXE_datasetrt")).parent().unwrap();
    format!("{}/", folder.display())
}

/// A line of the unit as a command: `$NAME` gives any number of words, `${NAME}` exactly one.
fn command(line: &str, environment: &HashMap<&str, String>) -> Command {
    let mut words = Vec::new();
    for word in line.split(' ') {
        let braced = word
            .strip_prefix("${")
            .and_then(|word| word.strip_suffix('}'));
        if let Some(name) = braced {
            words.push(environment[name].clone());
        } else if let Some(name) = word.strip_prefix('$') {
            words.extend(environment[name].split(' ').map(str::to_owned));
        } else {
            let word = word.replacen(INSTALLED, &bin(), 1);
            words.push(word.replace("%t", &environment["%t"]).replace("%i", "test"));
        }
    }
    words.retain(|word| !word.is_empty());
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

fn environment(place: &Place, guard: &MountGuard) -> HashMap<&'static str, String> {
    let second = place.folder.path().join("second");
    let _ = crate::common::fixture::Fixture::new()
        .payloads([b"more\n"])
        .write(&second);
    let runtime = place.folder.path().join("run");
    fs::create_dir_all(runtime.join("datasetrt-mount/test")).unwrap();
    HashMap::from([
        ("%t", runtime.display().to_string()),
        (
            "CACHES",
            format!("{} {}", place.tiny.cache.display(), second.display()),
        ),
        ("MOUNTPOINT", guard.point.display().to_string()),
        ("OPTIONS", "--threads 2 --validate-cache=access".to_owned()),
    ])
}

#[test]
fn the_units_lines_start_stop_and_clean_up() {
    if !can_mount() {
        return;
    }
    let place = place();
    let guard = MountGuard::at(place.point("m"));
    let environment = environment(&place, &guard);
    let path = place.folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(LIMIT)).unwrap();
    let heard = || {
        let mut message = [0; 100];
        let len = manager.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..len]).into_owned()
    };
    let start = || {
        let mut start = command(setting("ExecStart"), &environment);
        start.env("NOTIFY_SOCKET", &path).spawn().unwrap()
    };
    let clean_up = || {
        let output = finish(&mut command(setting("ExecStopPost"), &environment));
        assert!(output.status.success(), "{}", text(&output));
        assert!(text(&output).is_empty(), "{}", text(&output));
    };
    assert_eq!(setting("Type"), "notify");

    assert_eq!(setting("RuntimeDirectory"), "datasetrt-mount/%i");
    let control = Path::new(&environment["%t"]).join("datasetrt-mount/test");

    // Start, ready, stop.
    let mut daemon = start();
    assert_eq!(heard(), format!("READY=1\nMAINPID={}\n", daemon.id()));
    assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);
    assert_eq!(
        fs::read_dir(guard.point.join("samples")).unwrap().count(),
        2
    );
    assert_eq!(
        fs::read_link(guard.point.join(".control")).unwrap(),
        control
    );
    fs::write(control.join("log-level"), "debug").unwrap();
    let open = fs::File::open(guard.point.join(place.tiny.sample)).unwrap();
    kill_process(Pid::from_child(&daemon), Signal::TERM).unwrap();
    assert_eq!(heard(), "STOPPING=1\n");
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    drop(open);
    clean_up();

    // A crash, and systemd's restart, which finds the dead mount.
    let mut daemon = start();
    assert!(heard().starts_with("READY=1"));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(is_mounted(&guard.point));
    assert_eq!(setting("Restart"), "on-failure");
    let mut daemon = start();
    assert!(heard().starts_with("READY=1"));
    assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);

    // A crash after which nothing is started again.
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(is_mounted(&guard.point) && is_mounted(&control));
    clean_up();
    assert!(!is_mounted(&guard.point) && !is_mounted(&control));

    // What cannot start fails, which systemd sees by the status.
    let mut missing = environment.clone();
    missing.insert("CACHES", "/not/here".to_owned());
    let output = finish(command(setting("ExecStart"), &missing).env("NOTIFY_SOCKET", &path));
    assert_eq!(output.status.code(), Some(1));
    clean_up();
}

#[test]
fn the_unit_keeps_to_the_mount_namespace_of_the_machine() {
    // Each of these gives the service a namespace from which no mount comes out.
    for key in [
        "PrivateTmp",
        "PrivateDevices",
        "PrivateMounts",
        "PrivateUsers",
        "ProtectSystem",
        "ProtectHome",
        "ProtectKernelTunables",
        "ProtectKernelModules",
        "ProtectKernelLogs",
        "ProtectControlGroups",
        "ProtectProc",
        "ProcSubset",
        "ReadOnlyPaths",
        "ReadWritePaths",
        "InaccessiblePaths",
        "BindPaths",
        "BindReadOnlyPaths",
        "TemporaryFileSystem",
        "RootDirectory",
        "MountAPIVFS",
        "DynamicUser",
        "StateDirectory",
        "LogNamespace",
    ] {
        assert!(settings(key).is_empty(), "{key}");
    }
}

#[test]
fn systemd_understands_the_unit() {
    let Ok(version) = Command::new("systemd-analyze").arg("--version").output() else {
        eprintln!("SKIPPED: no systemd-analyze");
        return;
    };
    assert!(version.status.success());
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("datasetrt-mount@test.service");
    fs::write(&unit, UNIT.replace(INSTALLED, &bin())).unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .arg(&unit);
    let mut output = None;
    assert!(within(|| {
        output = Some(verify.output().unwrap());
        true
    }));
    let output = output.unwrap();
    let said = text(&output);
    assert!(
        output.status.success() && !said.contains("datasetrt"),
        "{said}"
    );

    // How much a break-in could do, from 0 to 10 (times ten); a service without hardening has 96.
    let mut security = Command::new("systemd-analyze");
    security
        .args(["security", "--offline=yes", "--threshold=60", "--no-pager"])
        .arg(&unit);
    let output = security.output().unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{table}{}", text(&output));
}

#[test]
fn the_unit_lets_the_daemon_become_another_user_and_confine_itself() {
    let rights = settings("CapabilityBoundingSet").join(" ");
    let calls = settings("SystemCallFilter").join(" ");
    for right in ["CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID"] {
        assert!(rights.split(' ').any(|word| word == right), "{right}");
    }
    for call in [
        "@mount",
        "landlock_create_ruleset",
        "landlock_add_rule",
        "landlock_restrict_self",
        "seccomp",
    ] {
        assert!(calls.split(' ').any(|word| word == call), "{call}");
    }
}
