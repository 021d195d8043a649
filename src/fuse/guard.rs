//! One request at a time, counted, with its panics kept in.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use fuser::{Errno, INodeNo};

use super::errno::{Call, report};
use super::patience::Patience;
use super::workers::Workers;
use crate::vfs::{Ino, Request, Vfs, VfsError};

/// A [`Vfs`] behind a panic guard.
pub(super) struct Guarded {
    vfs: Arc<Vfs>,
    workers: Workers,
    patience: Patience,
    /// Event threads: how many there are, and how many are at a request that may wait for a disk.
    threads: usize,
    at_work: AtomicUsize,
}

/// An event thread at a request, until dropped.
pub(super) struct AtWork<'a> {
    count: &'a AtomicUsize,
    /// All the others are at work too. This one must not wait for a disk: if they all do, nobody
    /// else would be answered.
    pub(super) is_last: bool,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Guarded {
    /// For this many event threads.
    pub(super) fn new(vfs: Arc<Vfs>, threads: usize) -> Self {
        let workers = Workers::default();
        Self {
            patience: Patience::new(&vfs, &workers),
            vfs,
            workers,
            threads,
            at_work: AtomicUsize::new(0),
        }
    }

    /// Notes that the event thread is at a request that may wait for a disk.
    pub(super) fn at_work(&self) -> AtWork<'_> {
        let others = self.at_work.fetch_add(1, Ordering::Relaxed);
        AtWork {
            count: &self.at_work,
            is_last: others + 1 >= self.threads,
        }
    }

    /// Counts a request.
    pub(super) fn note(&self, request: Request) {
        self.vfs.counters().note(request);
        #[cfg(debug_assertions)]
        end_if_asked(request);
    }

    /// Counts and runs one request. fuser has no panic guard: a panic that got through would end
    /// the event thread for good and leave a mount that answers nobody.
    pub(super) fn answer<T>(
        &self,
        request: Request,
        ino: INodeNo,
        serve: impl FnOnce(&Arc<Vfs>) -> Result<T, VfsError>,
    ) -> Result<T, Errno> {
        self.note(request);
        let start = Instant::now();
        let answer = guarded(&self.vfs, Call { request, ino }, || serve(&self.vfs));
        self.vfs.note_time(request, Ino(ino.0), start.elapsed());
        answer
    }

    /// Runs work that takes its time on a thread of its own, and then sends the reply, so that the
    /// event threads go on with other requests.
    pub(super) fn answer_later<T: 'static>(
        &self,
        request: Request,
        ino: INodeNo,
        work: impl FnOnce(&Arc<Vfs>) -> Result<T, VfsError> + Send + 'static,
        reply: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        let (vfs, start) = (Arc::clone(&self.vfs), Instant::now());
        let call = Call { request, ino };
        let job = move || {
            let answer = guarded(&vfs, call, || work(&vfs));
            // A command that is written is timed as it is taken.
            if request != Request::Write {
                vfs.note_time(request, Ino(ino.0), start.elapsed());
            }
            reply(answer);
        };
        if let Err(error) = self.workers.run(Box::new(job)) {
            // The reply was dropped with the closure, which answers EIO.
            log::error!("{call}: cannot start a thread: {error}");
        }
    }

    /// For work that may wait for a disk that hangs.
    pub(super) fn patience(&self) -> &Patience {
        &self.patience
    }

    /// Whether a request is better answered later, which `ask` tells.
    pub(super) fn is_slow(&self, ask: impl FnOnce(&Vfs) -> bool) -> bool {
        catch_unwind(AssertUnwindSafe(|| ask(&self.vfs))).unwrap_or(false)
    }
}

/// Serves one request; a panic in it becomes EIO for this request alone.
pub(super) fn guarded<T>(
    vfs: &Vfs,
    call: Call,
    serve: impl FnOnce() -> Result<T, VfsError>,
) -> Result<T, Errno> {
    let _serving = vfs.begin(call.request, Ino(call.ino.0));
    match catch_unwind(AssertUnwindSafe(serve)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(report(call, &error)),
        Err(panic) => {
            vfs.counters().note_panic();
            log::error!("{call}: internal error: {}", panic_text(panic.as_ref()));
            Err(Errno::EIO)
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("panic without a message")
}

/// For tests of what a sudden end does to those who wait for an answer: in debug builds, the first
/// request whose name is in this variable ends the process by SIGKILL.
#[cfg(debug_assertions)]
fn end_if_asked(request: Request) {
    use rustix::process::{Signal, getpid, kill_process};

    static ASKED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let asked = ASKED.get_or_init(|| std::env::var("DATASETRT_TEST_KILL_AT_REQUEST").ok());
    if asked.as_deref() == Some(request.name()) {
        // It does not come back.
        let _ = kill_process(getpid(), Signal::KILL);
        std::thread::park();
    }
}
