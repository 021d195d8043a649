//! Views that nobody uses are dropped, and built again when somebody does.

use std::sync::atomic::Ordering;

use super::Views;
use crate::vfs::Vfs;

/// Most bytes of views that nobody used in the last minute; at most a quarter of the memory for samples.
/// Four times as many may be held by views that are in use.
const MAX_MEMORY: u64 = 32 << 20;
/// Ticks of [`Vfs::tidy`]: one minute and ten.
const RECENT: u64 = 12;
const IDLE: u64 = 120;

/// Bytes that views may hold, by the memory for samples.
pub(super) fn budget(cache_memory: u64) -> usize {
    usize::try_from(MAX_MEMORY.min(cache_memory / 4)).unwrap_or(usize::MAX)
}

impl Vfs {
    /// Drops views that nobody uses; to be called every few seconds.
    pub(in crate::vfs) fn evict_views(&self) -> bool {
        let now = self.views.clock.fetch_add(1, Ordering::Relaxed);
        let idle = self.views.evict_idle(now.saturating_sub(IDLE));
        self.views.evict_beyond(self.views.budget, RECENT, u32::MAX) || idle
    }
}

impl Views {
    pub(super) fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// A number that grows with each view that is built or dropped.
    pub(in crate::vfs) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    pub(super) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether views may be dropped: while a table is not trusted, they could not be built again.
    fn can_evict(&self) -> bool {
        self.corpus.untrusted().is_empty()
    }

    /// Drops what was not used since `since`, and says whether there was any.
    fn evict_idle(&self, since: u64) -> bool {
        let mut any = false;
        for shown in &self.list {
            if shown.index.held().is_some_and(|(used, _)| used < since) && self.can_evict() {
                shown.index.evict();
                self.note_change();
                any = true;
            }
        }
        any
    }

    /// Drops views until at most `budget` bytes are held, those first that were not used for longest,
    /// and none that was used in the last `recent` ticks or is the view `but`.
    fn evict_beyond(&self, budget: usize, recent: u64, but: u32) -> bool {
        let held = || {
            let list = (0_u32..).zip(&self.list);
            list.filter_map(|(n, shown)| Some((n, shown, shown.index.held()?)))
        };
        let mut sum: usize = held().map(|(_, _, (_, len))| len).sum();
        if sum <= budget || !self.can_evict() {
            return false;
        }
        let before = self.now().saturating_sub(recent);
        let mut old: Vec<_> = held()
            .filter(|(n, _, (used, _))| *n != but && (recent == 0 || *used < before))
            .collect();
        old.sort_by_key(|(_, _, (used, _))| *used);
        let mut any = false;
        for (_, shown, (_, len)) in old {
            if sum <= budget {
                break;
            }
            shown.index.evict();
            self.note_change();
            sum = sum.saturating_sub(len);
            any = true;
        }
        any
    }

    /// Drops others than the view `built`, which has come just now, when all together are far too many
    /// bytes.
    pub(super) fn evict_others(&self, built: u32) {
        self.evict_beyond(self.budget.saturating_mul(4), 0, built);
    }
}
