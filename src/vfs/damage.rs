//! The samples that could not be served, each once, for the log and for `/.control/damaged`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// More damaged samples than this are counted but not listed.
pub(super) const MOST_LISTED: usize = 10_000;

/// Damaged samples of a mount, by cache slot and sample.
#[derive(Debug, Default)]
pub(super) struct Damage {
    listed: Mutex<BTreeMap<(u64, u64), String>>,
    /// Zero as long as nothing is damaged, so that good reads need no lock.
    known: AtomicU64,
    unlisted: AtomicU64,
    /// Grows with each change of the list.
    changes: AtomicU64,
}

impl Damage {
    /// Notes a failed sample and says whether it was not known before.
    pub(super) fn note(&self, slot: u64, sample: u64, message: String) -> bool {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = listed.get_mut(&(slot, sample)) {
            *known = message;
            return false;
        }
        if listed.len() >= MOST_LISTED {
            self.unlisted.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        listed.insert((slot, sample), message);
        self.known.store(listed.len() as u64, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The samples of one cache that are listed.
    pub(super) fn samples(&self, slot: u64) -> Vec<u64> {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let range = listed.range((slot, 0)..=(slot, u64::MAX));
        range.map(|((_, sample), _)| *sample).collect()
    }

    /// Takes a sample from the list, and says whether it was there.
    pub(super) fn heal(&self, slot: u64, sample: u64) -> bool {
        if self.known.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let was_listed = listed.remove(&(slot, sample)).is_some();
        if was_listed {
            self.known.store(listed.len() as u64, Ordering::Relaxed);
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        was_listed
    }

    /// A number that differs after each change of the list.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Failed reads of samples that the full list had no room for.
    pub(super) fn unlisted(&self) -> u64 {
        self.unlisted.load(Ordering::Relaxed)
    }

    /// How many samples of one cache are listed.
    pub(super) fn count(&self, slot: u64) -> u64 {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.range((slot, 0)..=(slot, u64::MAX)).count() as u64
    }

    /// Calls `take` with slot, sample and message of each listed sample, in order.
    pub(super) fn for_each(&self, mut take: impl FnMut(u64, u64, &str)) {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        for ((slot, sample), message) in listed.iter() {
            take(*slot, *sample, message);
        }
    }
}
