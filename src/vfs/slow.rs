//! The reads of samples that took longest in the last minutes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Samples that are listed.
const LISTED: usize = 10;
/// A read that took no longer is never listed.
const QUICK: Duration = Duration::from_millis(1);
/// After this long a read is forgotten.
const REMEMBERED: Duration = Duration::from_secs(600);

/// The slowest reads, each sample once.
#[derive(Debug)]
pub(super) struct SlowReads {
    /// A read that took no more nanoseconds is not listed, so that nearly all need no lock.
    floor: AtomicU64,
    listed: Mutex<Vec<SlowRead>>,
}

/// One slow read.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlowRead {
    /// Cache slot and number of the sample.
    pub(super) sample: (u64, u64),
    pub(super) took: Duration,
    at: Instant,
}

impl Default for SlowReads {
    fn default() -> Self {
        Self {
            floor: AtomicU64::new(nanos(QUICK)),
            listed: Mutex::default(),
        }
    }
}

impl SlowReads {
    /// Whether a read that took this long is to be noted.
    pub(super) fn is_slow(&self, took: Duration) -> bool {
        nanos(took) > self.floor.load(Ordering::Relaxed)
    }

    pub(super) fn note(&self, sample: (u64, u64), took: Duration, now: Instant) {
        let read = SlowRead {
            sample,
            took,
            at: now,
        };
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        match listed.iter_mut().find(|read| read.sample == sample) {
            Some(known) if known.took < took => *known = read,
            Some(_) => {}
            None => listed.push(read),
        }
        listed.sort_by_key(|read| std::cmp::Reverse(read.took));
        listed.truncate(LISTED);
        self.set_floor(&listed);
    }

    /// Forgets reads of long ago.
    pub(super) fn forget_old(&self, now: Instant) {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.retain(|read| now.saturating_duration_since(read.at) < REMEMBERED);
        self.set_floor(&listed);
    }

    /// The slowest first.
    pub(super) fn listed(&self) -> Vec<SlowRead> {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.clone()
    }

    fn set_floor(&self, listed: &[SlowRead]) {
        let full = listed.get(LISTED - 1);
        let floor = full.map_or(nanos(QUICK), |quickest| nanos(quickest.took));
        self.floor.store(floor, Ordering::Relaxed);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_reads_are_listed_each_sample_once() {
        let (slow, now) = (SlowReads::default(), Instant::now());
        let millis = Duration::from_millis;
        assert!(!slow.is_slow(QUICK) && slow.is_slow(millis(2)));
        for n in 0..30 {
            slow.note((0, n), millis(2 + n), now);
        }
        slow.note((0, 29), millis(100), now);
        slow.note((0, 28), millis(3), now);
        let samples: Vec<_> = slow.listed().iter().map(|read| read.sample.1).collect();
        assert_eq!(samples, [29, 28, 27, 26, 25, 24, 23, 22, 21, 20]);
        assert_eq!(slow.listed()[0].took, millis(100));
        assert!(!slow.is_slow(millis(22)) && slow.is_slow(millis(23)));
        slow.forget_old(now + REMEMBERED);
        assert!(slow.listed().is_empty() && slow.is_slow(millis(2)));
    }
}
