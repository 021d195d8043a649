//! The background mount: two halves of one program and the socket between them.
//!
//! The half that the user started runs the program again with a socket as its standard output and
//! waits. The other half keeps stderr until the mount answers, so what goes wrong reads as with `-f`.
//! Then it lets go of the terminal, says so, and stays only if the first half has heard it.

use std::env;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::cli::EXIT_REFUSED;
use crate::storage::pass_on_only;

const NULL: &str = "/dev/null";
const THIS_PROGRAM: &str = "/proc/self/exe";
const READY: u8 = b'R';
const HEARD: u8 = b'H';

/// How long the first half may take to hear us. It does nothing but wait for it.
const HEARING: Duration = Duration::from_secs(10);

/// Runs the other half and waits until its mount answers. A `ready_fd` of 1 is ours to write to: the
/// other half has another standard output.
/// Of the descriptors that this process inherited it passes on `given` alone: the others' holders wait
/// for their end.
pub(super) fn launch(
    command_line: &[OsString],
    ready_fd: Option<i32>,
    given: &[i32],
) -> io::Result<ExitCode> {
    pass_on_only(given)?;
    let (mut ours, theirs) = UnixStream::pair()?;
    let (name, rest) = command_line
        .split_first()
        .ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(THIS_PROGRAM);
    command
        .arg0(name)
        .arg("--background-half")
        .args(rest)
        .stdout(OwnedFd::from(theirs));
    let mut child = command.spawn()?;
    // Holds a copy of the other end, which would keep the read below from ending.
    drop(command);
    let mut word = [0_u8];
    if ours.read_exact(&mut word).is_ok() && word == [READY] && ours.write_all(&[HEARD]).is_ok() {
        if ready_fd == Some(1) {
            io::stdout().write_all(super::ready::READY)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    Ok(exit_code(child.wait()?))
}

/// The code that a shell would show for `status`, but never success: the mount did not get ready.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    match code.and_then(|code| u8::try_from(code).ok()) {
        Some(code) if code != 0 => ExitCode::from(code),
        _ => ExitCode::from(EXIT_REFUSED),
    }
}

/// The background half's end.
pub(super) struct Launcher {
    socket: UnixStream,
    heard: Receiver<()>,
}

impl Launcher {
    /// Takes the socket from standard output, and from now on ends this process, by the signal that
    /// also unmounts, when the first half goes away before it has heard that the mount is ready.
    pub(super) fn connect() -> io::Result<Self> {
        let socket = UnixStream::from(io::stdout().as_fd().try_clone_to_owned()?);
        socket.peer_addr()?;
        dup2_stdout(open_null()?)?;
        // The name that `ps` shows comes from the path by which we were run.
        rustix::thread::set_name(c"datasetrt-mount")?;
        let (sender, heard) = mpsc::channel();
        let mut ear = socket.try_clone()?;
        thread::Builder::new()
            .name("launcher".to_owned())
            .spawn(move || {
                let mut word = [0_u8];
                if ear.read_exact(&mut word).is_ok() && word == [HEARD] {
                    // Nobody listens when the mount failed meanwhile.
                    let _ = sender.send(());
                } else if let Err(error) = kill_process(getpid(), Signal::TERM) {
                    log::error!("cannot end after the launching process did: {error}");
                }
            })?;
        Ok(Self { socket, heard })
    }

    /// What becomes of standard error: the log, or nothing.
    pub(super) fn open_log(log_file: Option<&Path>) -> io::Result<File> {
        match log_file {
            Some(file) => OpenOptions::new().append(true).open(file),
            None => open_null(),
        }
    }

    /// Lets go of the terminal and the folder, and tells the first half that the mount is ready. From
    /// now on standard error is `log`.
    pub(super) fn detach(mut self, log: &File) -> io::Result<()> {
        setsid()?;
        env::set_current_dir("/")?;
        dup2_stdin(open_null()?)?;
        dup2_stderr(log)?;
        self.socket.write_all(&[READY])?;
        self.heard
            .recv_timeout(HEARING)
            .map_err(|_| io::Error::other("the launching process is gone"))
    }
}

fn open_null() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(NULL)
}
