//! The mount command as a program: starting, refusing, ending, and what the kernel says to changes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "../common/mod.rs"]
mod common;

mod access;
mod confined;
mod containers;
mod control_at;
mod doctor;
mod end;
mod ends;
mod follow;
mod fstab;
mod handles;
mod hostile_names;
mod inherited;
mod links;
mod logs;
mod read_only;
mod rescan;
mod rights;
mod sigbus;
mod start;
mod starts;
mod systemd;
mod tamper;
mod top;
mod umount;
mod unit_filter;
mod views;

use std::ffi::OsStr;
use std::fs::{self};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::mount::{MountGuard, Tiny, finish, program, within};

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

/// Unmounts as a user does. It is tried again while the kernel says busy: programs started by tests
/// beside this one hold its descriptors until they run.
fn unmount(point: &Path, lazily: bool) {
    let flags = if lazily { "-uz" } else { "-u" };
    let mut said = String::new();
    let done = within(|| {
        let output = finish(
            Command::new("fusermount3")
                .args([flags, "--"])
                .arg(point)
                .stderr(Stdio::piped()),
        );
        said = text(&output);
        assert!(output.status.success() || said.contains("busy"), "{said}");
        output.status.success()
    });
    assert!(done, "{said}");
}
