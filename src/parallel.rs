//! Work on all cores.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Threads that help with loops now, in the whole process: a loop inside another one takes only what
/// that one leaves, so that all together are never more than there are cores.
static HELPERS: AtomicUsize = AtomicUsize::new(0);

/// Helpers of one loop; given back at its end.
struct Helpers(usize);

impl Helpers {
    /// As many as are free, at most `wanted`.
    fn take(wanted: usize) -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let free = |busy: usize| wanted.min((cores - 1).saturating_sub(busy));
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        let before = HELPERS.fetch_update(set, get, |busy| Some(busy + free(busy)));
        Self(before.map_or(0, free))
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        HELPERS.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Runs `work` for 0 up to `count` on all cores, of which this thread is one, and gives the results
/// in order. Where the system refuses threads, those that there are do it.
pub(crate) fn in_parallel<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let helpers = Helpers::take(count.saturating_sub(1));
    if helpers.0 == 0 {
        return (0..count).map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<T>>> = Mutex::new((0..count).map(|_| None).collect());
    let take_part = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= count {
                return;
            }
            let result = work(n);
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(slot) = results.get_mut(n) {
                *slot = Some(result);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..helpers.0 {
            let started = thread::Builder::new().spawn_scoped(scope, take_part);
            if started.is_err() {
                break;
            }
        }
        take_part();
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_however_many_there_are() {
        for count in [0, 1, 2, 3, 1000] {
            let squares = in_parallel(count, |n| n * n);
            assert_eq!(squares, (0..count).map(|n| n * n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn loops_inside_loops_have_no_more_threads_than_cores() {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let sums = in_parallel(100, |outer| {
            let parts = in_parallel(10, |inner| {
                let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                thread::yield_now();
                inside.fetch_sub(1, Ordering::SeqCst);
                outer + inner
            });
            parts.into_iter().sum::<usize>()
        });
        assert_eq!(sums.len(), 100);
        assert_eq!(sums[7], 115);
        assert!(most.into_inner() <= cores);
    }
}
