//! How files appear under their final names: written beside them, synced, renamed, folder synced.

mod replace;
mod test_step;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub use replace::{Replaced, Step, StepHook, check_replaceable, replace_file, sync_folder_of};
pub use test_step::test_step;

use crate::error::{Error, Result};

/// A new file that others must not see yet. Dropped before [`StagedFile::commit`], it is removed.
#[derive(Debug)]
pub struct StagedFile {
    file: File,
    path: PathBuf,
    kept: bool,
}

impl StagedFile {
    /// Creates `path`, which must not exist.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn create(path: &Path) -> Result<Self> {
        Self::create_with_mode(path, 0o666).map_err(|source| Error::io(path, "create", source))
    }

    /// Creates `path`, which must not exist and which only its owner can read and write.
    fn create_private(path: &Path) -> io::Result<Self> {
        Self::create_with_mode(path, 0o600)
    }

    fn create_with_mode(path: &Path, mode: u32) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(path)?;
        Ok(Self {
            file,
            path: path.to_path_buf(),
            kept: false,
        })
    }

    /// Where it is now.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the written bytes durable and leaves the file in place.
    ///
    /// # Errors
    /// [`Error::Io`]; the file is then removed.
    pub fn commit(mut self) -> Result<()> {
        self.sync()?;
        self.kept = true;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.file
            .sync_all()
            .map_err(|source| Error::io(&self.path, "sync", source))
    }
}

impl Write for StagedFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.file.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes the names in folder `dir` durable.
///
/// # Errors
/// [`Error::Io`].
pub fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(|source| Error::io(dir, "sync the folder", source))
}

/// Creates folder `dir`, which must not exist, and makes its name durable.
///
/// # Errors
/// [`Error::Io`].
pub fn create_dir_synced(dir: &Path) -> Result<()> {
    fs::create_dir(dir).map_err(|source| Error::io(dir, "create the folder", source))?;
    match dir.parent() {
        Some(parent) => sync_dir(parent),
        None => Ok(()),
    }
}

/// Renames folder `from` to `to`, which must not exist, and makes that durable.
///
/// # Errors
/// [`Error::Io`]; rename(2) refuses to replace a folder that holds anything.
pub fn rename_dir_synced(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to)
        .map_err(|source| Error::io(to, "rename the finished folder to it", source))?;
    match to.parent() {
        Some(parent) => sync_dir(parent),
        None => Ok(()),
    }
}

/// Removes `dir` and everything in it.
///
/// # Errors
/// [`Error::Io`].
pub fn remove_tree(dir: &Path) -> Result<()> {
    fs::remove_dir_all(dir).map_err(|source| Error::io(dir, "remove", source))
}
