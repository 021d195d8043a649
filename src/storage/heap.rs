//! The heap: what was freed goes back to the system.

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
