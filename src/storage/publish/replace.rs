//! Replaces one existing file: at each moment, also after a crash, its name gives the old file
//! whole or the new one whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::Access;

use super::StagedFile;
use super::attributes::Attributes;
use crate::error::{Error, Result};
use crate::storage::real_path;

/// The steps of [`replace_file`], for tests that stop it at each of them.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Create the temporary file beside the target.
    CreateTemp,
    /// Write the new bytes to it.
    Write,
    /// Give it the target's owner, mode and extended attributes.
    CopyMode,
    /// Make them durable.
    SyncFile,
    /// Rename it over the target.
    Rename,
    /// Make the new name durable.
    SyncDir,
}

/// Hears of each step before it is taken; its error stands for the step's own failure.
#[doc(hidden)]
pub type StepHook<'a> = dyn FnMut(Step) -> io::Result<()> + 'a;

/// How far a replacement came.
#[derive(Debug)]
pub enum Replaced {
    /// The new file is there and will be there after a crash.
    Durable,
    /// The new file is there; a crash may bring the old one back, as the folder was not synced.
    Unsynced(Error),
}

/// Puts `bytes` in the place of `target`, a file or links that end at one (which stay). The new
/// file has the mode, owner and extended attributes of the old one. An error means that the old file is untouched and
/// that no temporary file of this call is left.
///
/// # Errors
/// [`Error::Io`] naming `target`.
pub fn replace_file(target: &Path, bytes: &[u8], hook: &mut StepHook<'_>) -> Result<Replaced> {
    let failed = |action: &'static str| move |source| Error::io(target, action, source);

    let real = real_path(target)?;
    let folder = real.parent().unwrap_or(Path::new("/"));
    let old = Attributes::of(&real)?;
    // A folder that cannot be opened cannot be synced after the rename either.
    let folder_file = File::open(folder).map_err(failed("open its folder"))?;

    let mut temp = hook(Step::CreateTemp)
        .and_then(|()| create_temp(folder))
        .map_err(failed("create a temporary file beside it"))?;
    hook(Step::Write)
        .and_then(|()| temp.write_all(bytes))
        .and_then(|()| temp.flush())
        .map_err(failed("write its new content"))?;
    // Writing takes the set-id bits from a file again, so its mode comes after its content.
    hook(Step::CopyMode).map_err(failed("give its owner and mode to the new file"))?;
    old.give_to(&temp.file, target)?;
    hook(Step::SyncFile)
        .and_then(|()| temp.file.sync_all())
        .map_err(failed("sync its new content"))?;
    hook(Step::Rename)
        .and_then(|()| temp.rename_over(&real))
        .map_err(failed("replace it"))?;
    match hook(Step::SyncDir).and_then(|()| folder_file.sync_all()) {
        Ok(()) => Ok(Replaced::Durable),
        Err(source) => Ok(Replaced::Unsynced(Error::io(
            target,
            "sync its folder",
            source,
        ))),
    }
}

/// Makes the name of `target`, links resolved, durable once more.
///
/// # Errors
/// [`Error::Io`] naming `target`.
pub fn sync_folder_of(target: &Path, hook: &mut StepHook<'_>) -> Result<()> {
    let real = real_path(target)?;
    let folder = real.parent().unwrap_or(Path::new("/"));
    hook(Step::SyncDir)
        .and_then(|()| File::open(folder)?.sync_all())
        .map_err(|source| Error::io(target, "sync its folder", source))
}

/// Whether the system would let this process replace `target`, links resolved.
///
/// # Errors
/// [`Error::Io`] naming `target`: a folder that may not be read, written and searched, or a file
/// system that is read-only, or something that a new file cannot keep.
pub fn check_replaceable(target: &Path) -> Result<()> {
    let real = real_path(target)?;
    let folder = real.parent().unwrap_or(Path::new("/"));
    // Reading is for the sync: a folder is opened for it.
    let wanted = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::access(folder, wanted)
        .map_err(|errno| Error::io(target, "write to its folder", errno.into()))?;
    let old = Attributes::of(&real)?;
    if old.are_uncommon() {
        // Only the system knows what it lets this process give to a file.
        let temp = create_temp(folder)
            .map_err(|source| Error::io(target, "create a temporary file beside it", source))?;
        old.give_to(&temp.file, target)?;
    }
    Ok(())
}

impl StagedFile {
    /// Gives the file the name `target`, in place of what has it now.
    fn rename_over(mut self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        self.kept = true;
        Ok(())
    }
}

/// How many names are tried: each may be taken by what a killed process left behind.
const MOST_NAMES: u32 = 10_000;

/// A new file in `folder` that only its owner can read. Files that are in the way are another
/// operation's: they are passed by and left alone.
fn create_temp(folder: &Path) -> io::Result<StagedFile> {
    let mut taken = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..MOST_NAMES {
        match StagedFile::create_private(&temp_path(folder)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = error,
            other => return other,
        }
    }
    Err(taken)
}

fn temp_path(folder: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    folder.join(format!(
        ".datasetrt-manifest-{}-{n}.tmp",
        std::process::id()
    ))
}
