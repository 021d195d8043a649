//! Telling whoever started us that the mount answers: `--ready-fd` and systemd's NOTIFY_SOCKET.

use std::env;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// What `--ready-fd` gets.
pub(super) const READY: &[u8] = b"READY=1\n";

/// The descriptor of `--ready-fd`.
pub(super) struct ReadyFd(File);

impl ReadyFd {
    /// Takes over descriptor `number`. To be called before anything else is opened, so that it cannot
    /// name a descriptor of our own.
    pub(super) fn adopt(number: i32) -> io::Result<Self> {
        // The standard ones stay open: others use them too.
        let standard = match number {
            0 => Some(io::stdin().as_fd().try_clone_to_owned()?),
            1 => Some(io::stdout().as_fd().try_clone_to_owned()?),
            2 => Some(io::stderr().as_fd().try_clone_to_owned()?),
            _ => None,
        };
        if let Some(copy) = standard {
            return Ok(Self(copy.into()));
        }
        let copy = duplicate(number)?;
        nix::unistd::close(number)?;
        Ok(Self(copy.into()))
    }

    /// Says so and closes.
    pub(super) fn ready(mut self) {
        if let Err(error) = self.0.write_all(READY) {
            log::warn!("--ready-fd: {error}");
        }
    }
}

/// A copy of descriptor `number`, closed on exec. Sockets cannot be opened through /proc.
fn duplicate(number: i32) -> io::Result<OwnedFd> {
    match OpenOptions::new()
        .append(true)
        .open(format!("/proc/self/fd/{number}"))
    {
        Ok(file) => Ok(file.into()),
        Err(_) => {
            let this = pidfd_open(getpid(), PidfdFlags::empty())?;
            Ok(pidfd_getfd(this, number, PidfdGetfdFlags::empty())?)
        }
    }
}

/// Sends `state` to the service manager, when one listens.
pub(super) fn notify_manager(state: &str) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else {
        return;
    };
    if let Err(error) = send(&socket, state) {
        log::warn!("NOTIFY_SOCKET {}: {error}", socket.display());
    }
}

fn send(socket: &OsString, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?
        .send_to_addr(state.as_bytes(), &address)
        .map(drop)
}
