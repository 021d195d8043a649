//! Threads for requests that take their time. An idle one waits a while for the next request, since
//! making a thread costs more than a round trip to the kernel.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::replies::release_buffer;
use crate::cache::release_buffers;

/// A thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// As many threads as there are jobs at once; the kernel bounds its requests in flight.
#[derive(Clone, Default)]
pub(super) struct Workers(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Signalled when a job waits for an idle thread.
    waiting: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
}

impl Workers {
    /// Runs `job`, which must not panic, on a thread that has nothing else to do.
    ///
    /// # Errors
    /// When there is none and none can be started; `job` was dropped then.
    pub(super) fn run(&self, job: Job) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.idle > state.jobs.len() {
            state.jobs.push_back(job);
            drop(state);
            self.0.waiting.notify_one();
            return Ok(());
        }
        drop(state);
        let shared = Arc::clone(&self.0);
        let worker = thread::Builder::new().name("slow".to_owned());
        worker.spawn(move || shared.work(job)).map(drop)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, first: Job) {
        let mut next = Some(first);
        while let Some(job) = next {
            job();
            // Many workers may wait for a disk at once: each begins a job with no more than its stack.
            release_buffer();
            release_buffers();
            let mut state = self.lock();
            state.idle += 1;
            let no_job = |state: &mut State| state.jobs.is_empty();
            let waited = self.waiting.wait_timeout_while(state, IDLE, no_job);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            next = state.jobs.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn jobs_run_side_by_side_and_idle_threads_are_used_again() {
        let workers = Workers::default();
        let (sender, done) = mpsc::channel();
        let job = |sender: &mpsc::Sender<_>| {
            let sender = sender.clone();
            Box::new(move || sender.send(thread::current().id()).unwrap())
        };
        workers.run(job(&sender)).unwrap();
        let first = done.recv().unwrap();
        while workers.0.lock().idle == 0 {
            thread::yield_now();
        }
        workers.run(job(&sender)).unwrap();
        assert_eq!(done.recv().unwrap(), first);

        let (release, held) = mpsc::channel::<()>();
        let blocked = Box::new(move || {
            // Waits for the other end to go.
            let _ = held.recv();
        });
        workers.run(blocked).unwrap();
        workers.run(job(&sender)).unwrap();
        done.recv().unwrap();
        release.send(()).unwrap();
    }
}
