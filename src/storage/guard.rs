//! A mapped file that is cut, or whose disk fails, sends SIGBUS to whoever touches the lost pages.
//! The guard turns that into a mark on the mapping: the lost pages become zeros, the access goes
//! on, and whoever used the bytes asks [`Guarded::is_broken`] before it believes them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
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

    /// Maps `file` in the place of the whole range, which is of its length. Whoever reads meanwhile
    /// may get zeros, and is to be told so in another way.
    pub(super) fn map_again(&self, file: &File) -> io::Result<()> {
        // Before the pages are there: bytes that are lost again from then on are marked again.
        self.0.broken.store(false, Ordering::SeqCst);
        let at = self.0.start.load(Ordering::Relaxed) as *mut libc::c_void;
        let len = self.0.len.load(Ordering::Relaxed);
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: the range is a mapping that this guard keeps in place; it is only read, as bytes that
        // may change at any time.
        #[allow(unsafe_code)]
        let mapped = unsafe { libc::mmap(at, len, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            self.0.broken.store(true, Ordering::SeqCst);
            return Err(error);
        }
        Ok(())
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

/// What is done about a SIGBUS that is not ours: what was there before. Never freed.
static EARLIER: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// Takes over SIGBUS, once. What handled it before still does, where no guarded range is concerned: in
/// a Rust program the handler for stack overflows, which for others ends the process.
fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        PAGE.store(rustix::param::page_size(), Ordering::Relaxed);
        // SAFETY: the action is zeroed, a valid value of this C struct, and filled by the system.
        #[allow(unsafe_code)]
        let earlier = unsafe {
            let mut earlier: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut earlier);
            earlier
        };
        EARLIER.store(Box::leak(Box::new(earlier)), Ordering::Release);
        arm();
    });
}

/// Has SIGBUS come to us. Async-signal-safe.
fn arm() {
    // SAFETY: the action is zeroed (a valid value of this C struct) and then filled; the handler only
    // uses async-signal-safe calls.
    #[allow(unsafe_code)]
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            on_sigbus;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
    }
}

extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo, whose address is set when the kernel itself found a
    // fault (si_code above 0); mmap is async-signal-safe on Linux, and the pages replaced belong to a
    // mapping that its guard keeps in place. errno is put back.
    #[allow(unsafe_code)]
    unsafe {
        let errno = *libc::__errno_location();
        let is_fault = (*info).si_code > 0;
        if !(is_fault && zero_lost_pages((*info).si_addr() as usize)) {
            call_earlier(signal, info, context, is_fault);
        }
        *libc::__errno_location() = errno;
    }
}

/// Puts zeros where a guarded range has lost bytes, from the page of `address` on. Whether that is one.
fn zero_lost_pages(address: usize) -> bool {
    let page = address & !(PAGE.load(Ordering::Relaxed) - 1);
    let hit = entries().find_map(|entry| {
        let len = entry.len.load(Ordering::Acquire);
        let start = entry.start.load(Ordering::Relaxed);
        let end = start.checked_add(len)?;
        (start..end).contains(&address).then_some((entry, end))
    });
    hit.is_some_and(|(entry, end)| {
        entry.broken.store(true, Ordering::Release);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let at = page as *mut libc::c_void;
        // SAFETY: the pages belong to a mapping that its guard keeps in place, which is only read.
        #[allow(unsafe_code)]
        let mapped = unsafe { libc::mmap(at, end - page, libc::PROT_READ, flags, -1, 0) };
        mapped != libc::MAP_FAILED
    })
}

/// Leaves a SIGBUS that is not ours to whoever handled it before.
///
/// # Safety
/// With the arguments of a signal handler, inside one.
#[allow(unsafe_code)]
unsafe fn call_earlier(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    is_fault: bool,
) {
    // SAFETY: the pointer is null or to a leaked value that never changes; its handler has the type that
    // its flags say; sigaction and raise are async-signal-safe.
    unsafe {
        let earlier = EARLIER.load(Ordering::Acquire).as_ref();
        let handler = earlier.map_or(libc::SIG_DFL, |earlier| earlier.sa_sigaction);
        match (handler, earlier) {
            (libc::SIG_IGN, _) if !is_fault => {}
            (libc::SIG_DFL | libc::SIG_IGN, _) | (_, None) => {
                // A fault is met again and ends the process; a signal that was sent comes again.
                libc::signal(signal, libc::SIG_DFL);
                if !is_fault {
                    libc::raise(signal);
                }
            }
            (handler, Some(earlier)) => {
                if earlier.sa_flags & libc::SA_SIGINFO != 0 {
                    type Handler =
                        extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
                    std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
                } else {
                    std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler)(signal);
                }
                // It may have given the signal back to the system, as that of Rust does. What was
                // only sent is over by now, and the guard goes on.
                if !is_fault {
                    arm();
                }
            }
        }
    }
}
