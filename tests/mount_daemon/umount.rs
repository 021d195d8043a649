//! `datasetrt umount`: away with it, or who uses it.

use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Signal, geteuid};

use crate::common::mount::{
    MountGuard, USER, as_user, can_be_user, can_mount, finish, is_mounted, program, tool, within,
};
use crate::{assert_ready, place, text};

fn umount(arguments: &[&str], point: &Path) -> Output {
    let mut command = tool();
    command.arg("umount").args(arguments).arg(point);
    finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// Programs started by tests beside this one hold its descriptors until they run, so the mount may be
/// busy for a moment.
fn umount_idle(point: &Path) {
    let mut said = String::new();
    let done = within(|| {
        let output = umount(&[], point);
        said = text(&output);
        output.status.code() == Some(0)
    });
    assert!(done, "{said}");
}

/// A process that uses the mount; ended when dropped.
struct User(Child);

impl User {
    fn sleeping(mut command: Command) -> Self {
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        let name = format!("/proc/{}/comm", child.id());
        // Until it runs its program it is a copy of us.
        assert!(within(
            || fs::read_to_string(&name).is_ok_and(|comm| comm == "sleep\n")
        ));
        Self(child)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn sleep() -> Command {
    let mut command = Command::new("sleep");
    command.arg("60").stdin(Stdio::null());
    command
}

#[test]
fn an_idle_and_a_dead_mount_are_taken_away() {
    if !can_mount() {
        return;
    }
    let place = place();
    let mut guard = place.mounted("m");
    umount_idle(&guard.point);
    assert_eq!(guard.status().code(), Some(0));
    assert!(guard.is_gone());

    let mut guard = place.mounted("it's m");
    guard.signal(Signal::KILL);
    guard.status();
    assert!(is_mounted(&guard.point));
    let link = place.folder.path().join("link");
    std::os::unix::fs::symlink(&guard.point, &link).unwrap();
    umount_idle(&guard.point);
    assert!(!is_mounted(&guard.point));
}

#[test]
fn whoever_uses_the_mount_is_named() {
    if !can_mount() {
        return;
    }
    let place = place();
    let mut guard = place.mounted("m");
    let sample = guard.point.join(place.tiny.sample);
    let mut command = sleep();
    command.stdin(File::open(&sample).unwrap());
    let reader = User::sleeping(command);
    let mut command = sleep();
    command
        .current_dir(guard.point.join("samples"))
        .arg0("sleep");
    let worker = User::sleeping(command);

    let output = umount(&[], &guard.point);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    let user = if geteuid().is_root() { "root" } else { "" };
    for (holder, how) in [
        (&reader, format!("has open {}", sample.display())),
        (
            &worker,
            format!("works in {}", guard.point.join("samples").display()),
        ),
    ] {
        let line = format!("process {} (sleep, user {user}", holder.0.id());
        let line = said.lines().find(|found| found.contains(&line));
        assert!(line.is_some_and(|line| line.ends_with(&how)), "{said}");
    }
    assert!(said.contains("umount --lazy"), "{said}");
    assert!(is_mounted(&guard.point));
    assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);

    let output = umount(&["--lazy"], &guard.point);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output).contains(&format!("process {}", reader.0.id())));
    assert!(!is_mounted(&guard.point));
    drop((reader, worker));
    assert_eq!(guard.status().code(), Some(0));
}

#[test]
fn a_shell_inside_the_mount_is_named_and_the_tool_itself_is_not() {
    if !can_mount() {
        return;
    }
    let place = place();
    let guard = place.mounted("m");
    let line = "cd \"$1/samples\" && \"$0\" umount ..; exit $?";
    let mut shell = Command::new("sh");
    shell.args(["-c", line, env!("CARGO_BIN_EXE_datasetrt")]);
    let output = finish(shell.arg(&guard.point).stderr(Stdio::piped()));
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    assert!(said.contains("(sh, user"), "{said}");
    assert!(!said.contains("(datasetrt, "), "{said}");
}

#[test]
fn what_is_not_our_mount_is_left_alone() {
    if !can_mount() {
        return;
    }
    let place = place();
    let point = place.point("m");
    let output = umount(&[], &point);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("nothing is mounted here"));
    assert_eq!(umount(&["--if-mounted"], &point).status.code(), Some(0));
    assert_eq!(umount(&[], &point.join("missing")).status.code(), Some(1));
    assert_eq!(
        umount(&["--if-mounted"], &point.join("missing"))
            .status
            .code(),
        Some(0)
    );
    assert_eq!(umount(&["--force"], &point).status.code(), Some(2));
    let output = umount(&["--lazy"], Path::new("/proc"));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("a mount of type proc"),
        "{}",
        text(&output)
    );
}

#[test]
fn an_ordinary_user_unmounts_through_fusermount3() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = place();
    let folder = place.folder.path();
    let guard = MountGuard::at(place.point("m"));
    chown(&guard.point, Some(USER), Some(USER)).unwrap();
    assert_ready(&guard.background(as_user(folder, "datasetrt-mount"), &place.tiny.cache));
    let mut command = as_user(folder, "sleep");
    command.arg("60").current_dir(folder);
    // Opened by the user: root may not look into the mount.
    let line = format!(
        "exec sleep 60 <'{}'",
        guard.point.join(place.tiny.sample).display()
    );
    let mut shell = as_user(folder, "sh");
    shell.args(["-c", &line]);
    let reader = User::sleeping(shell);
    let umount = || {
        let mut command = as_user(folder, "datasetrt");
        finish(
            command
                .arg("umount")
                .arg(&guard.point)
                .stderr(Stdio::piped()),
        )
    };
    let output = umount();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let line = format!("process {} (sleep, user ", reader.0.id());
    assert!(text(&output).contains(&line), "{}", text(&output));
    // Root sees it too, though the mount does not let root in.
    let output = finish(
        tool()
            .arg("umount")
            .arg(&guard.point)
            .stderr(Stdio::piped()),
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains(&line), "{}", text(&output));
    drop(reader);
    assert!(within(|| umount().status.success()));
    assert!(guard.is_gone());
}

#[test]
fn a_mapped_file_keeps_the_mount_busy() {
    if !can_mount() {
        return;
    }
    let place = place();
    let guard = MountGuard::at(place.point("m"));
    assert_ready(&guard.background(program(), &place.tiny.cache));
    let line = "import mmap,os,sys,time\n\
                f=os.open(sys.argv[1],os.O_RDONLY)\n\
                m=mmap.mmap(f,0,prot=mmap.PROT_READ)\n\
                del f; os.closerange(3,256)\n\
                print('mapped',flush=True); time.sleep(60)";
    let child = Command::new("python3")
        .args(["-c", line])
        .arg(guard.point.join(place.tiny.sample))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("SKIPPED: no python3");
        return;
    };
    let mut word = [0; 7];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut word).unwrap();
    let user = User(child);
    let output = umount(&[], &guard.point);
    let line = format!("process {} (", user.0.id());
    let said = text(&output);
    let found = said.lines().find(|found| found.contains(&line));
    assert!(
        found.is_some_and(|line| line.contains("has mapped /")),
        "{said}"
    );
}
