//! A bound for the lines of the log that readers cause: whoever may read a damaged cache could fill the
//! disk with them. What is left out is counted, and the log says how many lines that were.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Vfs;

/// Lines of one kind about one cache in one interval.
const LINES: u64 = 50;
const INTERVAL: Duration = Duration::from_secs(10);

/// What a line is about.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum LineKind {
    Damaged,
    Healed,
    NotServed,
    Table,
}

impl LineKind {
    fn words(self) -> &'static str {
        match self {
            Self::Damaged => "damaged samples (.control/damaged lists them)",
            Self::Healed => "samples that are served again",
            Self::NotServed => "samples that there was no room for",
            Self::Table => "its metadata.arrow",
        }
    }
}

/// The lines of the present intervals, by cache slot and kind.
#[derive(Debug, Default)]
pub(super) struct LogLimit(Mutex<HashMap<(u64, LineKind), Lines>>);

#[derive(Debug)]
struct Lines {
    start: Instant,
    asked: u64,
}

impl LogLimit {
    fn lock(&self) -> MutexGuard<'_, HashMap<(u64, LineKind), Lines>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more line may be written.
    fn allows(&self, slot: u64, kind: LineKind, now: Instant) -> bool {
        let mut all = self.lock();
        let start = Lines {
            start: now,
            asked: 0,
        };
        let lines = all.entry((slot, kind)).or_insert(start);
        lines.asked = lines.asked.saturating_add(1);
        lines.asked <= LINES
    }

    /// Ends the intervals that are over: of what, and how many lines were left out.
    fn ended(&self, now: Instant) -> Vec<(u64, LineKind, u64)> {
        let mut ended = Vec::new();
        self.lock().retain(|(slot, kind), lines| {
            let goes_on = now.saturating_duration_since(lines.start) < INTERVAL;
            if !goes_on && lines.asked > LINES {
                ended.push((*slot, *kind, lines.asked - LINES));
            }
            goes_on
        });
        ended
    }
}

impl Vfs {
    /// Whether a line about a cache may be written.
    pub(super) fn may_log(&self, slot: u64, kind: LineKind) -> bool {
        self.log_limit.allows(slot, kind, Instant::now())
    }

    /// Says how many lines were left out; to be called every few seconds.
    pub(super) fn tell_left_out(&self, now: Instant) {
        for (slot, kind, lines) in self.log_limit.ended(now) {
            let id = self.at_slot(slot).map_or(slot, |m| m.entry.cache_id);
            log::warn!(
                "cache {id}: {lines} more lines about {} were left out",
                kind.words()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cache_and_kind_has_so_many_lines_an_interval_and_the_rest_is_counted() {
        let (limit, start) = (LogLimit::default(), Instant::now());
        let allowed = |slot, kind, now| {
            let lines = (0..1000).filter(|_| limit.allows(slot, kind, now));
            lines.count() as u64
        };
        assert_eq!(allowed(0, LineKind::Damaged, start), LINES);
        assert_eq!(allowed(0, LineKind::Healed, start), LINES);
        assert_eq!(allowed(1, LineKind::Damaged, start), LINES);
        assert!(limit.allows(2, LineKind::Damaged, start));
        assert_eq!(limit.ended(start), []);
        let later = start + INTERVAL;
        assert_eq!(limit.ended(later).len(), 3);
        assert_eq!(limit.ended(later), []);
        assert_eq!(allowed(0, LineKind::Damaged, later), LINES);
        let left_out = [(0, LineKind::Damaged, 1000 - LINES)];
        assert_eq!(limit.ended(later + INTERVAL), left_out);
    }
}
