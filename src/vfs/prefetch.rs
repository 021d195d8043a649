//! `/.control/prefetch`: samples are read ahead and decoded in the order in which somebody says that
//! they will be read.
//!
//! A few threads keep a window of samples ready that nobody has read yet. A read of one makes room
//! for the next; one that nobody reads makes room too after a while. Compressed samples are decoded
//! into the mount's payloads, whose budget holds for them as for all; others are read into the
//! kernel's pages by the kernel.

mod list;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::payloads::{ENTRY, IDLE, Key};
use super::{Ino, Node, Vfs};
use crate::error::Result;
use crate::format::record::Compression;
use list::Unfinished;

/// Samples that may wait; they take 8 bytes each.
const MOST_PENDING: usize = 4 << 20;
/// Bytes that are kept ready; half of the payloads' budget, where that is less.
const WINDOW: u64 = 128 << 20;
/// Samples that were read last, which are not read ahead: whoever reads may be faster than we are.
const RECENT: usize = 4096;
/// Threads that read ahead.
const MOST_THREADS: usize = 4;
/// How long a thread waits for room before it looks whether the mount is still there.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is to be read ahead, and what was.
#[derive(Debug)]
pub(super) struct Prefetch {
    /// False as long as nothing is pending or ready, so that reads need no lock.
    active: AtomicBool,
    state: Mutex<State>,
    /// Signalled when there is room in the window.
    room: Condvar,
    window: u64,
}

#[derive(Debug)]
struct State {
    pending: VecDeque<Ino>,
    /// Samples that are being read ahead (0 bytes) or ready, and since when.
    ahead: HashMap<Ino, (u64, Instant)>,
    ahead_bytes: u64,
    recent: Recent,
    threads: usize,
    unfinished: Option<Unfinished>,
    progress: Progress,
    /// What came of the last write, and when.
    said: Arc<[u8]>,
    changed: SystemTime,
}

/// Samples since the start of the mount.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Taken from lists.
    pub(super) accepted: u64,
    /// Made ready.
    pub(super) read_ahead: u64,
    /// Made ready, and read then.
    pub(super) used: u64,
    /// Made ready, and not read in time.
    pub(super) unused: u64,
    /// Not read ahead, since they had been read or were ready.
    pub(super) skipped: u64,
    /// Damaged.
    pub(super) failed: u64,
    /// Still waiting.
    pub(super) pending: usize,
    /// Ready now, and their bytes.
    pub(super) ahead: usize,
    pub(super) ahead_bytes: u64,
}

impl Progress {
    /// Numbers that only grow, by name.
    pub(super) fn totals(&self) -> [(&'static str, u64); 6] {
        [
            ("accepted", self.accepted),
            ("read_ahead", self.read_ahead),
            ("used", self.used),
            ("unused", self.unused),
            ("skipped", self.skipped),
            ("failed", self.failed),
        ]
    }
}

/// The samples that were read last.
#[derive(Debug, Default)]
struct Recent {
    order: VecDeque<Ino>,
    all: HashSet<Ino>,
}

impl Recent {
    fn note(&mut self, sample: Ino) {
        if !self.all.insert(sample) {
            return;
        }
        self.order.push_back(sample);
        if self.order.len() > RECENT
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
    }
}

impl State {
    /// The sample that comes next.
    fn take(&mut self) -> Option<Ino> {
        if let Some(sample) = self.pending.pop_front() {
            return Some(sample);
        }
        let sample = self.unfinished.as_mut()?.take()?;
        self.progress.accepted += 1;
        Some(sample)
    }
}

/// What a thread is to do.
enum Next {
    ReadAhead(Ino),
    /// There was no room; perhaps there is now.
    Again,
    Nothing,
}

impl Prefetch {
    /// Keeps at most half of `budget`, in bytes, ready.
    pub(super) fn new(budget: u64, started: SystemTime) -> Self {
        Self {
            active: AtomicBool::new(false),
            state: Mutex::new(State {
                pending: VecDeque::new(),
                ahead: HashMap::new(),
                ahead_bytes: 0,
                recent: Recent::default(),
                threads: 0,
                unfinished: None,
                progress: Progress::default(),
                said: Arc::default(),
                changed: started,
            }),
            room: Condvar::new(),
            window: WINDOW.min(budget / 2),
        }
    }

    /// Whether reads are to be noted here.
    pub(super) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Notes that a sample was read.
    pub(super) fn note_read(&self, sample: Ino) {
        let mut state = self.lock();
        state.recent.note(sample);
        if let Some((bytes, _)) = state.ahead.remove(&sample) {
            state.ahead_bytes -= bytes;
            state.progress.used += 1;
            self.room.notify_one();
        }
        self.update(&mut state);
    }

