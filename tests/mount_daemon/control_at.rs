//! `--control-at`: the control files have a mount of their own, and all else is read-only.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::process::Signal;

use crate::common::mount::{
    MountGuard, USER, as_user, can_be_user, can_mount, daemons, finish, is_mounted, mount_options,
    program, tool, within,
};
use crate::{Place, assert_ready, place, text, unmount};

/// A mount and that of its control files.
struct Pair {
    data: MountGuard,
    control: MountGuard,
}

/// Starts both, by `command`, in the foreground.
fn mount(place: &Place, mut command: Command) -> Pair {
    let mut pair = Pair {
        data: MountGuard::at(place.point("data")),
        control: MountGuard::at(place.point("ctl, \u{e9}")),
    };
    command.arg("--control-at").arg(&pair.control.point);
    pair.data.foreground(command, &place.tiny.cache);
    pair
}

impl Pair {
    /// Neither a mount nor a daemon is left.
    fn assert_gone(&self) {
        let gone = || {
            !is_mounted(&self.data.point)
                && !is_mounted(&self.control.point)
                && daemons(&self.data.point).is_empty()
        };
        assert!(within(gone));
    }
}

fn has(point: &Path, word: &str) -> bool {
    let options = mount_options(point).unwrap();
    options.split(',').any(|option| option == word)
}

fn open_to_write(path: PathBuf) -> std::io::Result<fs::File> {
    OpenOptions::new().read(true).write(true).open(path)
}

#[test]
fn commands_go_through_the_mount_of_the_control_files_alone() {
    if !can_mount() {
        return;
    }
    let place = place();
    let pair = mount(&place, program());
    let (data, control) = (&pair.data.point, &pair.control.point);
    assert!(has(data, "ro") && has(control, "rw") && has(control, "noexec"));
    assert_eq!(&fs::read_link(data.join(".control")).unwrap(), control);
    let link = fs::symlink_metadata(data.join(".control")).unwrap();
    assert_eq!(link.len(), control.as_os_str().len() as u64);
    let refused = open_to_write(data.join(place.tiny.sample)).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));

    let names = |point: &Path| {
        let entries = fs::read_dir(point).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert!(names(control).iter().any(|name| name == "migrate"));
    assert!(!names(control).iter().any(|name| name == "samples"));
    assert_eq!(names(control), names(&data.join(".control")));
    assert!(fs::metadata(control).unwrap().is_dir());
    assert!(fs::create_dir(control.join("new")).is_err());
    assert!(fs::metadata(control.join("samples")).is_err());

    let status = fs::read(data.join(".control/status")).unwrap();
    let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
    assert_eq!(status["control_at"], control.to_str().unwrap());
    assert_eq!(status["mountpoint"], data.to_str().unwrap());
    fs::write(data.join(".control/log-level"), "debug\n").unwrap();
    assert_eq!(fs::read(control.join("log-level")).unwrap(), b"debug\n");
    // A command whose effect the kernel must be told of, in the other mount.
    let manifest = data.join("caches/0/manifest.json");
    let before = fs::read(&manifest).unwrap();
    fs::write(control.join("migrate"), "3\n").unwrap();
    assert!(within(|| fs::read(&manifest).unwrap() != before));
    assert!(
        fs::read_to_string(control.join("migrate"))
            .unwrap()
            .contains("updated")
    );
}

