//! Lengths of payloads that were read from their records before, four bytes a sample: a second
//! listing of a large cache does not touch its shards again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Samples that get their memory together, at the first of them that is seen.
const BLOCK: usize = 4096;

/// What stands for a length: one that is not known, one of nothing, and one that does not fit.
const UNKNOWN: u32 = 0;
const EMPTY: u32 = u32::MAX;
const LARGE: u32 = u32::MAX - 1;

type Block = Box<[AtomicU32]>;

/// The lengths seen so far. Grows with the samples seen, to four bytes for each sample of the cache and
/// some more for each of 4 GiB.
#[derive(Debug)]
pub(super) struct Sizes {
    blocks: Box<[OnceLock<Block>]>,
    /// Those that do not fit.
    large: Mutex<HashMap<u64, u64>>,
}

impl Sizes {
    /// Without memory for `count` samples yet.
    pub(super) fn new(count: u64) -> Self {
        let blocks = usize::try_from(count.div_ceil(BLOCK as u64)).unwrap_or(0);
        Self {
            blocks: (0..blocks).map(|_| OnceLock::new()).collect(),
            large: Mutex::default(),
        }
    }

    /// The length of the sample's payload in bytes, if it was noted.
    pub(super) fn get(&self, sample: u64) -> Option<u64> {
        let (block, at) = place(sample)?;
        let len = self.blocks.get(block)?.get()?.get(at)?;
        match len.load(Ordering::Acquire) {
            UNKNOWN => None,
            EMPTY => Some(0),
            LARGE => self.large().get(&sample).copied(),
            len => Some(u64::from(len)),
        }
    }

    /// Notes the length of the sample's payload in bytes.
    pub(super) fn note(&self, sample: u64, len: u64) {
        let code = match u32::try_from(len) {
            Ok(0) => EMPTY,
            Ok(len) if len < LARGE => len,
            _ => LARGE,
        };
        let Some((block, at)) = place(sample) else {
            return;
        };
        let Some(block) = self.blocks.get(block) else {
            return;
        };
        let block = block.get_or_init(|| (0..BLOCK).map(|_| AtomicU32::new(UNKNOWN)).collect());
        if let Some(place) = block.get(at) {
            if code == LARGE {
                self.large().insert(sample, len);
            }
            place.store(code, Ordering::Release);
        }
    }

    fn large(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.large.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the length of the sample's payload unknown again.
    pub(super) fn forget(&self, sample: u64) {
        let known = place(sample).and_then(|(block, at)| self.blocks.get(block)?.get()?.get(at));
        if let Some(known) = known {
            known.store(UNKNOWN, Ordering::Relaxed);
        }
    }
}

fn place(sample: u64) -> Option<(usize, usize)> {
    let sample = usize::try_from(sample).ok()?;
    Some((sample / BLOCK, sample % BLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_kept_by_sample_and_memory_is_taken_where_it_is_used() {
        let sizes = Sizes::new(2 * BLOCK as u64 + 1);
        let last = 2 * BLOCK as u64;
        assert_eq!(sizes.get(last), None);
        sizes.note(last, 7);
        sizes.note(last - 1, u64::from(u32::MAX));
        assert_eq!(sizes.get(last), Some(7));
        assert_eq!(sizes.get(last - 1), Some(u64::from(u32::MAX)));
        assert!(sizes.blocks[0].get().is_none());
    }

    #[test]
    fn every_length_is_kept() {
        let sizes = Sizes::new(1);
        let odd = [LARGE - 1, LARGE, EMPTY].map(u64::from);
        for len in odd.into_iter().chain([0, 1, 1 << 32, u64::MAX, 7]) {
            sizes.note(0, len);
            assert_eq!(sizes.get(0), Some(len));
        }
        sizes.forget(0);
        assert_eq!(sizes.get(0), None);
        sizes.note(u64::MAX, 1);
        assert_eq!(sizes.get(u64::MAX), None, "there is no such sample");
    }
}
