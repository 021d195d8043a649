//! A file read from front to end, with cheap jumps forward.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use super::StoredFile;

/// Bytes read at once.
const BUFFER: usize = 256 << 10;

/// Reads a file in order through a buffer that survives jumps inside it.
#[derive(Debug)]
pub struct FileReader {
    file: Arc<StoredFile>,
    buffer: Vec<u8>,
    /// Where the buffer lies in the file.
    start: u64,
    /// Bytes of the buffer that hold the file's.
    filled: usize,
    /// Where the next read begins.
    position: u64,
}

impl FileReader {
    /// Starts at the front.
    #[must_use]
    pub fn new(file: Arc<StoredFile>) -> Self {
        Self::at(file, 0)
    }

    /// Starts at byte `position`.
    #[must_use]
    pub fn at(file: Arc<StoredFile>, position: u64) -> Self {
        Self {
            file,
            buffer: Vec::new(),
            start: 0,
            filled: 0,
            position,
        }
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Arc<StoredFile> {
        &self.file
    }

    fn buffered(&self) -> &[u8] {
        let filled = self.buffer.get(..self.filled).unwrap_or_default();
        self.position
            .checked_sub(self.start)
            .and_then(|skip| filled.get(usize::try_from(skip).ok()?..))
            .unwrap_or_default()
    }
}

impl Read for FileReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        if self.buffered().is_empty() {
            if out.len() >= BUFFER {
                let n = self.file.read_at(out, self.position)?;
                self.position += n as u64;
                return Ok(n);
            }
            self.buffer.resize(BUFFER, 0);
            self.filled = 0;
            self.filled = self.file.read_at(&mut self.buffer, self.position)?;
            self.start = self.position;
        }
        let buffered = self.buffered();
        let n = buffered.len().min(out.len());
        if let (Some(to), Some(from)) = (out.get_mut(..n), buffered.get(..n)) {
            to.copy_from_slice(from);
        }
        self.position += n as u64;
        Ok(n)
    }
}

impl Seek for FileReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(position) => (position, 0),
            SeekFrom::Current(by) => (self.position, by),
            SeekFrom::End(by) => (self.file.identity().len, by),
        };
        self.position = base
            .checked_add_signed(by)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_jumps_give_the_files_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let bytes: Vec<u8> = (0..600_000_u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let mut reader = FileReader::new(Arc::new(StoredFile::open(&path).unwrap()));
        let mut at = 0_usize;
        for (jump, len) in [
            (0, 10),
            (5, 300_000),
            (-299_000, 1),
            (250_000, 7),
            (3, 200_000),
        ] {
            at = at.checked_add_signed(jump).unwrap();
            let sought = reader.seek(SeekFrom::Current(jump as i64)).unwrap();
            assert_eq!(sought, at as u64);
            let mut out = vec![0; len];
            reader.read_exact(&mut out).unwrap();
            assert!(out == bytes[at..at + len], "{jump} {len}");
            at += len;
        }
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert!(rest == bytes[at..]);
        assert_eq!(reader.seek(SeekFrom::End(-1)).unwrap(), 599_999);
    }
}
