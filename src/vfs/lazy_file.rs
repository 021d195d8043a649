//! Files that are made when somebody first asks for them, by one thread, while others wait.

use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::VfsError;
use crate::error::{Error, Result};
use crate::storage::ScratchFile;

/// Bytes that are written at once.
const BUFFER: usize = 256 << 10;

/// A file that may not have been made yet. What failed is tried again by the next who asks: the
/// disk may have been full.
#[derive(Debug, Default)]
pub(super) struct LazyFile {
    made: OnceLock<ScratchFile>,
    making: Mutex<()>,
    failed: AtomicBool,
}

impl LazyFile {
    /// Whether it has been made.
    pub(super) fn is_made(&self) -> bool {
        self.made.get().is_some()
    }

    /// The file, which `write` writes if nobody has yet.
    pub(super) fn get(
        &self,
        what: &str,
        write: impl FnOnce(BufWriter<ScratchFile>) -> Result<BufWriter<ScratchFile>>,
    ) -> Result<&ScratchFile, VfsError> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let _turn = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let made = ScratchFile::create()
            .and_then(|file| write(BufWriter::with_capacity(BUFFER, file)))
            .and_then(|mut out| {
                out.flush().map_err(|source| written(what, source))?;
                out.into_inner()
                    .map_err(|error| written(what, error.into_error()))
            });
        match made {
            Ok(made) => Ok(self.made.get_or_init(|| made)),
            Err(error) => {
                if !self.failed.swap(true, Ordering::Relaxed) {
                    log::error!("{what} cannot be made: {}", error.chain());
                }
                Err(VfsError::Damaged(Arc::new(error)))
            }
        }
    }
}

/// A failure to write the file called `what`.
pub(super) fn written(what: &str, source: std::io::Error) -> Error {
    Error::io(what, "write its temporary file", source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_made_once_and_a_failure_is_tried_again() {
        let file = LazyFile::default();
        let failure = file.get("it", |_| Err(Error::refused("x", "no")));
        assert!(matches!(failure, Err(VfsError::Damaged(_))) && !file.is_made());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let made = file.get("it", |mut out| {
                        assert!(!file.is_made());
                        out.write_all(b"text").unwrap();
                        Ok(out)
                    });
                    assert_eq!(made.unwrap().len(), 4);
                });
            }
        });
    }
}
