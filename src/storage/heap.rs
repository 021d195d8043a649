//! The heap: what was freed goes back to the system.

/// Free bytes at the end of a heap that are kept, and the size from which a block is a mapping of its
/// own, which goes back when it is freed.
#[cfg(target_env = "gnu")]
const KEPT: libc::c_int = 2 << 20;
/// Heaps that threads share. Each keeps free memory of its own.
#[cfg(target_env = "gnu")]
const HEAPS: libc::c_int = 4;

/// Bounds the free memory that the allocator keeps, for the life of the process. The allocator of glibc
/// would keep several times the largest block, in each of many heaps: more than what is in use.
pub fn bound_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the calls set numbers of the allocator and have no other preconditions.
    #[allow(unsafe_code)]
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT);
        libc::mallopt(libc::M_ARENA_MAX, HEAPS);
    }
}

/// Gives free memory of the heap back to the system, which takes a millisecond or so. The allocator
/// of glibc keeps what was freed between other blocks, and large blocks once it has seen some: the
/// memory of a burst would stay with the process for its life.
pub fn give_back_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call has no preconditions and takes the allocator's own locks.
    #[allow(unsafe_code)]
    unsafe {
        libc::malloc_trim(0);
    }
}
