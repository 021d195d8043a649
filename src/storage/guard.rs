//! A mapped file that is cut, or whose disk fails, sends SIGBUS to whoever touches the lost pages.
//! The guard turns that into a mark on the mapping: the lost pages become zeros, the access goes
//! on, and whoever used the bytes asks [`Guarded::is_broken`] before it believes them.

use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// One guarded range of addresses. Entries are never freed, only used again, so that the signal
/// handler may walk them at any time.
struct Entry {
    start: AtomicUsize,
    /// Zero when the entry is free.
    len: AtomicUsize,
    broken: AtomicBool,
    taken: AtomicBool,
    next: *const Entry,
}

static HEAD: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());
static PAGE: AtomicUsize = AtomicUsize::new(4096);

/// A range that is guarded for as long as this lives.
pub(super) struct Guarded(&'static Entry);

// SAFETY: an entry is atomics, and a `next` that never changes after the entry was published.
#[allow(unsafe_code)]
unsafe impl Send for Guarded {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Guarded {}

impl std::fmt::Debug for Guarded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Guarded {{ broken: {} }}", self.is_broken())
    }
}

impl Guarded {
    /// Guards the mapping in `range`, which must stay mapped until the guard is dropped.
    pub(super) fn new(range: &[u8]) -> Self {
        install();
        let entry = claim_free().unwrap_or_else(publish_new);
        entry.broken.store(false, Ordering::Relaxed);
        entry
            .start
            .store(range.as_ptr() as usize, Ordering::Relaxed);
        entry.len.store(range.len(), Ordering::Release);
        Self(entry)
    }

    /// Whether bytes of the range were lost: some of what was read is zeros.
    pub(super) fn is_broken(&self) -> bool {
        self.0.broken.load(Ordering::Acquire)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.0.len.store(0, Ordering::Release);
        self.0.taken.store(false, Ordering::Release);
    }
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    let mut next: *const Entry = HEAD.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: entries are leaked, so every pointer in the list is valid for ever.
        #[allow(unsafe_code)]
        let entry = unsafe { next.as_ref() }?;
        next = entry.next;
        Some(entry)
    })
}

fn claim_free() -> Option<&'static Entry> {
    entries().find(|entry| !entry.taken.swap(true, Ordering::AcqRel))
}

fn publish_new() -> &'static Entry {
    let entry = Box::leak(Box::new(Entry {
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        broken: AtomicBool::new(false),
        taken: AtomicBool::new(true),
        next: ptr::null(),
    }));
    let mut head = HEAD.load(Ordering::Acquire);
    loop {
        entry.next = head;
        match HEAD.compare_exchange(head, entry, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return entry,
            Err(other) => head = other,
        }
    }
}

/// Takes over SIGBUS, once. The handler that Rust installs for stack overflows is replaced for this
/// signal: on Linux an overflow sends SIGSEGV.
fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        PAGE.store(rustix::param::page_size(), Ordering::Relaxed);
        // SAFETY: the action is zeroed (a valid value of this C struct) and then filled; the
        // handler only uses async-signal-safe calls.
        #[allow(unsafe_code)]
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                on_sigbus;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
        }
    });
}

extern "C" fn on_sigbus(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo; mmap and signal are async-signal-safe on Linux, and
    // the pages replaced belong to a mapping that its guard keeps in place. errno is put back.
    #[allow(unsafe_code)]
    unsafe {
        let errno = *libc::__errno_location();
        let address = (*info).si_addr() as usize;
        let page = address & !(PAGE.load(Ordering::Relaxed) - 1);
        let hit = entries().find_map(|entry| {
            let len = entry.len.load(Ordering::Acquire);
            let end = entry.start.load(Ordering::Relaxed).checked_add(len)?;
            (entry.start.load(Ordering::Relaxed)..end)
                .contains(&address)
                .then_some((entry, end))
        });
        let zeroed = hit.is_some_and(|(entry, end)| {
            entry.broken.store(true, Ordering::Release);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let at = page as *mut libc::c_void;
            libc::mmap(at, end - page, libc::PROT_READ, flags, -1, 0) != libc::MAP_FAILED
        });
        if !zeroed {
            // Not ours: the access is tried again and ends the process as it would have.
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
        }
        *libc::__errno_location() = errno;
    }
}
