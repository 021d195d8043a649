//! The file of `--log-file`, which can be opened anew after it was rotated.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::fs::{Stat, fstat};
use rustix::stdio::dup2_stderr;

/// The log of this process.
static LOG: OnceLock<LogFile> = OnceLock::new();

/// A log file, shared by all who write to it.
#[derive(Clone, Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: Arc<Mutex<File>>,
}

/// Opens the log of this process at `path`.
///
/// # Errors
/// When it cannot be opened for appending.
pub(super) fn open(path: &Path) -> io::Result<LogFile> {
    let log = LogFile {
        path: path.to_path_buf(),
        file: Arc::new(Mutex::new(append(path)?)),
    };
    Ok(LOG.get_or_init(|| log).clone())
}

/// Opens the log at its path again, where somebody may have moved it away. Where standard error was the
/// log, it is the new one.
///
/// # Errors
/// When it cannot be opened; the log stays where it was.
pub(super) fn reopen() -> io::Result<()> {
    let Some(log) = LOG.get() else {
        return Ok(());
    };
    let new = append(&log.path)?;
    let mut file = log.file.lock().unwrap_or_else(PoisonError::into_inner);
    if is_same(&fstat(&*file)?, &fstat(io::stderr())?) {
        dup2_stderr(&new)?;
    }
    *file = new;
    Ok(())
}

fn is_same(one: &Stat, two: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino)
}

/// It tells names and values of caches that others may not be able to read.
fn append(path: &Path) -> io::Result<File> {
    let mut opening = OpenOptions::new();
    opening.create(true).append(true).mode(0o600).open(path)
}

impl Write for LogFile {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
