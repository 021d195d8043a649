//! Ending: by signals, from outside, by force.

use rustix::process::{Signal, geteuid};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::common::mount::{
    MountGuard, can_mount, is_mounted, program, program_that_hears_hangups,
};
use crate::{assert_ready, place, text, unmount};

#[test]
fn signals_unmount_and_exit_with_0() {
    if !can_mount() {
        return;
    }
    let place = place();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        for open in [false, true] {
            let mut guard = MountGuard::at(place.point("m"));
            guard.foreground(program_that_hears_hangups(), &place.tiny.cache);
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
fn a_daemon_that_ends_late_leaves_the_next_mount_alone() {
    if !can_mount() {
        return;
    }
    let place = place();
    let mut first = place.mounted("m");
    // It notices the unmount only after the next is mounted, with the device number it had.
    first.signal(Signal::STOP);
    unmount(&first.point, false);
    let second = MountGuard::at(&first.point);
    assert_ready(&second.background(program(), &place.tiny.cache));
    first.signal(Signal::CONT);
    assert_eq!(first.status().code(), Some(0));
    assert_eq!(second.read(place.tiny.sample).unwrap(), place.tiny.payload);
}

#[test]
fn an_aborted_connection_is_unmounted() {
    if !can_mount() || !geteuid().is_root() {
        return;
    }
    let place = place();
    let mut guard = place.mounted("m");
    let device = fs::metadata(&guard.point).unwrap().dev();
    let abort = format!("/sys/fs/fuse/connections/{device}/abort");
    if !Path::new("/sys/fs/fuse/connections")
        .join(device.to_string())
        .exists()
    {
        let mounted = Command::new("mount")
            .args(["-t", "fusectl", "none", "/sys/fs/fuse/connections"])
            .status();
        assert!(mounted.unwrap().success(), "no fusectl");
    }
    fs::write(&abort, "1").unwrap();
    assert_eq!(guard.status().code(), Some(0));
    assert!(!is_mounted(&guard.point));
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
