//! fusermount3: the set-user-id program by which an ordinary user mounts and unmounts.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

use super::mountpoint::{Mountpoint, by_descriptor};
use super::{MountOptions, SUBTYPE, Unmount};
use crate::error::{Error, Result};

const NAMES: [&str; 2] = ["fusermount3", "fusermount"];
/// What it reads.
pub const CONFIG: &str = "/etc/fuse.conf";
const ALLOW_OTHER: &str = "user_allow_other";

/// Where to look beside PATH, which daemons and cron jobs often have short.
const FOLDERS: [&str; 6] = [
    "/bin",
    "/usr/bin",
    "/sbin",
    "/usr/sbin",
    "/usr/local/bin",
    "/run/wrappers/bin",
];

/// Checks that the program is there and will do what is asked.
pub(super) fn check(allow_other: bool) -> Result<()> {
    find()?;
    // A file that cannot be read is left for fusermount3, which may read more, to judge.
    if !allow_other || others_allowed() != Some(false) {
        return Ok(());
    }
    let reason = format!(
        "allow_other is not permitted to ordinary users here: \
         add the line `{ALLOW_OTHER}` to {CONFIG} (as root), or leave --allow-other out"
    );
    Err(Error::refused(CONFIG, reason))
}

/// Whether ordinary users may let other users into their mounts; `None` where only fusermount3 can tell.
#[must_use]
pub fn others_allowed() -> Option<bool> {
    let config = match fs::read(CONFIG) {
        Ok(config) => config,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(_) => return None,
    };
    let mut lines = config.split(|byte| *byte == b'\n');
    Some(lines.any(|line| line.trim_ascii() == ALLOW_OTHER.as_bytes()))
}

/// Mounts, and receives the connection over a socket that the program has as its standard input.
/// The program is started in the directory that it mounts on, so that it finds this one, wherever it
/// is by then.
pub(super) fn mount(at: &Mountpoint, options: &MountOptions) -> Result<OwnedFd> {
    let program = find()?;
    let mountpoint = at.path();
    let failed =
        |error: rustix::io::Errno| Error::io(&program, "receive the connection", error.into());
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(failed)?;
    let access = if options.read_only { "ro" } else { "rw" };
    let words = format!("{access},nosuid,nodev,default_permissions,subtype={SUBTYPE}");
    let mut words = OsString::from(words);
    if options.allow_other {
        words.push(",allow_other");
    }
    if options.noexec {
        words.push(",noexec");
    }
    words.push(",fsname=");
    words.push(escaped(&options.source));
    let mut command = Command::new(&program);
    command
        .arg("-o")
        .arg(words)
        .arg("--")
        .arg(".")
        .current_dir(by_descriptor(at.directory()))
        .stdin(theirs)
        .env("_FUSE_COMMFD", "0")
        .env_remove("NOTIFY_SOCKET");
    let output = run(&mut command, &program)?;
    // The command holds the other end: without it the receive below ends when nothing was sent.
    drop(command);
    if !output.status.success() {
        return Err(refused(mountpoint, "mount", &program, &output));
    }
    let mut byte = [0_u8; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(
        &ours,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )
    .map_err(failed)?;
    let received = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    received.ok_or_else(|| refused(mountpoint, "mount", &program, &output))
}

/// `source` as the program takes it: a backslash before each comma and backslash.
fn escaped(source: &OsStr) -> OsString {
    let mut escaped = Vec::with_capacity(source.len());
    for byte in source.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            escaped.push(b'\\');
        }
        escaped.push(*byte);
    }
    OsString::from_vec(escaped)
}

pub(super) fn unmount(mountpoint: &Path, lazy: bool) -> Result<Unmount> {
    let program = find()?;
    let mut command = Command::new(&program);
    command.arg("-u").args(lazy.then_some("-z"));
    command.arg("--").arg(mountpoint).stdin(Stdio::null());
    // What the system says in its own words, not in those of the user's language.
    command.env("LC_ALL", "C");
    // A folder that a user may enter: the program changes to it before it looks at the mountpoint.
    command.current_dir("/");
    let output = run(&mut command, &program)?;
    if output.status.success() {
        return Ok(Unmount::Done);
    }
    if String::from_utf8_lossy(&output.stderr).contains("Device or resource busy") {
        return Ok(Unmount::Busy);
    }
    Err(refused(mountpoint, "unmount", &program, &output))
}

fn run(command: &mut Command, program: &Path) -> Result<Output> {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .map_err(|source| Error::io(program, "run", source))
}

fn refused(mountpoint: &Path, action: &str, program: &Path, output: &Output) -> Error {
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim();
    let program = program.display();
    let mut said = if said.is_empty() {
        format!("{program}: {}", output.status)
    } else {
        said.to_owned()
    };
    if said.contains("Permission denied") {
        said.push_str("; AppArmor may be why: its profile for fusermount3 lets users mount below");
        said.push_str(" their home, /mnt, /media, /tmp and /run/user only");
        said.push_str(" (add other places to /etc/apparmor.d/local/fusermount3)");
    }
    Error::refused(mountpoint, format!("cannot {action}: {said}"))
}

/// Where the program is.
///
/// # Errors
/// When it is not installed.
pub fn find() -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .chain(FOLDERS.map(PathBuf::from))
        .collect();
    NAMES
        .iter()
        .flat_map(|name| {
            folders
                .iter()
                .map(move |folder| folder.join(OsStr::new(name)))
        })
        .find(|file| is_program(file))
        .ok_or_else(|| {
            let reason =
                "not found: install fuse3 (apt install fuse3, dnf install fuse3), or mount as root";
            Error::refused("fusermount3", reason)
        })
}

fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
