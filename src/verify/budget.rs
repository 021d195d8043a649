//! A bound on the bytes of large payloads that are decoded at the same time.

use std::sync::{Condvar, Mutex, PoisonError};

/// Bytes that large payloads may have decoded together. A larger one is decoded alone.
const TOTAL: u64 = 256 << 20;
/// Payloads up to this size are not counted: one per thread is little.
const SMALL: u64 = 4 << 20;

/// What is left of the bound.
#[derive(Debug)]
pub(super) struct Budget {
    left: Mutex<u64>,
    returned: Condvar,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self {
            left: Mutex::new(TOTAL),
            returned: Condvar::new(),
        }
    }

    /// Runs `work` once `len` bytes may be held.
    pub(super) fn with<T>(&self, len: u64, work: impl FnOnce() -> T) -> T {
        if len <= SMALL {
            return work();
        }
        let len = len.min(TOTAL);
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        while *left < len {
            left = self
                .returned
                .wait(left)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *left -= len;
        drop(left);
        let _share = Share { budget: self, len };
        work()
    }
}

/// Gives its bytes back when dropped.
struct Share<'a> {
    budget: &'a Budget,
    len: u64,
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut left = self
            .budget
            .left
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *left += self.len;
        self.budget.returned.notify_all();
    }
}
