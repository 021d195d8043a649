//! What is known of the SHA-256 of a cache's files, and what follows from it for reading.
//!
//! Every comparison, whoever asked for it, is noted here. A shard that was found wrong lets nothing
//! through until it is found right again; wrong tables close the whole cache. With
//! `--validate-cache=access` a shard lets nothing through before it was found right: whoever comes
//! first hashes it, and whoever comes meanwhile waits for that one pass.
//!
//! What was found holds for the file as it was then, known by [`StoredFile::changed`]. A shard that
//! has changed since is hashed again before its next byte. So is one that changed before it was
//! opened: it may be another file under the same inode number. One that was never compared and
//! changes while it is open is served on, listed ([`Cache::changed_shards`]) and logged once.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, SystemTime};

use super::validate::Compared;
use super::{Cache, FileCheck};
use crate::error::{Error, Fault, FaultKind, Result};
use crate::storage::StoredFile;

/// Bytes read at once while hashing.
const PIECE: usize = 1 << 20;

/// There was no comparison.
const UNKNOWN: u8 = 0;
/// What the last comparison said.
const RIGHT: u8 = 1;
const WRONG: u8 = 2;
/// To be compared before the next byte, since it has changed.
const CHANGED: u8 = 3;

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
    /// Grows when what is known of a file changes.
    turns: AtomicU64,
}

