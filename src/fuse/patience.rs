//! Work that may wait for a disk that hangs, done by another thread while somebody waits for it, but
//! not for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use super::dispatch::guarded;
use super::errno::Call;
use super::workers::Workers;
use crate::vfs::{OnThread, Vfs, VfsError};

/// A disk that takes longer for what one request needs is treated as one that hangs.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who waits for such work, and how much of it nobody waits for any more.
#[derive(Clone)]
pub(super) struct Patience {
    vfs: Arc<Vfs>,
    workers: Workers,
    given_up: Arc<AtomicUsize>,
}

impl Patience {
    pub(super) fn new(vfs: &Arc<Vfs>, workers: &Workers) -> Self {
        Self {
            vfs: Arc::clone(vfs),
            workers: workers.clone(),
            given_up: Arc::default(),
        }
    }

    /// Has `work` done and says whether it is. As long as other work that was given up has not ended
    /// none is begun, so that a disk that hangs does not collect threads.
    pub(super) fn see_done(
        &self,
        call: Call,
        work: impl FnOnce(&Vfs) -> Result<(), VfsError> + Send + 'static,
    ) -> bool {
        if self.given_up.load(Ordering::Relaxed) > 0 {
            return false;
        }
        // Without room for a message: one is sent only while somebody waits for it.
        let (ended, wait) = sync_channel(0);
        let (vfs, given_up) = (Arc::clone(&self.vfs), Arc::clone(&self.given_up));
        let job = move || {
            // Whoever needs what failed here hears why.
            let _ = guarded(&vfs, call, OnThread::Worker, || work(&vfs));
            if ended.send(()).is_err() {
                given_up.fetch_sub(1, Ordering::Relaxed);
            }
        };
        if let Err(error) = self.workers.run(Box::new(job)) {
            log::error!("{call}: cannot start a thread: {error}");
            return false;
        }
        let done = wait.recv_timeout(PATIENCE).is_ok();
        if !done {
            self.given_up.fetch_add(1, Ordering::Relaxed);
        }
        done
    }
}
