//! This process as the system sees it.

use std::fs;

/// Memory that this process has in use, in bytes, with the pages of files that it has mapped.
#[must_use]
pub fn resident_memory() -> Option<u64> {
    let sizes = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = sizes.split(' ').nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}

/// From now on a file that may not grow further (`ulimit -f`) is an error of the write. The signal that
/// comes with it would end the process.
pub fn ignore_file_size_signal() {
    // SAFETY: SIG_IGN is no handler that could be called, and no other thread has to agree.
    #[allow(unsafe_code)]
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Undoes what the process that started this one did to signals: none is blocked, and children that have
/// ended are waited for. Signals that it ignores (nohup) stay ignored. To be called before other threads
/// are started.
pub fn hear_signals() {
    // SAFETY: SIG_DFL is no handler that could be called. The set is a plain value, which sigemptyset
    // fills before it is read.
    #[allow(unsafe_code)]
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_in_use_is_in_use() {
        let used = vec![1_u8; 64 << 20];
        let resident = resident_memory().unwrap();
        assert!(resident >= used.len() as u64, "{resident}");
        assert!(used.iter().all(|byte| *byte == 1));
    }
}
