//! Memory whose size comes from a file or from a caller.

use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// From this size on, a buffer is a mapping of its own: it takes memory only as far as it is filled,
/// and all of it goes back when it is dropped.
const MAPPED: usize = 128 << 10;

/// Bytes that could be had. The system may refuse them: nothing ends the process for that.
#[derive(Debug, Default)]
pub struct Buffer(Kind);

#[derive(Debug)]
enum Kind {
    Heap(Vec<u8>),
    Mapped(MmapMut),
}

impl Default for Kind {
    fn default() -> Self {
        Self::Heap(Vec::new())
    }
}

impl Buffer {
    /// `len` zeros.
    ///
    /// # Errors
    /// [`io::ErrorKind::OutOfMemory`] when there is not so much memory.
    pub fn zeroed(len: u64) -> io::Result<Self> {
        let refused = |_| io::Error::from(io::ErrorKind::OutOfMemory);
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if len >= MAPPED {
            let mapped = MmapMut::map_anon(len).map_err(refused)?;
            return Ok(Self(Kind::Mapped(mapped)));
        }
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(len)
            .map_err(|_| io::ErrorKind::OutOfMemory)?;
        bytes.resize(len, 0);
        Ok(Self(Kind::Heap(bytes)))
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kind::Heap(bytes) => bytes,
            Kind::Mapped(bytes) => bytes,
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Kind::Heap(bytes) => bytes,
            Kind::Mapped(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_zeros_of_its_size_or_an_error() {
        for len in [0, 1, 5000, MAPPED - 1, MAPPED, 3 << 20] {
            let mut buffer = Buffer::zeroed(len as u64).unwrap();
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(9);
        }
        for len in [1 << 60, u64::MAX] {
            let kind = Buffer::zeroed(len).unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::OutOfMemory);
        }
    }
}
