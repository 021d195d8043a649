//! The one way to answer the kernel: counts and times each request, keeps its panics in, and decides which
//! thread serves it.
//!
//! An event thread serves a request itself unless that takes long ([`VfsError::TakesLong`]), or unless all
//! other event threads are at a request: then a worker does it. So one event thread is always free for the
//! next request, whatever the others wait for. Nothing here knows a transport: a request is a closure over
//! the tree, and its answer goes to a [`Reply`].

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rustix::io::Errno;

use super::errno::{Call, report};
use super::patience::Patience;
use super::workers::Workers;
use crate::vfs::{Ino, OnThread, Request, Vfs, VfsError};

/// Where a refusal goes.
pub(super) trait Refuse: Sized {
    fn error(self, errno: Errno);
}

/// Where the answer to one request goes. It may be filled while the request is served.
pub(super) trait Reply: Refuse + Send + 'static {
    type Answer;
    fn answer(self, answer: Self::Answer);
}

/// Serves one [`Vfs`] to any number of event threads.
pub(super) struct Dispatcher {
    vfs: Arc<Vfs>,
    workers: Workers,
    patience: Patience,
    /// Event threads: how many there are, and how many are at a request.
    threads: usize,
    busy: AtomicUsize,
}

/// An event thread at a request, until dropped.
struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Dispatcher {
    /// For this many event threads.
    pub(super) fn new(vfs: Arc<Vfs>, threads: usize) -> Self {
        let workers = Workers::default();
        Self {
            patience: Patience::new(&vfs, &workers),
            vfs,
            workers,
            threads,
            busy: AtomicUsize::new(0),
        }
    }

    /// For work that may wait for a disk that hangs.
    pub(super) fn patience(&self) -> &Patience {
        &self.patience
    }

    /// Serves one request by `serve`, which is called again, on a worker, when it takes long. Until then
    /// it must have put nothing into the reply.
    pub(super) fn serve<R: Reply>(
        &self,
        request: Request,
        ino: Ino,
        mut reply: R,
        mut serve: impl FnMut(&Arc<Vfs>, &mut R) -> Result<R::Answer, VfsError> + Send + 'static,
    ) {
        self.count(request);
        let (call, start) = (Call { request, ino }, Instant::now());
        let others = self.busy.fetch_add(1, Ordering::Relaxed);
        let _busy = Busy(&self.busy);
        if others + 1 < self.threads {
            let serve = || serve(&self.vfs, &mut reply);
            match guarded(&self.vfs, call, OnThread::Event, serve) {
                Err(VfsError::TakesLong) => {}
                answer => return finish(&self.vfs, call, start, answer, reply),
            }
        }
        let vfs = Arc::clone(&self.vfs);
        let job = move || {
            let answer = guarded(&vfs, call, OnThread::Worker, || serve(&vfs, &mut reply));
            finish(&vfs, call, start, answer, reply);
        };
        if let Err(error) = self.workers.run(Box::new(job)) {
            // The reply was dropped with the closure, which answers EIO.
            log::error!("{call}: cannot start a thread: {error}");
        }
    }

    /// Serves one request with an error that is known without looking.
    pub(super) fn refuse(&self, request: Request, reply: impl Refuse, errno: Errno) {
        self.count(request);
        reply.error(errno);
    }

    /// Counts a request, all that is to be done about one without an answer.
    pub(super) fn count(&self, request: Request) {
        self.vfs.counters().note(request);
        #[cfg(debug_assertions)]
        end_if_asked(request);
    }
}

fn finish<R: Reply>(
    vfs: &Vfs,
    call: Call,
    start: Instant,
    answer: Result<R::Answer, VfsError>,
    reply: R,
) {
    vfs.note_time(call.request, call.ino, start.elapsed());
    match answer {
        Ok(answer) => reply.answer(answer),
        Err(error) => reply.error(report(call, &error)),
    }
}

/// Runs a request or a part of one. fuser has no panic guard: a panic that got through would end the
/// event thread for good and leave a mount that answers nobody.
pub(super) fn guarded<T>(
    vfs: &Vfs,
    call: Call,
    thread: OnThread,
    serve: impl FnOnce() -> Result<T, VfsError>,
) -> Result<T, VfsError> {
    let _serving = vfs.begin(call.request, call.ino, thread);
    catch_unwind(AssertUnwindSafe(serve)).unwrap_or_else(|panic| {
        vfs.counters().note_panic();
        log::error!("{call}: internal error: {}", panic_text(panic.as_ref()));
        Err(VfsError::Panic)
    })
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
