//! A queue between threads that is bounded by bytes, so that memory does not grow with the size of
//! samples.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A first-in, first-out queue. One item may exceed the bound when it is alone.
pub(super) struct ByteQueue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    most: usize,
}

struct State<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    closed: bool,
}

/// The other side is gone.
#[derive(Debug)]
pub(super) struct Closed;

impl<T> ByteQueue<T> {
    /// Room for `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        Self {
            state: Mutex::new(State {
                items: VecDeque::new(),
                bytes: 0,
                closed: false,
            }),
            changed: Condvar::new(),
            most,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item that stands for `bytes` bytes of memory; waits until there is room.
    pub(super) fn push(&self, item: T, bytes: usize) -> Result<(), Closed> {
        let mut state = self.lock();
        while !state.closed && !state.items.is_empty() && state.bytes + bytes > self.most {
            state = self.wait(state);
        }
        if state.closed {
            return Err(Closed);
        }
        state.items.push_back((item, bytes));
        state.bytes += bytes;
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Takes the oldest item; waits for one. `None` when the queue is closed and empty.
    pub(super) fn pop(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some((item, bytes)) = state.items.pop_front() {
                state.bytes -= bytes;
                drop(state);
                self.changed.notify_all();
                return Some(item);
            }
            if state.closed {
                return None;
            }
            state = self.wait(state);
        }
    }

    /// Lets nothing more in; what is there can still be taken.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// As [`ByteQueue::close`], and drops what is there.
    pub(super) fn abandon(&self) {
        let mut state = self.lock();
        state.closed = true;
        let items = std::mem::take(&mut state.items);
        state.bytes = 0;
        drop(state);
        self.changed.notify_all();
        drop(items);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn memory_in_the_queue_is_bounded() {
        let queue = ByteQueue::new(10);
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..1000_usize {
                    let bytes = if n == 500 { 40 } else { 3 };
                    queue.push((n, bytes), bytes).unwrap();
                    inside.fetch_add(bytes, Ordering::SeqCst);
                }
                queue.close();
            });
            for expected in 0..1000 {
                let (n, bytes) = queue.pop().unwrap();
                assert_eq!(n, expected);
                // Each side may be one item ahead of its count.
                inside.fetch_sub(bytes, Ordering::SeqCst);
                assert!(inside.load(Ordering::SeqCst).wrapping_add(80) <= 10 + 2 * 80);
            }
            assert!(queue.pop().is_none());
        });
    }

    #[test]
    fn a_closed_queue_wakes_both_sides() {
        let queue = ByteQueue::new(1);
        queue.push(1, 1).unwrap();
        std::thread::scope(|scope| {
            let pusher = scope.spawn(|| queue.push(2, 1).is_err());
            queue.abandon();
            assert!(pusher.join().unwrap());
        });
        assert!(queue.pop().is_none());
    }
}
