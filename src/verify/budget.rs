//! A bound on the bytes of large payloads that are decoded at the same time.

use std::sync::{Condvar, Mutex, PoisonError};

/// Bytes that large payloads may have decoded together. A larger one is decoded piece by piece.
const TOTAL: u64 = 256 << 20;
/// Payloads up to this size are not counted: one per thread is little.
pub(super) const SMALL: u64 = 4 << 20;

/// Where the memory for large payloads comes from.
pub trait Memory: Sync {
    /// Waits until `len` more bytes may be held, and takes them until what is returned is dropped.
    /// `None` when that is more than may ever be held.
    fn take(&self, len: u64) -> Option<Box<dyn Held + '_>>;
}

/// Bytes that were taken; dropping it gives them back.
pub trait Held {}

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
}

impl Memory for Budget {
    fn take(&self, len: u64) -> Option<Box<dyn Held + '_>> {
        if len > TOTAL {
            return None;
        }
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        while *left < len {
            left = self
                .returned
                .wait(left)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *left -= len;
        drop(left);
        Some(Box::new(Share { budget: self, len }))
    }
}

/// Gives its bytes back when dropped.
struct Share<'a> {
    budget: &'a Budget,
    len: u64,
}

impl Held for Share<'_> {}

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
