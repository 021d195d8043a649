//! A look at a mountpoint, where a dead or hung mount may lie.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use super::super::mount_table;
use super::mount_id::MountId;
use super::mountpoint::open_directory;
use super::turn::Turn;
use super::unmount_exactly;
use crate::error::{Error, Result};

/// How long a look at a path may take before it counts as hung.
pub(super) const LOOK: Duration = Duration::from_secs(10);

/// Leftovers may lie one over the other; more than this is somebody mounting in a loop.
const MAX_LEFTOVERS: usize = 16;

/// `mountpoint`, which is absolute, without symlinks. The last component is left alone where the mount
/// on it is dead.
///
/// # Errors
/// When it does not exist, or a hung mount lies in the way.
pub fn resolve(mountpoint: &Path) -> Result<PathBuf> {
    let path = mountpoint.to_path_buf();
    match in_time(move || fs::canonicalize(path)) {
        Some(Ok(resolved)) => Ok(resolved),
        Some(Err(error)) if is_dead(&error) => {
            let parent = mountpoint.parent().unwrap_or(Path::new("/"));
            let name = mountpoint.file_name().unwrap_or_default();
            let parent =
                fs::canonicalize(parent).map_err(|e| Error::io(parent, "look at the folder", e))?;
            Ok(parent.join(name))
        }
        Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => {
            let reason = "the mountpoint does not exist (make it first: mkdir -p)";
            Err(Error::refused(mountpoint, reason))
        }
        Some(Err(source)) => Err(Error::io(mountpoint, "look at the mountpoint", source)),
        None => Err(hung(mountpoint)),
    }
}

/// What a mount answers whose daemon is gone.
fn is_dead(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::NOTCONN, Errno::CONNABORTED]
        .iter()
        .any(|dead| code == Some(dead.raw_os_error()))
}

/// Unmounts what killed daemons of ours left at `mountpoint`. Where there was something to clear, the
/// result is to be kept until this start has its turn at the mountpoint: it keeps others from clearing
/// what this one mounts.
pub(super) fn clear_leftovers(mountpoint: &Path) -> Result<Option<Turn>> {
    let mut turn = None;
    for _ in 0..MAX_LEFTOVERS {
        let Some(top) = mount_table::top_at(mountpoint)? else {
            return Ok(turn);
        };
        let ours = top.is_ours();
        let path = mountpoint.to_path_buf();
        match in_time(move || look(&path)) {
            // Another start may be about to clear it: it is looked at again in turn.
            Some(Err(error)) if is_dead(&error) && ours && turn.is_none() => {
                turn = Some(wait_to_clear(mountpoint)?);
            }
            Some(Err(error)) if is_dead(&error) && ours => {
                log::warn!(
                    "{}: unmounting a dead mount that a killed daemon left behind",
                    mountpoint.display()
                );
                unmount_exactly(&top, MountId::numbered(top.id))?;
            }
            Some(Err(error)) if is_dead(&error) => {
                let what = top.fstype.to_string_lossy();
                return Err(still_mounted(
                    mountpoint,
                    &format!("a dead mount ({what}) lies here"),
                ));
            }
            None if !ours => return Err(hung(mountpoint)),
            Some(_) if !ours => return Ok(turn),
            _ => {
                return Err(still_mounted(
                    mountpoint,
                    "a datasetrt-mount is already mounted here",
                ));
            }
        }
    }
    Err(still_mounted(mountpoint, "many dead mounts lie here"))
}

/// The right to clear `mountpoint`. The directory itself is covered by what is to be cleared, so the one
/// that it lies in is locked.
fn wait_to_clear(mountpoint: &Path) -> Result<Turn> {
    let folder = mountpoint.parent().unwrap_or(Path::new("/"));
    let directory = open_directory(folder)
        .map_err(|error| Error::io(folder, "look at the folder", error.into()))?;
    Ok(Turn::wait(directory, LOOK))
}

/// How a mount answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answer {
    /// At once.
    Alive,
    /// Its daemon is gone.
    Dead,
    /// Not in time.
    Hung,
}

/// Asks the mount at `path`, and gives it until `limit`.
#[must_use]
pub fn answer(path: &Path, limit: Duration) -> Answer {
    let path = path.to_path_buf();
    match within(limit, move || look(&path)) {
        Some(Err(error)) if is_dead(&error) => Answer::Dead,
        Some(_) => Answer::Alive,
        None => Answer::Hung,
    }
}

/// Asks whatever is mounted at `path`. The kernel may know the attributes of a dead mount by heart, but
/// not its numbers of blocks.
fn look(path: &Path) -> io::Result<()> {
    fs::metadata(path)?;
    rustix::fs::statvfs(path)?;
    Ok(())
}

pub(super) fn still_mounted(mountpoint: &Path, found: &str) -> Error {
    let shown = quoted(mountpoint);
    Error::refused(
        mountpoint,
        format!("{found}; unmount it first: fusermount3 -u {shown}"),
    )
}

pub(super) fn hung(mountpoint: &Path) -> Error {
    let shown = quoted(mountpoint);
    let seconds = LOOK.as_secs();
    let reason = format!(
        "no answer in {seconds} s, a hung mount lies here or above; see fusermount3 -uz {shown}"
    );
    Error::refused(mountpoint, reason)
}

/// `path` as a shell takes it.
#[must_use]
pub fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text
        .chars()
        .all(|c| c.is_alphanumeric() || "/._-+:@%,".contains(c))
    {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Runs `look` where it cannot hang us.
pub(super) fn in_time<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    within(LOOK, look)
}

/// What `look` gives, if it comes back before `limit` is over; else its thread is given up.
pub fn within<T: Send + 'static>(
    limit: Duration,
    look: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let looker = thread::Builder::new()
        .name("look".to_owned())
        .spawn(move || {
            // Nobody listens any more after the time is over.
            let _ = sender.send(look());
        });
    looker.ok()?;
    receiver.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_can_be_pasted_into_a_shell() {
        assert_eq!(quoted(Path::new("/mnt/a,b")), "/mnt/a,b");
        assert_eq!(quoted(Path::new("/mnt/it's $x")), r"'/mnt/it'\''s $x'");
    }
}
