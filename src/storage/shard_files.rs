//! Open shards of many caches under one bound on descriptors.

use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwapOption;

use super::device::FsKind;
use super::{Place, StoredFile};
use crate::error::{Error, Result};

/// How many shards all caches of a process may keep open together.
#[derive(Debug)]
pub struct OpenFileLimit {
    most: usize,
    /// Folders that are held open.
    dirs: AtomicUsize,
    /// Asking a file system of many servers what it is may take long.
    kinds: Mutex<HashMap<u64, FsKind>>,
    /// Slots in the order in which they were filled.
    filled: Mutex<VecDeque<(Weak<Slots>, usize)>>,
}

type Slots = Vec<ArcSwapOption<StoredFile>>;

impl OpenFileLimit {
    /// At most `most` open shards (at least one).
    #[must_use]
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most: most.max(1),
            dirs: AtomicUsize::new(0),
            kinds: Mutex::default(),
            filled: Mutex::new(VecDeque::new()),
        })
    }

    /// A bound that leaves room for everything else under the process's own limit, which is raised
    /// as far as the system lets it.
    #[must_use]
    pub fn for_process() -> Arc<Self> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let mut soft = limit.current.unwrap_or(u64::MAX);
        if limit.maximum.is_none_or(|hard| hard > soft) {
            let raised = limit
                .maximum
                .unwrap_or(MOST_DESCRIPTORS)
                .min(MOST_DESCRIPTORS);
            let wanted = rustix::process::Rlimit {
                current: Some(raised.max(soft)),
                maximum: limit.maximum,
            };
            if rustix::process::setrlimit(rustix::process::Resource::Nofile, wanted).is_ok() {
                soft = raised.max(soft);
            }
        }
        Self::new(usize::try_from(soft.min(MOST_DESCRIPTORS) / 2).unwrap_or(1))
    }

    /// The kind of the file system `device`, which `file` lies on; asked once.
    pub(super) fn kind_of(&self, device: u64, file: impl AsFd) -> FsKind {
        let known = |kinds: &HashMap<u64, FsKind>| kinds.get(&device).copied();
        let lock = || self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kind) = known(&lock()) {
            return kind;
        }
        let kind = FsKind::of(file);
        lock().insert(device, kind);
        kind
    }

    /// The right to hold one more folder open: a quarter as many as shards, and none under a bound so
    /// small that shards need all of it.
    pub(super) fn hold_dir(self: &Arc<Self>) -> Option<DirPermit> {
        let most = if self.most < FEW { 0 } else { self.most / 4 };
        let add = |held: usize| (held < most).then(|| held + 1);
        let taken = self
            .dirs
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        taken.is_ok().then(|| DirPermit(Arc::clone(self)))
    }

    /// Notes that a slot was filled and empties the oldest one when there are too many.
    fn admit(&self, slots: &Arc<Slots>, shard: usize) {
        let mut filled = self.filled.lock().unwrap_or_else(PoisonError::into_inner);
        filled.push_back((Arc::downgrade(slots), shard));
        while filled.len() > self.most {
            let oldest = filled.pop_front();
            if let Some((slots, shard)) = oldest.and_then(|(slots, n)| Some((slots.upgrade()?, n)))
                && let Some(slot) = slots.get(shard)
            {
                slot.store(None);
            }
        }
    }
}

/// The right to hold one folder open, for as long as this lives.
#[derive(Debug)]
pub(super) struct DirPermit(Arc<OpenFileLimit>);

impl Drop for DirPermit {
    fn drop(&mut self) {
        self.0.dirs.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A bound on shards below which no folder is held open.
const FEW: usize = 32;

/// Descriptors beyond this number gain nothing.
const MOST_DESCRIPTORS: u64 = 8192;

/// The shards of one cache, opened when they are first read. A reader of an open shard takes no
/// lock.
#[derive(Debug)]
pub struct ShardFiles {
    places: Vec<Place>,
    slots: Arc<Slots>,
    limit: Arc<OpenFileLimit>,
}

impl ShardFiles {
    /// For the shards at `places`, as they were when the cache was opened.
    #[must_use]
    pub fn new(places: Vec<Place>, limit: &Arc<OpenFileLimit>) -> Self {
        let slots = places.iter().map(|_| ArcSwapOption::empty()).collect();
        Self {
            places,
            slots: Arc::new(slots),
            limit: Arc::clone(limit),
        }
    }

    /// Where shard number `shard` lies.
    #[must_use]
    pub fn place(&self, shard: usize) -> Option<&Place> {
        self.places.get(shard)
    }

    /// Path of shard number `shard`; empty when there is none.
    #[must_use]
    pub fn path(&self, shard: usize) -> PathBuf {
        let place = self.places.get(shard);
        place.map_or_else(PathBuf::new, |place| place.path().to_path_buf())
    }

    /// The open shard.
    ///
    /// # Errors
    /// [`Error::Io`]; [`crate::error::FaultKind::Replaced`] when it is another file than at first.
    pub fn get(&self, shard: usize) -> Result<Arc<StoredFile>> {
        if let Some(slot) = self.slots.get(shard)
            && let Some(file) = slot.load_full()
        {
            return Ok(file);
        }
        self.open(shard)
    }

    #[cold]
    fn open(&self, shard: usize) -> Result<Arc<StoredFile>> {
        let (Some(place), Some(slot)) = (self.places.get(shard), self.slots.get(shard)) else {
            return Err(Error::refused("", format!("no shard {shard}")));
        };
        let file = Arc::new(place.open()?);
        if slot.swap(Some(Arc::clone(&file))).is_none() {
            self.limit.admit(&self.slots, shard);
        }
        Ok(file)
    }
}
