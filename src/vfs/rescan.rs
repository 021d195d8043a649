//! `/.control/caches`: the word `rescan` has the given folders looked at again; reading gives the JSON
//! of the last look.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use serde_json::json;

use super::control::later_than;
use super::{Node, Stale, Vfs, VfsError, Written};
use crate::dataset::{Dataset, Entry, Newcomers};
use crate::error::{Error, json_line};

/// Looks for caches that are not among the known ones.
type Find = Box<dyn Fn(&Dataset, &[Entry]) -> Newcomers + Send + Sync>;

/// How to look, and what the last look gave.
pub(super) struct Rescan {
    find: OnceLock<Find>,
    /// Held during a look: there is one at a time.
    looking: Mutex<()>,
    last: Mutex<(Arc<[u8]>, SystemTime)>,
    /// Whether any newcomer was ever refused.
    refused: AtomicBool,
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
            refused: AtomicBool::new(false),
        }
    }

    /// Whether any newcomer was ever refused, so that the log tells of it.
    pub(super) fn has_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
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

    /// Looks again who may read which file, and has the kernel ask anew where that has changed.
    fn look_at_permissions(&self) {
        let changed = self.caches.look_at_permissions(&self.options);
        if changed.is_empty() {
            return;
        }
        self.views.take_permissions(&self.caches, &self.options);
        self.forget_shared();
        for mounted in changed {
            let (slot, cache) = (mounted.slot(), mounted.cache());
            log::info!(
                "cache {}: its permissions have changed",
                mounted.entry.cache_id
            );
            let folders = [Node::SampleDir(slot), Node::CacheDir(slot)];
            let files = [
                Node::Manifest(slot),
                Node::Migrated(slot),
                Node::Metadata(slot),
            ];
            let samples = (0..cache.sample_count()).map(|sample| Node::Sample(slot, sample));
            for node in folders.into_iter().chain(files).chain(samples) {
                self.forget.forget(self.ino(node), Stale::Attributes);
            }
        }
    }

    /// Has the kernel ask anew who may read what is about several caches.
    fn forget_shared(&self) {
        let views = (0..self.view_count()).filter_map(|view| u32::try_from(view).ok());
        let views = views.flat_map(|view| self.view_nodes(view));
        let shared = [Node::ByName, Node::Views, Node::JoinedTable];
        for node in shared.into_iter().chain(views) {
            self.forget.forget(self.ino(node), Stale::Attributes);
        }
    }

    /// Shows the caches that were published below the given folders since the last look. Caches that
    /// went are served on: whoever has them open must not notice.
    pub fn rescan(&self) {
        let _one_at_a_time = lock(&self.rescan.looking);
        self.look_at_permissions();
        let Some(find) = self.rescan.find.get() else {
            return;
        };
        let known: Vec<Entry> = self.caches.iter().map(|m| m.entry.clone()).collect();
        let Newcomers {
            dataset,
            gone,
            replaced,
        } = find(&self.dataset, &known);
        let paths = |dirs: &[PathBuf]| -> Vec<String> {
            let shown = dirs.iter().map(|dir| dir.to_string_lossy().into_owned());
            shown.collect()
        };
        let mut refused: Vec<String> = dataset.skipped().iter().map(Error::chain).collect();
        let mut added = Vec::new();
        for entry in self.inodes.join(dataset.entries()) {
            match entry {
                Ok(entry) => added.push(entry.clone()),
                Err(error) => refused.push(error.chain()),
            }
        }
        if !refused.is_empty() {
            self.rescan.refused.store(true, Ordering::Relaxed);
        }
        if !added.is_empty() {
            self.caches.join(&added, &self.options);
            self.forget_shared();
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
                .map(|entry| {
                    json!({
                        "cache_id": entry.cache_id,
                        "cache": entry.cache_id.to_string(),
                        "folder": folder(entry),
                    })
                })
                .collect::<Vec<_>>(),
            "refused": refused,
            "gone": paths(&gone),
            "replaced": paths(&replaced),
        });
        let text = (json_line(&facts) + "\n").into_bytes();
        let mut last = lock(&self.rescan.last);
        // Whoever looks often wants no line each time.
        if *last.0 != *text {
            for reason in &refused {
                log::warn!("not added: {reason}");
            }
            for dir in &replaced {
                log::warn!(
                    "{}: another cache is there now; the one that was mounted is served until unmount",
                    dir.display()
                );
            }
        }
        *last = (text.into(), later_than(last.1));
    }
}