#[derive(Debug)]
struct Gate {
    /// What is known; nothing is locked while nobody compares.
    state: AtomicU8,
    /// [`StoredFile::changed`] of the file that this is known of.
    known: AtomicI64,
    /// Whether it changed while it was served without ever having been compared.
    unchecked: AtomicBool,
    /// Held while the file is hashed on access.
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// A wrong checksum stays until another comparison finds it right; a failed read is tried again.
    fault: Option<Fault>,
    /// Whether a check found it that somebody asked for. Then a change is no reason to look again.
    by_check: bool,
    /// [`StoredFile::changed_at_open`] of a file that was in a known state when it was opened.
    opened: Option<i64>,
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
    /// For files that nothing is known of but when they changed last: `shards`, metadata.arrow and
    /// index.bin.
    pub(super) fn new(shards: &[i64], metadata: i64, index: i64) -> Self {
        Self {
            on_access: false,
            metadata: Gate::new(metadata),
            index: Gate::new(index),
            shards: shards.iter().copied().map(Gate::new).collect(),
            latest: AtomicU64::new(0),
            turns: AtomicU64::new(0),
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

    pub(super) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// What [`Gates::pass`] would say of the shard if it let through at once.
    pub(super) fn known(&self, shard: usize) -> i64 {
        self.shards.get(shard).map_or(0, Gate::known)
    }

    /// As [`Gates::known`], of metadata.arrow.
    pub(super) fn known_metadata(&self) -> i64 {
        self.metadata.known()
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

    /// Whether the shard has changed and was not compared since.
    pub(super) fn has_changed(&self, shard: usize) -> bool {
        let changed = |gate: &Gate| gate.is(CHANGED) || gate.unchecked.load(Ordering::Relaxed);
        self.shards.get(shard).is_some_and(changed)
    }

    /// Lets through unless metadata.arrow was found wrong. It is hashed if it has changed.
    pub(super) fn pass_metadata(&self, cache: &Cache) -> Result<()> {
        self.pass_table(cache, &self.metadata, FileCheck::Metadata)
    }

    fn pass_tables(&self, cache: &Cache) -> Result<()> {
        self.pass_metadata(cache)?;
        self.pass_table(cache, &self.index, FileCheck::Index)
    }

    fn pass_table(&self, cache: &Cache, gate: &Gate, check: FileCheck) -> Result<()> {
        match gate.state.load(Ordering::Acquire) {
            UNKNOWN | RIGHT => Ok(()),
            WRONG => gate.admit(cache, check),
            _ => {
                let file = cache.stored_file(check)?;
                self.pass_file(cache, check, &file).map(drop)
            }
        }
    }

    /// As [`Gates::pass`] for bytes of the shard that were let through before.
    pub(super) fn pass_again(&self, cache: &Cache, shard: usize) -> Result<()> {
        self.pass_tables(cache)?;
        match self.shards.get(shard) {
            Some(gate) if gate.is(WRONG) => gate.admit(cache, FileCheck::Shard(shard)),
            _ => Ok(()),
        }
    }

    /// Lets through unless a file that the bytes depend on was found wrong, or the shard is yet to
    /// be found right: then it is hashed. What comes back differs after each change of the shard:
    /// bytes that were read between two passes that differ may be of either state.
    pub(super) fn pass(&self, cache: &Cache, shard: usize, file: &StoredFile) -> Result<i64> {
        self.pass_tables(cache)?;
        self.pass_file(cache, FileCheck::Shard(shard), file)
    }

    /// [`Gates::pass`], whatever is known of other files.
    pub(super) fn pass_file(
        &self,
        cache: &Cache,
        check: FileCheck,
        file: &StoredFile,
    ) -> Result<i64> {
        let Some(gate) = self.gate(check) else {
            return Ok(0);
        };
        let known = gate.known();
        let may_pass = gate.is(RIGHT) || (gate.is(UNKNOWN) && !self.is_hashed_first(check));
        if may_pass && known == file.changed() {
            return Ok(known);
        }
        self.pass_slowly(cache, check, gate, file)
    }

    #[cold]
    fn pass_slowly(
        &self,
        cache: &Cache,
        check: FileCheck,
        gate: &Gate,
        file: &StoredFile,
    ) -> Result<i64> {
        let mut inner = gate.lock();
        self.note_change(cache, check, gate, &mut inner, file);
        match gate.state.load(Ordering::Acquire) {
            RIGHT => return Ok(gate.known()),
            UNKNOWN if !self.is_hashed_first(check) => return Ok(gate.known()),
            _ => {}
        }
        if let Some(fault) = &inner.fault
            && gate.is(WRONG)
        {
            return Err(fault.clone().in_file(&cache.file_path(check)));
        }
        let go_on = |_| ControlFlow::Continue(());
        let compared = cache.hash(check, &mut vec![0; PIECE], &go_on)?;
        inner.by_check = false;
        self.note(gate, &mut inner, &compared);
        compared.result.map(|()| gate.known())
    }

    fn is_hashed_first(&self, check: FileCheck) -> bool {
        self.on_access && matches!(check, FileCheck::Shard(_))
    }

    /// To be told of each read of a file, so that a change is known even if nothing is served.
    pub(super) fn see(&self, cache: &Cache, check: FileCheck, file: &StoredFile) {
        let Some(gate) = self.gate(check) else {
            return;
        };
        if gate.known() == file.changed() {
            return;
        }
        // Whoever has the lock may hash for long, and knows then.
        if let Some(mut inner) = gate.try_lock() {
            self.note_change(cache, check, gate, &mut inner, file);
        }
    }

    /// Notes that the file is not what is known any more, if so.
    fn note_change(
        &self,
        cache: &Cache,
        check: FileCheck,
        gate: &Gate,
        inner: &mut Inner,
        file: &StoredFile,
    ) {
        let (known, found) = (gate.known(), file.changed());
        let state = gate.state.load(Ordering::Acquire);
        let is_shard = matches!(check, FileCheck::Shard(_));
        let is_settled = match state {
            UNKNOWN => self.is_hashed_first(check),
            WRONG => inner.by_check,
            state => state == CHANGED,
        };
        if known == found || is_settled {
            return;
        }
        let path = cache.file_path(check);
        let path = path.display();
        let opened = Some(file.changed_at_open());
        let was_open = opened == Some(known) || opened == inner.opened;
        if state == UNKNOWN && (was_open || !is_shard) {
            inner.opened = opened;
            gate.known.store(found, Ordering::Release);
            if !gate.unchecked.swap(true, Ordering::Relaxed) {
                self.turns.fetch_add(1, Ordering::Relaxed);
                log::warn!(
                    "{path}: it was changed in place after it was opened, and no checksum was compared; \
                     write to .control/verify to have it checked"
                );
            }
            return;
        }
        log::warn!("{path}: it has changed, and is hashed before anything of it is served");
        gate.state.store(CHANGED, Ordering::Release);
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes what a comparison said. One that could not be made changes nothing.
    pub(super) fn settle(&self, check: FileCheck, compared: &Compared) {
        if let Some(gate) = self.gate(check) {
            let mut inner = gate.lock();
            inner.by_check = true;
            self.note(gate, &mut inner, compared);
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

    fn note(&self, gate: &Gate, inner: &mut Inner, compared: &Compared) {
        let state = match &compared.result {
            Ok(()) => {
                inner.fault = None;
                self.latest
                    .fetch_max(seconds(SystemTime::now()), Ordering::Relaxed);
                RIGHT
            }
            Err(Error::Damaged { fault, .. }) if fault.kind == FaultKind::Checksum => {
                inner.fault = Some(fault.clone());
                WRONG
            }
            Err(_) => return,
        };
        gate.known.store(compared.changed, Ordering::Release);
        gate.unchecked.store(false, Ordering::Relaxed);
        gate.state.store(state, Ordering::Release);
        self.turns.fetch_add(1, Ordering::Relaxed);
    }
}

impl Gate {
    fn new(known: i64) -> Self {
        Self {
            state: AtomicU8::new(UNKNOWN),
            known: AtomicI64::new(known),
            unchecked: AtomicBool::new(false),
            inner: Mutex::default(),
        }
    }

    fn is(&self, state: u8) -> bool {
        self.state.load(Ordering::Acquire) == state
    }

    fn known(&self) -> i64 {
        self.known.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Inner>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(inner),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Lets through what was not found wrong.
    fn admit(&self, cache: &Cache, check: FileCheck) -> Result<()> {
        match &self.lock().fault {
            Some(fault) => Err(fault.clone().in_file(&cache.file_path(check))),
            None => Ok(()),
        }
    }
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
