//! Open shards of many caches under one bound on descriptors.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwapOption;

use super::{FileIdentity, StoredFile};
use crate::error::{Error, Result};

/// How many shards all caches of a process may keep open together.
#[derive(Debug)]
pub struct OpenFileLimit {
    most: usize,
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

/// Descriptors beyond this number gain nothing.
const MOST_DESCRIPTORS: u64 = 8192;

/// The shards of one cache, opened when they are first read. A reader of an open shard takes no
/// lock.
#[derive(Debug)]
pub struct ShardFiles {
    paths: Vec<PathBuf>,
    seen: Vec<FileIdentity>,
    slots: Arc<Slots>,
    limit: Arc<OpenFileLimit>,
}

impl ShardFiles {
    /// For the shards at `paths`, which had the identities `seen` when the cache was opened.
    #[must_use]
    pub fn new(paths: Vec<PathBuf>, seen: Vec<FileIdentity>, limit: &Arc<OpenFileLimit>) -> Self {
        let slots = paths.iter().map(|_| ArcSwapOption::empty()).collect();
        Self {
            paths,
            seen,
            slots: Arc::new(slots),
            limit: Arc::clone(limit),
        }
    }

    /// Path of shard number `shard`; empty when there is none.
    #[must_use]
    pub fn path(&self, shard: usize) -> PathBuf {
        self.paths.get(shard).cloned().unwrap_or_default()
    }

    /// What the shard was when the cache was opened.
    #[must_use]
    pub fn identity(&self, shard: usize) -> Option<FileIdentity> {
        self.seen.get(shard).copied()
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
        let (Some(path), Some(seen), Some(slot)) = (
            self.paths.get(shard),
            self.seen.get(shard),
            self.slots.get(shard),
        ) else {
            return Err(Error::refused("", format!("no shard {shard}")));
        };
        let file = Arc::new(StoredFile::open(path)?);
        let found = file.identity();
        if found != *seen {
            return Err(super::replaced(*seen, found).in_file(path));
        }
        if slot.swap(Some(Arc::clone(&file))).is_none() {
            self.limit.admit(&self.slots, shard);
        }
        Ok(file)
    }
}
