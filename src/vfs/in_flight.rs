//! Which request each thread is at, and since when, so that one that hangs can be shown.
//!
//! A thread has a slot of atomics of its own for its life: a request takes no lock and allocates
//! nothing, and no two samples share anything.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{Ino, Node, Request, Vfs, VfsError};
use crate::error::cache_twice;
use crate::format::{INDEX_FILE, METADATA_FILE};

/// A request that takes longer is shown.
const LONG: Duration = Duration::from_secs(5);
/// No shard is known yet.
const NO_SHARD: u64 = u64::MAX;

thread_local! {
    /// This thread's slot in the list of the tree that it serves.
    static SLOT: RefCell<Option<Claim>> = const { RefCell::new(None) };
    /// Whether this thread is an event thread at a request.
    static EVENT: Cell<bool> = const { Cell::new(false) };
}

/// Which thread serves a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OnThread {
    /// One of the few that take requests from the kernel. What takes long ends with
    /// [`VfsError::TakesLong`] before anything is done, and is to be asked again on a worker.
    Event,
    /// One that has nothing else to do.
    Worker,
}

/// To be called before what takes long: ends a request that an event thread serves.
pub(super) fn takes_long() -> Result<(), VfsError> {
    if EVENT.get() {
        Err(VfsError::TakesLong)
    } else {
        Ok(())
    }
}

/// The requests of one tree.
#[derive(Debug)]
pub(super) struct InFlight {
    start: Instant,
    /// One for each thread that serves, or has served: they are used again.
    slots: Mutex<Vec<Arc<Slot>>>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    taken: AtomicBool,
    /// Milliseconds after the start, plus one; 0 while nothing is served.
    since: AtomicU64,
    request: AtomicUsize,
    ino: AtomicU64,
    /// The shard that the sample lies in, once its index row was read.
    shard: AtomicU64,
}

/// A thread's right to a slot, given back when the thread ends.
struct Claim(Arc<Slot>, Instant);

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}

/// A request that is being served, until dropped.
#[derive(Debug)]
pub struct Serving(Arc<Slot>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.since.store(0, Ordering::Release);
        EVENT.set(false);
    }
}

/// A request that takes long, as `/.control/status` shows it.
#[derive(Debug, Serialize)]
pub(super) struct SlowRequest {
    request: &'static str,
    inode: u64,
    seconds: u64,
    #[serde(flatten, serialize_with = "cache_twice")]
    cache_id: Option<u64>,
    sample: Option<u64>,
    /// What it waits for.
    file: Option<String>,
}

impl InFlight {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            slots: Mutex::default(),
        }
    }

    fn begin(&self, request: Request, ino: Ino) -> Serving {
        let slot = SLOT.with_borrow_mut(|claim| match claim {
            // A tree is known by its start.
            Some(Claim(slot, start)) if *start == self.start => Arc::clone(slot),
            _ => {
                let slot = self.claim();
                *claim = Some(Claim(Arc::clone(&slot), self.start));
                slot
            }
        });
        slot.request.store(request as usize, Ordering::Relaxed);
        slot.ino.store(ino.0, Ordering::Relaxed);
        slot.shard.store(NO_SHARD, Ordering::Relaxed);
        slot.since.store(self.now(), Ordering::Release);
        Serving(slot)
    }

    #[cold]
    fn claim(&self) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let free = |slot: &&Arc<Slot>| !slot.taken.swap(true, Ordering::AcqRel);
        if let Some(slot) = slots.iter().find(free) {
            return Arc::clone(slot);
        }
        let slot = Arc::new(Slot::default());
        slot.taken.store(true, Ordering::Release);
        slots.push(Arc::clone(&slot));
        slot
    }

    fn now(&self) -> u64 {
        let millis = self.start.elapsed().as_millis();
        u64::try_from(millis).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// The requests that have taken at least `long`: which, of which node, in which shard, how long.
    fn older_than(&self, long: Duration) -> Vec<(Request, Ino, Option<usize>, Duration)> {
        let now = self.now();
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let found = slots.iter().filter_map(|slot| {
            let since = slot.since.load(Ordering::Acquire);
            let age = Duration::from_millis(now.saturating_sub(since));
            let request = *Request::ALL.get(slot.request.load(Ordering::Relaxed))?;
            let ino = Ino(slot.ino.load(Ordering::Relaxed));
            let shard = slot.shard.load(Ordering::Relaxed);
            // One that ended meanwhile has left a mix.
            let same = since != 0 && slot.since.load(Ordering::Acquire) == since;
            let shard = usize::try_from(shard).ok().filter(|_| shard != NO_SHARD);
            (same && age >= long).then_some((request, ino, shard, age))
        });
        found.collect()
    }
}

