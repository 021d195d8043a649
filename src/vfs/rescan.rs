//! `/.control/caches`: the word `rescan` has the given folders looked at again; reading gives the JSON
//! of the last look.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use serde_json::json;

use super::control::later_than;
use super::{Node, Stale, Vfs, VfsError, Written};
use crate::dataset::{Dataset, Entry, Newcomers};
use crate::error::Error;

/// Looks for caches that are not among the known ones.
type Find = Box<dyn Fn(&Dataset, &[Entry]) -> Newcomers + Send + Sync>;

/// How to look, and what the last look gave.
pub(super) struct Rescan {
    find: OnceLock<Find>,
    /// Held during a look: there is one at a time.
    looking: Mutex<()>,
    last: Mutex<(Arc<[u8]>, SystemTime)>,
}

impl fmt::Debug for Rescan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rescan")
            .field("find", &self.find.get().is_some())
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

impl Rescan {
    pub(super) fn new(started: SystemTime) -> Self {
        Self {
            find: OnceLock::new(),
            looking: Mutex::default(),
            last: Mutex::new((Arc::default(), started)),
        }
    }

    /// JSON of the last look and when it ended; empty before the first.
    pub(super) fn result(&self) -> (Arc<[u8]>, SystemTime) {
        let last = lock(&self.last);
        (Arc::clone(&last.0), last.1)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Vfs {
    /// How to look for caches that were published after the start.
    pub fn on_rescan(
        &self,
        find: impl Fn(&Dataset, &[Entry]) -> Newcomers + Send + Sync + 'static,
    ) {
        // The first one stays: there is one list of folders.
        let _ = self.rescan.find.set(Box::new(find));
    }

    /// Takes what was written to the control file as one whole command.
    pub(super) fn command_rescan(self: &Arc<Self>, word: &[u8]) -> Result<Written, VfsError> {
        if word.trim_ascii() != b"rescan" {
            return Err(VfsError::BadControlWord);
        }
        let vfs = Arc::clone(self);
        Ok(Written::Later(Box::new(move || {
            vfs.rescan();
            Ok(())
        })))
    }

    /// Shows the caches that were published below the given folders since the last look. Caches that
    /// went are served on: whoever has them open must not notice.
    pub fn rescan(&self) {
        let Some(find) = self.rescan.find.get() else {
            return;
        };
        let _one_at_a_time = lock(&self.rescan.looking);
        let known: Vec<Entry> = self.caches.iter().map(|m| m.entry.clone()).collect();
        let Newcomers { dataset, gone } = find(&self.dataset, &known);
        let mut refused: Vec<String> = dataset.skipped().iter().map(Error::chain).collect();
        let mut added = Vec::new();
        for entry in self.inodes.join(dataset.entries()) {
            match entry {
                Ok(entry) => added.push(entry.clone()),
                Err(error) => refused.push(error.chain()),
            }
        }
        if !added.is_empty() {
            self.caches.join(&added, &self.options);
            for folder in [Node::Samples, Node::Caches, Node::ByName] {
                self.forget.forget(self.ino(folder), Stale::Everything);
            }
        }
        for entry in &added {
            let folder = entry.cache.dir().display();
            log::info!("cache {} ({folder}) has joined the mount", entry.cache_id);
        }
        let folder = |entry: &Entry| entry.cache.dir().to_string_lossy().into_owned();
        let facts = json!({
            "added": added
                .iter()
                .map(|entry| json!({"cache_id": entry.cache_id, "folder": folder(entry)}))
                .collect::<Vec<_>>(),
            "refused": refused,
            "gone": gone.iter().map(|dir| dir.to_string_lossy()).collect::<Vec<_>>(),
        });
        let mut text = facts.to_string().into_bytes();
        text.push(b'\n');
        let mut last = lock(&self.rescan.last);
        // Whoever looks often wants no line each time.
        if *last.0 != *text {
            for reason in &refused {
                log::warn!("not added: {reason}");
            }
        }
        *last = (text.into(), later_than(last.1));
    }
}
