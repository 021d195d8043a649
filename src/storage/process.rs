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
