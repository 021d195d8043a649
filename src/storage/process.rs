//! This process as the system sees it.

use std::fs;

/// Memory that this process has in use, in bytes, with the pages of files that it has mapped.
#[must_use]
pub fn resident_memory() -> Option<u64> {
    let sizes = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = sizes.split(' ').nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
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
