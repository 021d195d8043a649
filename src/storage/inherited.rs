//! Descriptors that whoever started this process opened for it.

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// The number of standard descriptors, which others use too.
const STANDARD: RawFd = 3;

/// Takes over the inherited descriptor `number`: it is not passed on to programs that this one runs.
/// Of a standard descriptor a copy is taken. To be called before anything else is opened, so that
/// `number` cannot name a descriptor of our own.
///
/// # Errors
/// When no such descriptor is open.
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    // A copy, because `number` itself is nobody's: it need not even be open.
    // SAFETY: fcntl with F_DUPFD_CLOEXEC touches no memory of ours and accepts any number.
    #[allow(unsafe_code)]
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, STANDARD) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened `copy` for us, so nobody else owns it.
    #[allow(unsafe_code)]
    let copy = unsafe { OwnedFd::from_raw_fd(copy) };
    if number >= STANDARD {
        nix::unistd::close(number)?;
    }
    Ok(copy)
}

/// Keeps all inherited descriptors but the standard ones and `kept` from programs that this process
/// runs.
///
/// # Errors
/// When they cannot be listed.
pub fn pass_on_only(kept: &[RawFd]) -> io::Result<()> {
    for entry in fs::read_dir("/proc/self/fd")? {
        let number = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let Some(number) = number.filter(|number| *number >= STANDARD) else {
            continue;
        };
        if !kept.contains(&number) {
            // Closed since, as that of the listing, or marked.
            // SAFETY: fcntl with F_SETFD touches no memory of ours and accepts any number.
            #[allow(unsafe_code)]
            let _ = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}
