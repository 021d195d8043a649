//! Standard error of a daemon: a reader that has stopped reading is not waited for.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

/// Whether this process serves others, who must not wait for a reader of its log.
static IS_BOUNDED: AtomicBool = AtomicBool::new(false);
/// Lines that nobody read.
static LOST: AtomicU64 = AtomicU64::new(0);

/// How long the first line waits for a reader that does not read; the ones after it do not wait.
const PATIENCE: Duration = Duration::from_millis(500);
/// What a pipe takes in one piece when it takes anything.
const PIECE: usize = 4096;

/// From now on lines on standard error are lost rather than waited for.
pub(super) fn bound() {
    IS_BOUNDED.store(true, Ordering::Relaxed);
}

/// Standard error.
#[derive(Debug, Default)]
pub(super) struct Stderr;

impl Write for Stderr {
    /// Writes all of `text`, or loses it.
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if !IS_BOUNDED.load(Ordering::Relaxed) {
            return io::stderr().write(text);
        }
        let lost = LOST.load(Ordering::Relaxed);
        let patience = if lost == 0 { PATIENCE } else { Duration::ZERO };
        let told = lost == 0 || {
            let line = format!("({lost} lines of the log were lost: nobody read them)\n");
            write_within(line.as_bytes(), patience).is_ok()
        };
        if told && write_within(text, patience).is_ok() {
            LOST.fetch_sub(lost, Ordering::Relaxed);
        } else {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_within(mut text: &[u8], patience: Duration) -> io::Result<()> {
    let stderr = rustix::stdio::stderr();
    let timeout = Timespec::try_from(patience).map_err(io::Error::other)?;
    while !text.is_empty() {
        let mut asked = [PollFd::new(&stderr, PollFlags::OUT)];
        match poll(&mut asked, Some(&timeout)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let piece = text.get(..PIECE).unwrap_or(text);
        let written = match send(stderr, piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Err(Errno::NOTSOCK) => rustix::io::write(stderr, piece),
            result => result,
        };
        match written {
            Ok(len) => text = text.get(len..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