    /// Gives up samples that nobody has read for a while; their payloads are given back by the same
    /// rule.
    pub(super) fn drop_idle(&self, now: Instant) {
        if !self.is_active() {
            return;
        }
        let mut state = self.lock();
        let State {
            ahead,
            ahead_bytes,
            progress,
            ..
        } = &mut *state;
        ahead.retain(|_, (bytes, since)| {
            let keep = *bytes == 0 || now.saturating_duration_since(*since) < IDLE;
            if !keep {
                *ahead_bytes -= *bytes;
                progress.unused += 1;
            }
            keep
        });
        self.update(&mut state);
        drop(state);
        self.room.notify_all();
    }

    pub(super) fn progress(&self) -> Progress {
        let state = self.lock();
        Progress {
            pending: state.pending.len(),
            ahead: state.ahead.len(),
            ahead_bytes: state.ahead_bytes,
            ..state.progress
        }
    }

    /// JSON of what came of the last write, and when that was; empty before the first.
    pub(super) fn result(&self) -> (Arc<[u8]>, SystemTime) {
        let state = self.lock();
        (Arc::clone(&state.said), state.changed)
    }

    fn next(&self) -> Next {
        let mut state = self.lock();
        if state.ahead_bytes >= self.window && !state.pending.is_empty() {
            let waited = self.room.wait_timeout(state, PATIENCE);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            return Next::Again;
        }
        while let Some(sample) = state.take() {
            if state.recent.all.contains(&sample) || state.ahead.contains_key(&sample) {
                state.progress.skipped += 1;
                continue;
            }
            state.ahead.insert(sample, (0, Instant::now()));
            return Next::ReadAhead(sample);
        }
        self.update(&mut state);
        Next::Nothing
    }

    /// Notes what came of reading a sample ahead: its bytes, or `None` when it failed. Says whether
    /// it is still of use, which it is not when it was read meanwhile.
    fn finish(&self, sample: Ino, bytes: Option<u64>) -> bool {
        let mut state = self.lock();
        let waited_for = match (bytes, state.ahead.remove(&sample)) {
            (None, _) => {
                state.progress.failed += 1;
                false
            }
            (Some(_), None) => false,
            (Some(bytes), Some(_)) => {
                // Never 0, which stands for one that is not ready.
                let bytes = bytes.max(1);
                state.ahead.insert(sample, (bytes, Instant::now()));
                state.ahead_bytes += bytes;
                true
            }
        };
        state.progress.read_ahead += u64::from(bytes.is_some());
        self.update(&mut state);
        waited_for
    }

    fn update(&self, state: &mut State) {
        let active = !state.pending.is_empty() || !state.ahead.is_empty();
        self.active.store(active, Ordering::Relaxed);
        if !active {
            state.recent = Recent::default();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Vfs {
    /// Starts threads for what is pending, as far as they are missing.
    fn start_prefetching(self: &Arc<Self>) {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut state = self.prefetch.lock();
        // One more for a last line without an end.
        let wanted = cores.min(MOST_THREADS).min(state.pending.len() + 1);
        while state.threads < wanted {
            let vfs = Arc::downgrade(self);
            let thread = thread::Builder::new().name("prefetch".to_owned());
            if let Err(error) = thread.spawn(move || keep_ahead(&vfs)) {
                log::warn!("prefetch: cannot start a thread: {error}");
                return;
            }
            state.threads += 1;
        }
    }

    /// Makes one sample ready.
    fn read_ahead(&self, sample: Ino) {
        let Some(Node::Sample(slot, number)) = self.inodes.node(sample) else {
            return;
        };
        let bytes = match self.fetch(slot, number) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                // Listed and logged as a read of it would be.
                let _ = self.damaged(slot, number, error);
                None
            }
        };
        if !self.prefetch.finish(sample, bytes) {
            self.payloads.release(Key::Sample(slot, number));
        }
    }

    /// Reads and decodes a sample, and says how many bytes of memory it takes.
    fn fetch(&self, slot: u64, sample: u64) -> Result<u64> {
        let Some(mounted) = self.at_slot(slot) else {
            return Ok(0);
        };
        match mounted.cache().compression(sample)? {
            Compression::None => mounted.cache().read_whole_ahead(sample),
            Compression::Lz4 => Ok(self.decoded(mounted, sample)?.len()),
        }
        .map(|len| len.saturating_add(ENTRY))
    }
}

/// One thread: reads ahead until nothing is pending or the mount is gone.
fn keep_ahead(vfs: &Weak<Vfs>) {
    let _leaves = Leaves(vfs);
    while let Some(vfs) = vfs.upgrade() {
        match vfs.prefetch.next() {
            Next::ReadAhead(sample) => vfs.read_ahead(sample),
            Next::Again => {}
            Next::Nothing => return,
        }
    }
}

/// Counts a thread out, also when it panics.
struct Leaves<'a>(&'a Weak<Vfs>);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        let Some(vfs) = self.0.upgrade() else { return };
        let mut state = vfs.prefetch.lock();
        state.threads -= 1;
        let more = !state.pending.is_empty() && state.threads == 0;
        drop(state);
        // A list that came while the last thread left has found it still counted.
        if more && !thread::panicking() {
            vfs.start_prefetching();
        }
    }
}
