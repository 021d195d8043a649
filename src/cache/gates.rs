//! What is known of the SHA-256 of a cache's files, and what follows from it for reading.
//!
//! Every comparison, whoever asked for it, is noted here. A shard that was found wrong lets nothing
//! through until it is found right again; wrong tables close the whole cache. With
//! `--validate-cache=access` a shard lets nothing through before it was found right: whoever comes
//! first hashes it, and whoever comes meanwhile waits for that one pass.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::{Cache, FileCheck};
use crate::error::{Error, Fault, FaultKind, Result};

/// Bytes read at once while hashing.
const PIECE: usize = 1 << 20;

/// What a comparison said; 0 as long as there was none.
const RIGHT: u8 = 1;
const WRONG: u8 = 2;

/// One gate for each file of a cache that has a SHA-256.
#[derive(Debug)]
pub(super) struct Gates {
    /// Whether shards are hashed before they are first served.
    on_access: bool,
    metadata: Gate,
    index: Gate,
    shards: Vec<Gate>,
    /// Seconds since 1970 at which a file was last found right.
    latest: AtomicU64,
}

#[derive(Debug, Default)]
struct Gate {
    /// What the last comparison said; nothing is locked while nobody compares.
    state: AtomicU8,
    /// Held while the file is hashed on access. A wrong checksum stays until another comparison finds
    /// it right; a failed read is tried again.
    fault: Mutex<Option<Fault>>,
}

/// How far the checksums of a cache have been compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Verified {
    /// The summary.
    pub level: Level,
    /// Shards that were found right.
    pub shards: usize,
    /// When a file was last found right.
    pub at: Option<SystemTime>,
}

/// How far, in one word.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Level {
    /// metadata.arrow or index.bin was found wrong: nothing is served.
    None,
    /// The structure, which is checked whenever a cache is opened.
    Structure,
    /// Some of the files.
    Shards,
    /// Every file.
    All,
}

impl Gates {
    pub(super) fn new(shards: usize) -> Self {
        Self {
            on_access: false,
            metadata: Gate::default(),
            index: Gate::default(),
            shards: (0..shards).map(|_| Gate::default()).collect(),
            latest: AtomicU64::new(0),
        }
    }

    pub(super) fn check_on_access(&mut self) {
        self.on_access = true;
    }

    pub(super) fn is_on_access(&self) -> bool {
        self.on_access
    }

    pub(super) fn verified(&self) -> Verified {
        let shards = self.shards.iter().filter(|gate| gate.is(RIGHT)).count();
        let tables = [&self.metadata, &self.index];
        let level = if tables.iter().any(|gate| gate.is(WRONG)) {
            Level::None
        } else if shards == self.shards.len() && tables.iter().all(|gate| gate.is(RIGHT)) {
            Level::All
        } else if shards > 0 {
            Level::Shards
        } else {
            Level::Structure
        };
        let seconds = self.latest.load(Ordering::Relaxed);
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        Verified {
            level,
            shards,
            at: (seconds > 0).then_some(at),
        }
    }

    /// Whether the shard was found right.
    pub(super) fn is_right(&self, shard: usize) -> bool {
        self.shards.get(shard).is_some_and(|gate| gate.is(RIGHT))
    }

    /// Whether the shard, or a table that its samples depend on, was found wrong.
    pub(super) fn is_wrong(&self, shard: usize) -> bool {
        let tables = [Some(&self.metadata), Some(&self.index)];
        let mut gates = tables.into_iter().chain([self.shards.get(shard)]);
        gates.any(|gate| gate.is_some_and(|gate| gate.is(WRONG)))
    }

    /// Lets through unless a file that the bytes depend on was found wrong, or the shard is yet to
    /// be found right.
    pub(super) fn pass(&self, cache: &Cache, shard: usize) -> Result<()> {
        let Some(gate) = self.shards.get(shard) else {
            return Ok(());
        };
        let open = |gate: &Gate| !gate.is(WRONG);
        if open(&self.metadata)
            && open(&self.index)
            && (gate.is(RIGHT) || (open(gate) && !self.on_access))
        {
            return Ok(());
        }
        self.metadata.admit(cache, FileCheck::Metadata)?;
        self.index.admit(cache, FileCheck::Index)?;
        match self.on_access {
            true => self.hash_first(cache, shard, gate),
            false => gate.admit(cache, FileCheck::Shard(shard)),
        }
    }

    #[cold]
    fn hash_first(&self, cache: &Cache, shard: usize, gate: &Gate) -> Result<()> {
        let check = FileCheck::Shard(shard);
        let mut fault = gate.lock();
        if gate.is(RIGHT) {
            return Ok(());
        }
        if let Some(fault) = &*fault {
            return Err(fault.clone().in_file(&cache.file_path(check)));
        }
        let go_on = |_| ControlFlow::Continue(());
        let result = cache.hash(check, &mut vec![0; PIECE], &go_on);
        self.note(gate, &mut fault, &result);
        result
    }

    /// Notes what a comparison said. One that could not be made changes nothing.
    pub(super) fn settle(&self, check: FileCheck, result: &Result<()>) {
        if let Some(gate) = self.gate(check) {
            self.note(gate, &mut gate.lock(), result);
        }
    }

    /// Notes that every file was found right at `at`.
    pub(super) fn trust(&self, at: SystemTime) {
        for gate in self.shards.iter().chain([&self.metadata, &self.index]) {
            gate.state.store(RIGHT, Ordering::Release);
        }
        self.latest.store(seconds(at), Ordering::Relaxed);
    }

    fn gate(&self, check: FileCheck) -> Option<&Gate> {
        match check {
            FileCheck::Metadata => Some(&self.metadata),
            FileCheck::Index => Some(&self.index),
            FileCheck::Shard(shard) => self.shards.get(shard),
        }
    }

    fn note(&self, gate: &Gate, fault: &mut Option<Fault>, result: &Result<()>) {
        match result {
            Ok(()) => {
                *fault = None;
                gate.state.store(RIGHT, Ordering::Release);
                self.latest
                    .fetch_max(seconds(SystemTime::now()), Ordering::Relaxed);
            }
            Err(Error::Damaged { fault: found, .. }) if found.kind == FaultKind::Checksum => {
                *fault = Some(found.clone());
                gate.state.store(WRONG, Ordering::Release);
            }
            Err(_) => {}
        }
    }
}

impl Gate {
    fn is(&self, state: u8) -> bool {
        self.state.load(Ordering::Acquire) == state
    }

    fn lock(&self) -> MutexGuard<'_, Option<Fault>> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets through what was not found wrong.
    fn admit(&self, cache: &Cache, check: FileCheck) -> Result<()> {
        match &*self.lock() {
            Some(fault) => Err(fault.clone().in_file(&cache.file_path(check))),
            None => Ok(()),
        }
    }
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