#[test]
fn both_mounts_end_however_one_of_them_ends() {
    if !can_mount() {
        return;
    }
    let place = place();
    type End = (&'static str, fn(&Pair));
    let ends: [End; 8] = [
        ("TERM", |pair| pair.data.signal(Signal::TERM)),
        ("INT", |pair| pair.data.signal(Signal::INT)),
        ("umount", |pair| unmount(&pair.data.point, false)),
        ("umount of the control files", |pair| {
            unmount(&pair.control.point, false)
        }),
        ("lazy umount", |pair| unmount(&pair.data.point, true)),
        ("lazy umount of the control files", |pair| {
            unmount(&pair.control.point, true)
        }),
        ("tool", |pair| {
            let output = finish(tool().arg("umount").arg(&pair.data.point));
            assert!(output.status.success());
        }),
        ("tool, the control files", |pair| {
            let output = finish(tool().arg("umount").arg(&pair.control.point));
            assert!(output.status.success());
        }),
    ];
    for (what, end) in ends {
        let mut pair = mount(&place, program());
        end(&pair);
        assert_eq!(pair.data.status().code(), Some(0), "{what}");
        pair.assert_gone();
    }
    // Lazily, with a file open there: both end when it is closed.
    for at_data in [true, false] {
        let mut pair = mount(&place, program());
        let (point, name) = match at_data {
            true => (&pair.data.point, place.tiny.sample),
            false => (&pair.control.point, "status"),
        };
        let open = fs::File::open(point.join(name)).unwrap();
        unmount(point, true);
        assert!(!is_mounted(point));
        drop(open);
        assert_eq!(pair.data.status().code(), Some(0));
        pair.assert_gone();
    }
    // By a signal, with files open in both.
    let mut pair = mount(&place, program());
    let _sample = fs::File::open(pair.data.point.join(place.tiny.sample)).unwrap();
    let _status = fs::File::open(pair.control.point.join("status")).unwrap();
    pair.data.signal(Signal::TERM);
    assert_eq!(pair.data.status().code(), Some(0));
    pair.assert_gone();
}

#[test]
fn what_a_killed_daemon_leaves_is_cleared_at_both_places() {
    if !can_mount() {
        return;
    }
    let place = place();
    for by_start in [true, false] {
        let mut pair = mount(&place, program());
        pair.data.signal(Signal::KILL);
        pair.data.status();
        assert!(is_mounted(&pair.data.point) && is_mounted(&pair.control.point));
        if by_start {
            // At another place: the old one is cleared too.
            let other = MountGuard::at(place.point("other"));
            let mut command = program();
            command.arg("--control-at").arg(&other.point);
            pair.data.foreground(command, &place.tiny.cache);
            assert!(is_mounted(&other.point) && !is_mounted(&pair.control.point));
            assert_eq!(
                pair.data.read(place.tiny.sample).unwrap(),
                place.tiny.payload
            );
        } else {
            let output = finish(
                tool()
                    .arg("umount")
                    .arg(&pair.data.point)
                    .stderr(Stdio::piped()),
            );
            assert!(output.status.success(), "{}", text(&output));
            pair.assert_gone();
        }
    }
}

#[test]
fn a_start_that_fails_leaves_neither() {
    if !can_mount() {
        return;
    }
    let place = place();
    let control = MountGuard::at(place.point("ctl"));
    let data = MountGuard::at(place.point("data"));
    let inside = place.point("data/inside");
    let file = place.folder.path().join("file");
    fs::write(&file, "").unwrap();
    let missing = place.folder.path().join("missing");
    for at in [&data.point, &inside, &file, &missing, &place.tiny.cache] {
        let mut command = program();
        command.arg("--control-at").arg(at);
        let output = data.background(command, &place.tiny.cache);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{}: {}",
            at.display(),
            text(&output)
        );
        assert!(!is_mounted(at) && data.is_gone(), "{}", at.display());
    }
    // The place of the control files is free, and the other is not.
    let taken = place.mounted("data");
    let mut command = program();
    command.arg("--control-at").arg(&control.point);
    let output = data.background(command, &place.tiny.cache);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(!is_mounted(&control.point));
    drop(taken);
    // And a cache that is refused.
    let mut command = program();
    command.arg("--control-at").arg(&control.point);
    let output = data.background(command, &place.point("empty"));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(!is_mounted(&control.point) && data.is_gone());
}

#[test]
fn an_ordinary_user_and_a_daemon_in_the_background_have_both() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = place();
    let folder = place.folder.path();
    let pair = Pair {
        data: MountGuard::at(place.point("data")),
        control: MountGuard::at(place.point("ctl")),
    };
    for point in [&pair.data.point, &pair.control.point] {
        chown(point, Some(USER), Some(USER)).unwrap();
    }
    let mut command = as_user(folder, "datasetrt-mount");
    command.arg("--control-at").arg(&pair.control.point);
    assert_ready(&pair.data.background(command, &place.tiny.cache));
    let mut shell = as_user(folder, "sh");
    shell.args([
        "-c",
        "echo debug > \"$0\"/.control/log-level && cat \"$0\"/.control/log-level",
    ]);
    let output = finish(shell.arg(&pair.data.point).stdout(Stdio::piped()));
    assert_eq!(output.stdout, b"debug\n");
    pair.data.signal(Signal::TERM);
    pair.assert_gone();
    // As root, which gives the serving threads' rights up.
    let mut command = program();
    command.args([
        "--allow-other",
        "--sandbox=full",
        "--user",
        &USER.to_string(),
    ]);
    command.arg("--control-at").arg(&pair.control.point);
    assert_ready(&pair.data.background(command, &place.tiny.cache));
    assert_eq!(
        pair.data.read(place.tiny.sample).unwrap(),
        place.tiny.payload
    );
    assert!(
        !fs::read(pair.data.point.join(".control/metrics"))
            .unwrap()
            .is_empty()
    );
    unmount(&pair.control.point, false);
    pair.assert_gone();
}

#[test]
fn the_tools_take_either_of_the_two() {
    if !can_mount() {
        return;
    }
    let place = place();
    let pair = mount(&place, program());
    for point in [&pair.data.point, &pair.control.point] {
        let mut top = tool();
        top.args(["top", "--once"]).arg(point);
        let output = finish(top.stdout(Stdio::piped()).stderr(Stdio::piped()));
        assert!(output.status.success(), "{}", text(&output));
        assert!(!output.stdout.is_empty());
    }
    // It says what lies there, and does not hang.
    let mut doctor = tool();
    doctor
        .arg("doctor")
        .arg(&place.tiny.cache)
        .arg(&pair.control.point);
    let output = finish(doctor.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("datasetrt-mount on it already"),
        "{said}{}",
        text(&output)
    );
}
