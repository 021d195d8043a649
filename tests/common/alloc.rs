//! An allocator that counts requests and remembers the largest. What a damaged file states must not
//! become a request: one for terabytes ends the process, and no panic handler sees it.

// Not every test program uses all of it.
#![allow(dead_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
    static REQUESTS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn note(size: usize) {
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(size)));
    let _ = REQUESTS.try_with(|requests| requests.set(requests.get() + 1));
}

// SAFETY: every call is passed on to the system's allocator unchanged.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: the caller's promise is the same.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the same.
        unsafe { System.dealloc(at, layout) }
    }
}

/// The result of `work` and the size of its largest allocation on this thread, in bytes.
pub(crate) fn largest_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LARGEST.replace(0);
    let result = work();
    let largest = LARGEST.replace(before);
    LARGEST.set(before.max(largest));
    (result, largest)
}

/// The result of `work` and the number of its allocations on this thread.
pub(crate) fn requests_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = REQUESTS.get();
    let result = work();
    (result, REQUESTS.get() - before)
}

/// The result of `work`, which must not ask for `limit` bytes or more at once.
pub(crate) fn within<T>(limit: usize, work: impl FnOnce() -> T) -> T {
    let (result, largest) = largest_of(work);
    assert!(largest < limit, "{largest} bytes were allocated at once");
    result
}

#[test]
fn the_allocator_sees_requests() {
    let (bytes, largest) = largest_of(|| vec![1_u8; 12_345_678]);
    assert!((bytes.len()..bytes.len() + 4096).contains(&largest));
    assert_eq!(requests_of(|| drop(Box::new(1_u8))).1, 1);
    assert_eq!(requests_of(|| ()).1, 0);
    let caught = std::panic::catch_unwind(|| within(1000, || vec![0_u8; 1000]));
    assert!(caught.is_err());
}
