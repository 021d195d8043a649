//! `--validate-cache=access`: each shard's SHA-256 is compared once, before its first byte is
//! served. Whoever comes meanwhile waits for that one pass.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{Cache, FileCheck};
use crate::error::{Error, Fault, Result};

/// Bytes read at once while hashing.
const PIECE: usize = 1 << 20;

/// One gate for each shard of a cache.
#[derive(Debug)]
pub(super) struct Gates(Vec<Gate>);

#[derive(Debug, Default)]
struct Gate {
    /// The checksum was compared and is right: nothing is locked any more.
    open: AtomicBool,
    /// Held while the shard is hashed. A wrong checksum stays; a failed read is tried again.
    fault: Mutex<Option<Fault>>,
}

impl Gates {
    pub(super) fn new(shards: usize) -> Self {
        Self((0..shards).map(|_| Gate::default()).collect())
    }

    /// How many shards have been found right.
    pub(super) fn opened(&self) -> usize {
        let gates = self.0.iter();
        gates
            .filter(|gate| gate.open.load(Ordering::Relaxed))
            .count()
    }

    /// Lets through once the shard's checksum was found right.
    pub(super) fn pass(&self, cache: &Cache, shard: usize) -> Result<()> {
        match self.0.get(shard) {
            Some(gate) if !gate.open.load(Ordering::Acquire) => gate.check(cache, shard),
            _ => Ok(()),
        }
    }
}

impl Gate {
    #[cold]
    fn check(&self, cache: &Cache, shard: usize) -> Result<()> {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        if self.open.load(Ordering::Acquire) {
            return Ok(());
        }
        if let Some(fault) = &*fault {
            return Err(fault.clone().in_file(&cache.shards.path(shard)));
        }
        let checked = cache.check_file(FileCheck::Shard(shard), &mut vec![0; PIECE], &|_| ());
        match &checked {
            Ok(()) => self.open.store(true, Ordering::Release),
            Err(Error::Damaged { fault: found, .. }) => *fault = Some(found.clone()),
            Err(_) => {}
        }
        checked
    }
}
