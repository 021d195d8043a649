//! Samples that there was no room for, so that the log has a line of each and not of each read.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A sample that fails again after this time is news.
const QUIET: Duration = Duration::from_secs(60);
/// More samples than this are not logged in that time.
const MOST: usize = 256;

/// What was logged lately: cache slot and sample.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<HashMap<(u64, u64), Instant>>);

impl Refusals {
    /// Whether the log should have it.
    pub(super) fn is_news(&self, sample: (u64, u64), now: Instant) -> bool {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = |at: &Instant| now.saturating_duration_since(*at) < QUIET;
        if logged.get(&sample).is_some_and(recent) {
            return false;
        }
        if logged.len() >= MOST {
            logged.retain(|_, at| recent(at));
        }
        if logged.len() >= MOST {
            return false;
        }
        logged.insert(sample, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_news_once_in_a_while_and_few_are_at_once() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        assert!(refusals.is_news((0, 1), now));
        assert!(!refusals.is_news((0, 1), now));
        let news = (0..2000).filter(|n| refusals.is_news((1, *n), now));
        assert_eq!(news.count(), MOST - 1);
        assert!(refusals.is_news((0, 1), now + QUIET));
    }
}