/// Notes which node this thread's request has come to.
fn at(ino: Ino, shard: u64) {
    SLOT.with_borrow(|claim| {
        if let Some(Claim(slot, _)) = claim {
            slot.ino.store(ino.0, Ordering::Relaxed);
            slot.shard.store(shard, Ordering::Relaxed);
        }
    });
}

impl Vfs {
    /// Notes that this thread serves a request, for as long as what is returned lives.
    pub fn begin(&self, request: Request, ino: Ino, thread: OnThread) -> Serving {
        EVENT.set(thread == OnThread::Event);
        self.in_flight.begin(request, ino)
    }

    /// Notes that this thread's request needs the record of a sample.
    pub(super) fn at_sample(&self, slot: u64, sample: u64) {
        let ino = self.ino(Node::Sample(slot, sample));
        // Reading the row may hang, and is then what is waited for.
        at(ino, NO_SHARD);
        if let Some(mounted) = self.at_slot(slot)
            && let Ok(shard) = mounted.cache().shard_of(sample)
        {
            at(ino, shard as u64);
        }
    }

    /// The requests that take long, for `/.control/status`.
    pub(super) fn slow_requests(&self) -> Vec<SlowRequest> {
        let slow = self.in_flight.older_than(LONG).into_iter();
        slow.map(|(request, ino, shard, age)| {
            let (slot, sample, table) = match self.inodes.node(ino) {
                Some(Node::Sample(slot, sample)) => (Some(slot), Some(sample), INDEX_FILE),
                Some(Node::Metadata(slot)) => (Some(slot), None, METADATA_FILE),
                _ => (None, None, ""),
            };
            let mounted = slot.and_then(|slot| self.at_slot(slot));
            let file = mounted.map(|mounted| match shard {
                Some(shard) => mounted.cache().shard_path(shard),
                None => mounted.cache().dir().join(table),
            });
            SlowRequest {
                request: request.name(),
                inode: ino.0,
                seconds: age.as_secs(),
                cache_id: mounted.map(|mounted| mounted.entry.cache_id),
                sample,
                file: file.map(|file| file.to_string_lossy().into_owned()),
            }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_being_served_is_shown() {
        let requests = InFlight::new();
        let serving = requests.begin(Request::Read, Ino(77));
        at(Ino(78), 3);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| drop(requests.begin(Request::Lookup, Ino(5))));
            other.join().unwrap();
        });
        let shown = requests.older_than(Duration::ZERO);
        assert_eq!(shown.len(), 1);
        assert_eq!(
            (shown[0].0, shown[0].1, shown[0].2),
            (Request::Read, Ino(78), Some(3))
        );
        assert!(requests.older_than(Duration::from_secs(3600)).is_empty());
        drop(serving);
        assert!(requests.older_than(Duration::ZERO).is_empty());
    }

    #[test]
    fn slots_are_used_again_and_a_thread_may_serve_several_trees() {
        let (first, second) = (InFlight::new(), InFlight::new());
        for _ in 0..10 {
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    drop(first.begin(Request::Read, Ino(1)));
                    drop(second.begin(Request::Read, Ino(1)));
                });
                // The slot is free once the thread has gone, which the scope does not wait for.
                thread.join().unwrap();
            });
        }
        for requests in [first, second] {
            assert_eq!(requests.slots.lock().unwrap().len(), 1);
        }
    }
}
