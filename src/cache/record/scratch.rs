//! Buffers of a thread that reads records: in the steady state nothing is allocated.

use std::cell::RefCell;
use std::ops::Deref;

use crate::storage;

/// Buffers above this size are given back after use.
const KEEP_BUFFER: usize = 4 << 20;

/// Buffers of one thread.
#[derive(Default)]
pub(super) struct Scratch {
    /// The usual spelling of the sample's metadata.
    pub(super) usual: Vec<u8>,
    /// The record's first bytes.
    pub(super) head: Buffer,
    /// A stored payload that did not fit into `head`, or an unusual envelope.
    pub(super) rest: Buffer,
}

/// Bytes that keep their place in memory, and what they hold, while the length in use goes up and
/// down: nothing is cleared that will be overwritten.
#[derive(Default)]
pub(super) struct Buffer {
    bytes: storage::Buffer,
    len: usize,
}

/// There is no memory of this many bytes.
pub(super) struct NoMemory(pub(super) u64);

impl Buffer {
    /// Sets the length in use; the bytes are whatever was there, or zeros.
    pub(super) fn sized(&mut self, len: u64) -> Result<&mut [u8], NoMemory> {
        self.len = 0;
        if (self.bytes.len() as u64) < len {
            self.bytes = storage::Buffer::default();
            self.bytes = storage::Buffer::zeroed(len).map_err(|_| NoMemory(len))?;
        }
        self.len = usize::try_from(len).map_err(|_| NoMemory(len))?;
        Ok(self.bytes.get_mut(..self.len).unwrap_or_default())
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Gives back this thread's buffers.
pub fn release_buffers() {
    SCRATCH.take();
}

/// Runs `work` with this thread's buffers. Should it panic, the thread starts with new ones.
pub(super) fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    let mut scratch = SCRATCH.take();
    let result = work(&mut scratch);
    if scratch.usual.capacity() > KEEP_BUFFER {
        scratch.usual = Vec::new();
    }
    for buffer in [&mut scratch.head, &mut scratch.rest] {
        if buffer.bytes.len() > KEEP_BUFFER {
            *buffer = Buffer::default();
        }
    }
    SCRATCH.set(scratch);
    result
}
