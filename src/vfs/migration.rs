//! `/.control/migrate`: a written version starts a migration; reading gives the JSON of the last one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::control::later_than;
use super::{Vfs, VfsError, Written};
use crate::error::json_line;
use crate::migrate::{self, ManifestUpdateError, ManifestUpdateReport};

/// The one migration that may run at a time, and the result of the last.
#[derive(Debug)]
pub(super) struct Migration {
    state: Mutex<State>,
    /// Signalled when a run ends.
    ended: Condvar,
    /// Tells a run to end after its current manifest.
    stop: AtomicBool,
    runs: AtomicU64,
}

#[derive(Debug)]
struct State {
    running: bool,
    result: Arc<[u8]>,
    changed: SystemTime,
}

impl Migration {
    pub(super) fn new(started: SystemTime) -> Self {
        Self {
            state: Mutex::new(State {
                running: false,
                result: Arc::default(),
                changed: started,
            }),
            ended: Condvar::new(),
            stop: AtomicBool::new(false),
            runs: AtomicU64::new(0),
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.lock().running
    }

    /// JSON of the last run and when it ended; empty before the first.
    pub(super) fn result(&self) -> (Arc<[u8]>, SystemTime) {
        let state = self.lock();
        (Arc::clone(&state.result), state.changed)
    }

    /// A number that differs after each run.
    pub(super) fn runs(&self) -> u64 {
        self.runs.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to run; given back when dropped, also by a panic.
struct Running(Arc<Vfs>);

impl Running {
    fn claim(vfs: &Arc<Vfs>) -> Option<Self> {
        let mut state = vfs.migration.lock();
        if std::mem::replace(&mut state.running, true) {
            return None;
        }
        drop(state);
        Some(Self(Arc::clone(vfs)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.migration.lock().running = false;
        self.0.migration.ended.notify_all();
    }
}

impl Vfs {
    /// Takes what was written to the control file as one whole command.
    pub(super) fn start_migration(self: &Arc<Self>, word: &[u8]) -> Result<Written, VfsError> {
        let version = migrate::parse_control_word(word).map_err(|_| VfsError::BadControlWord)?;
        let running = Running::claim(self).ok_or(VfsError::Busy)?;
        Ok(Written::Later(Box::new(move || {
            let vfs = Arc::clone(&running.0);
            let result = vfs.migrate(version);
            // Whoever hears of the result can start the next run.
            drop(running);
            result.map_err(|error| VfsError::Migration(Arc::new(error)))
        })))
    }

    fn migrate(&self, version: u32) -> Result<(), ManifestUpdateError> {
        log::info!("migration to format {version} started");
        let result = migrate::update_manifests(&self.dataset, version, &self.migration.stop);
        let done = match &result {
            Ok(ManifestUpdateReport { entries }) | Err(ManifestUpdateError { entries, .. }) => {
                entries
            }
        };
        for mounted in self.caches.iter() {
            mounted.reload_manifest();
        }
        match &result {
            Ok(_) => log::info!(
                "migration ended: {} manifests are of format {version}",
                done.len()
            ),
            Err(error) => log::error!(
                "migration ended early: {error} ({} manifests are of format {version})",
                done.len()
            ),
        }
        let text = (json_line(&result) + "\n").into_bytes();
        let mut state = self.migration.lock();
        state.result = text.into();
        state.changed = later_than(state.changed);
        drop(state);
        self.migration.runs.fetch_add(1, Ordering::Relaxed);
        result.map(|_| ())
    }

    /// Has a migration that runs stop at its next step.
    pub fn stop_migration(&self) {
        self.migration.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for the end of a migration that runs, but not longer than `limit`: its disk may hang.
    /// Whether it has ended.
    #[must_use]
    pub fn wait_for_migration(&self, limit: Duration) -> bool {
        let state = self.migration.lock();
        let running = |state: &mut State| state.running;
        let waited = self
            .migration
            .ended
            .wait_timeout_while(state, limit, running);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !state.running
    }
}
