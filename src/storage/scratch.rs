//! Files without a name: written once, read by offset, gone with the process.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A temporary file that no folder lists. What was written can be read back while it is open.
#[derive(Debug)]
pub struct ScratchFile {
    file: File,
    len: u64,
}

impl ScratchFile {
    /// A new empty file in `TMPDIR`, else in `/var/tmp`, else in `/tmp`: it may grow large, and
    /// `/tmp` often lies in memory.
    ///
    /// # Errors
    /// [`Error::Io`] for the last folder that was tried.
    pub fn create() -> Result<Self> {
        let mut failure = None;
        for dir in Self::folders() {
            match unnamed(&dir).or_else(|_| unlinked(&dir)) {
                Ok(file) => return Ok(Self { file, len: 0 }),
                Err(source) => failure = Some(Error::io(dir, "create a temporary file in", source)),
            }
        }
        Err(failure.unwrap_or_else(|| Error::refused("/tmp", "no folder for temporary files")))
    }

    /// The folders in which [`ScratchFile::create`] makes files.
    #[must_use]
    pub fn folders() -> Vec<PathBuf> {
        match std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty()) {
            Some(dir) => vec![PathBuf::from(dir)],
            None => vec![PathBuf::from("/var/tmp"), PathBuf::from("/tmp")],
        }
    }

    /// Bytes written so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts the bytes from `offset` on into `out` and says how many there are: `out.len()`, or what
    /// the file has from there.
    ///
    /// # Errors
    /// What the system says; never a short read without an error.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let len = self.len.saturating_sub(offset).min(out.len() as u64);
        let len = usize::try_from(len).unwrap_or(0);
        let out = out.get_mut(..len).unwrap_or_default();
        self.file.read_exact_at(out, offset)?;
        Ok(len)
    }
}

impl Write for ScratchFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.file.write(buf)?;
        self.len += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

fn unnamed(dir: &Path) -> io::Result<File> {
    let flags = i32::try_from(rustix::fs::OFlags::TMPFILE.bits()).unwrap_or(0);
    options().custom_flags(flags).open(dir)
}

/// For file systems that have no unnamed files.
fn unlinked(dir: &Path) -> io::Result<File> {
    for attempt in 0..16 {
        let nanos = std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .map_or(0, |elapsed| elapsed.subsec_nanos());
        let name = format!(".datasetrt-{}-{nanos}-{attempt}", std::process::id());
        let path = dir.join(name);
        match options().create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(file) => return std::fs::remove_file(&path).map(|()| file),
        }
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_back_and_no_name_is_left() {
        let dir = tempfile::tempdir().unwrap();
        for make in [unnamed, unlinked] {
            let Ok(file) = make(dir.path()) else {
                continue;
            };
            let mut scratch = ScratchFile { file, len: 0 };
            assert!(scratch.is_empty());
            scratch.write_all(b"hello").unwrap();
            let mut out = [0; 8];
            assert_eq!(scratch.read_at(1, &mut out).unwrap(), 4);
            assert_eq!(&out[..4], b"ello");
            assert_eq!(scratch.read_at(5, &mut out).unwrap(), 0);
            assert_eq!(scratch.read_at(u64::MAX, &mut out).unwrap(), 0);
            assert_eq!(scratch.len(), 5);
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
        assert!(unlinked(&dir.path().join("absent")).is_err());
    }
}
