//! Telling whoever started us that the mount answers: `--ready-fd` and systemd's NOTIFY_SOCKET.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::storage::take_inherited;

/// What `--ready-fd` gets.
pub(super) const READY: &[u8] = b"READY=1\n";

/// The descriptor of `--ready-fd`.
pub(super) struct ReadyFd(File);

impl ReadyFd {
    /// Takes over descriptor `number`. To be called before anything else is opened, so that it cannot
    /// name a descriptor of our own.
    pub(super) fn adopt(number: i32) -> io::Result<Self> {
        Ok(Self(take_inherited(number)?.into()))
    }

    /// Says so and closes.
    pub(super) fn ready(mut self) {
        if let Err(error) = self.0.write_all(READY) {
            log::warn!("--ready-fd: {error}");
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
