//! How files appear under their final names: written beside them, synced, renamed, folder synced.

mod attributes;
mod replace;
mod test_step;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
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

    /// A way to sync the file while it is still being written, from another thread.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn early_sync(&self) -> Result<EarlySync> {
        match self.file.try_clone() {
            Ok(file) => Ok(EarlySync {
                file,
                path: self.path.clone(),
            }),
            Err(source) => Err(Error::io(&self.path, "share", source)),
        }
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

    /// Makes the written bytes durable and renames the file to `path`, in the same folder, replacing
    /// what is there; then makes the name durable.
    ///
    /// # Errors
    /// [`Error::Io`]; before the rename, the file is then removed.
    pub fn commit_as(mut self, path: &Path) -> Result<()> {
        self.sync()?;
        fs::rename(&self.path, path)
            .map_err(|source| Error::io(path, "rename the finished file to it", source))?;
        self.kept = true;
        match parent_of(path) {
            Some(dir) => sync_dir(dir),
            None => Ok(()),
        }
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

/// Syncs a file that somebody else is writing, so that little is left to do at its end.
#[derive(Debug)]
pub struct EarlySync {
    file: File,
    path: PathBuf,
}

impl EarlySync {
    /// Makes durable what was written so far. The system reports a failure of the disk only once,
    /// so the file must be given up after an error.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sync(&self) -> Result<()> {
        self.file
            .sync_data()
            .map_err(|source| Error::io(&self.path, "sync", source))
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

/// Creates folder `dir`, which must not exist.
///
/// # Errors
/// [`Error::Io`].
pub fn create_dir(dir: &Path) -> Result<()> {
    fs::create_dir(dir).map_err(|source| Error::io(dir, "create the folder", source))
}

/// Creates folder `dir`, which must not exist, and makes its name durable.
///
/// # Errors
/// [`Error::Io`].
pub fn create_dir_synced(dir: &Path) -> Result<()> {
    create_dir(dir)?;
    match parent_of(dir) {
        Some(parent) => sync_dir(parent),
        None => Ok(()),
    }
}

/// Creates `dir` and what is missing above it, and makes the names durable. Gives the folders that
/// it created, the uppermost first.
///
/// # Errors
/// [`Error::Io`].
pub fn create_dirs_synced(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut missing: Vec<&Path> = dir
        .ancestors()
        .take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists())
        .collect();
    missing.reverse();
    for dir in &missing {
        create_dir_synced(dir)?;
    }
    Ok(missing.into_iter().map(Path::to_path_buf).collect())
}

/// Creates `dir` and what is missing above it, for this user alone.
///
/// # Errors
/// [`Error::Io`].
pub fn create_private_dirs(dir: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|source| Error::io(dir, "create the folder", source))
}

/// Puts a file of these bytes, which this user alone can read and write, in the place of `path`.
///
/// # Errors
/// [`Error::Io`]; before the last step, which is the sync of the folder, nothing is changed then.
pub fn publish_own(path: &Path, bytes: &[u8]) -> Result<()> {
    let temp = path.with_extension(format!("{}.tmp", std::process::id()));
    // Left by an earlier process with this number.
    let _ = fs::remove_file(&temp);
    let mut staged =
        StagedFile::create_private(&temp).map_err(|source| Error::io(&temp, "create", source))?;
    staged
        .write_all(bytes)
        .map_err(|source| Error::io(&temp, "write", source))?;
    staged.commit_as(path)
}

/// Removes folder `dir` if nothing is in it.
pub fn remove_empty_dir(dir: &Path) {
    let _ = fs::remove_dir(dir);
}

/// Renames folder `from` to `to`, which must not exist, and makes that durable.
///
/// # Errors
/// [`Error::Refused`] when something exists at `to`, which is then untouched; [`Error::Io`].
pub fn rename_dir_synced(from: &Path, to: &Path) -> Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;

    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        // Not every file system can do it; rename(2) itself refuses to replace a folder that holds
        // anything.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) if !super::exists(to) => {
            fs::rename(from, to)
                .map_err(|source| Error::io(to, "rename the finished folder to it", source))?;
        }
        Err(_) if super::exists(to) => return Err(already_there(to)),
        Err(error) => {
            let action = "rename the finished folder to it";
            return Err(Error::io(to, action, error.into()));
        }
    }
    match parent_of(to) {
        Some(parent) => sync_dir(parent),
        None => Ok(()),
    }
}

/// The refusal to replace what exists at `path`.
#[must_use]
pub fn already_there(path: &Path) -> Error {
    Error::refused(
        path,
        "already exists and is never overwritten (remove it, or choose another name)",
    )
}

/// The folder that holds `path`; the working folder for a bare name.
fn parent_of(path: &Path) -> Option<&Path> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Some(Path::new(".")),
        other => other,
    }
}

/// A lock on a folder that the system gives back when its owner ends, however that happens.
#[derive(Debug)]
pub struct DirLock {
    /// The open folder holds the lock.
    _open: File,
    keeps_out: bool,
}

impl DirLock {
    /// Takes the lock, or gives `None` while somebody else has it. Where the file system has no
    /// locks on folders (as NFS) it is given to everybody: see [`DirLock::keeps_out`].
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn try_take(dir: &Path) -> Result<Option<Self>> {
        use rustix::fs::{FlockOperation, flock};
        use rustix::io::Errno;

        let open = File::open(dir).map_err(|source| Error::io(dir, "open", source))?;
        let lock = |keeps_out| {
            let _open = open.try_clone()?;
            Ok(Some(Self { _open, keeps_out }))
        };
        match flock(&open, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => lock(true),
            // NFS locks only what is open for writing, and answers EBADF for a folder.
            Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::NOSYS | Errno::BADF) => lock(false),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
        .map_err(|source| Error::io(dir, "lock", source))
    }

    /// Whether nobody else can have it: only then does it tell that the folder is nobody's.
    #[must_use]
    pub fn keeps_out(&self) -> bool {
        self.keeps_out
    }
}

/// Removes `dir` and everything in it.
///
/// # Errors
/// [`Error::Io`].
pub fn remove_tree(dir: &Path) -> Result<()> {
    fs::remove_dir_all(dir).map_err(|source| Error::io(dir, "remove", source))
}
