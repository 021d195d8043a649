//! The disk: everything above reaches files through this module, and nothing else does.
//!
//! Positioned reads of named files, small whole files, mapped files, and (in `publish`) the one way
//! in which a file appears under its final name. The seam for caches that lie elsewhere.

mod access;
mod buffer;
mod device;
mod folder;
mod guard;
mod heap;
mod held_dir;
mod inherited;
mod mapped;
mod process;
mod publish;
mod reader;
mod resolve;
mod scratch;
mod shard_files;
mod walk;
mod window;

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

pub use access::{Access, Right, access};
pub use buffer::Buffer;
use device::FsKind;
pub use device::note_own_device;
pub use folder::{Folder, Place};
pub use heap::{bound_free_memory, give_back_free_memory};
pub use inherited::{pass_on_only, take_inherited};
pub use mapped::{MappedFile, Whole};
pub use process::{hear_signals, ignore_file_size_signal, resident_memory};
pub use publish::{
    DirLock, EarlySync, Replaced, StagedFile, Step, StepHook, already_there, check_replaceable,
    create_dir, create_dir_synced, create_dirs_synced, create_private_dirs, publish_own,
    remove_empty_dir, remove_tree, rename_dir_synced, replace_file, sync_dir, sync_folder_of,
    test_step,
};
pub use reader::FileReader;
pub use scratch::ScratchFile;
pub use shard_files::{OpenFileLimit, ShardFiles};
pub use walk::{Walked, walk};
pub use window::with_window;

use crate::error::{Error, Fault, FaultKind, Result};

/// What identifies a file's content as far as the file system tells.
///
/// Equal values are one file, but one file need not have equal ones: see [`FileIdentity::is`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FileIdentity {
    /// Device number.
    pub device: u64,
    /// Inode number on that device.
    pub inode: u64,
    /// Length in bytes.
    pub len: u64,
    /// Last change of the content.
    modified: StampTime,
    /// Whether the file system keeps the inode number for as long as there is the file.
    numbered: bool,
}

impl FileIdentity {
    /// Whether `found`, seen later, is the same file. Where a file gets another number once it was
    /// forgotten (sshfs and most file systems in user space), its length and the time of its last change
    /// tell.
    #[must_use]
    pub fn is(&self, found: &Self) -> bool {
        let same = self.inode == found.inode || (!self.numbered && self.modified == found.modified);
        same && self.device == found.device && self.len == found.len
    }

    /// [`FileIdentity::is`] for folders, whose length and time change with what is in them.
    #[must_use]
    pub fn is_folder(&self, found: &Self) -> bool {
        self.device == found.device && (self.inode == found.inode || !self.numbered)
    }
}

/// A point in time as file systems keep it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct StampTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds after that.
    pub nanos: u32,
}

/// All by which a change of a file shows.
#[derive(Clone, Copy, Debug)]
pub struct FileStamp {
    /// Device, inode and length.
    pub identity: FileIdentity,
    /// Last change of the content; anybody who may write can set it.
    pub modified: StampTime,
    /// Last change of content or attributes; the system alone sets it.
    pub changed: StampTime,
}

impl FileStamp {
    fn new(meta: &fs::Metadata, kind: FsKind) -> Self {
        Self {
            identity: FileInfo::new(meta, kind.numbered).identity,
            modified: time(meta.mtime(), meta.mtime_nsec()),
            changed: time(meta.ctime(), meta.ctime_nsec()),
        }
    }
}

fn time(seconds: i64, nanos: i64) -> StampTime {
    StampTime {
        seconds,
        nanos: u32::try_from(nanos).unwrap_or(0),
    }
}

/// Attributes of a file or folder below the mount.
#[derive(Clone, Copy, Debug)]
pub struct FileInfo {
    /// Device, inode and length.
    pub identity: FileIdentity,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits.
    pub mode: u32,
    /// Last change of the content.
    pub mtime: SystemTime,
    /// See [`StoredFile::changed`].
    pub changed: i64,
    /// Whether it is a folder.
    pub is_dir: bool,
}

impl FileInfo {
    fn new(meta: &fs::Metadata, numbered: bool) -> Self {
        let nanos = u32::try_from(meta.mtime_nsec()).unwrap_or(0);
        // Before 1970 too: the nanoseconds always count forward.
        let whole = Duration::from_secs(meta.mtime().unsigned_abs());
        let seconds = match meta.mtime() {
            0.. => SystemTime::UNIX_EPOCH.checked_add(whole),
            _ => SystemTime::UNIX_EPOCH.checked_sub(whole),
        };
        let mtime = seconds.and_then(|at| at.checked_add(Duration::from_nanos(nanos.into())));
        let mtime = mtime.unwrap_or(SystemTime::UNIX_EPOCH);
        Self {
            identity: FileIdentity {
                device: meta.dev(),
                inode: meta.ino(),
                len: meta.len(),
                modified: time(meta.mtime(), meta.mtime_nsec()),
                numbered,
            },
            uid: meta.uid(),
            gid: meta.gid(),
            mode: meta.mode() & 0o7777,
            mtime,
            changed: change_time(meta),
            is_dir: meta.is_dir(),
        }
    }
}

/// Attributes of `path`, through symbolic links.
///
/// # Errors
/// [`Error::Io`].
pub fn stat(path: &Path) -> Result<FileInfo> {
    match fs::metadata(path) {
        Ok(meta) => Ok(FileInfo::new(&meta, true)),
        Err(source) => Err(Error::io(path, "stat", source)),
    }
}

/// Whether something exists at `path`, a dangling link included.
#[must_use]
pub fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Whether `path` is a symbolic link.
#[must_use]
pub fn is_symlink(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink())
}

/// Where `path` really lies.
///
/// # Errors
/// [`Error::Io`].
pub fn real_path(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).map_err(|source| Error::io(path, "resolve", source))
}

/// The paths of all entries of a folder, ordered bytewise by name.
///
/// # Errors
/// [`Error::Io`].
pub fn list_dir(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(dir)
        .and_then(|entries| {
            entries
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<io::Result<Vec<_>>>()
        })
        .map_err(|source| Error::io(dir, "list", source))?;
    paths.sort_by(|a, b| {
        a.as_os_str()
            .as_encoded_bytes()
            .cmp(b.as_os_str().as_encoded_bytes())
    });
    Ok(paths)
}

/// The times at which the file's bytes and attributes last changed, as one number: it is compared, and
/// nothing else. Both count, since some file systems keep only one of them.
fn change_time(meta: &fs::Metadata) -> i64 {
    let nanos = |seconds: i64, nanos| seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos);
    let modified = nanos(meta.mtime(), meta.mtime_nsec());
    nanos(meta.ctime(), meta.ctime_nsec()).wrapping_add(modified.rotate_left(1))
}

/// A regular file opened for reading by offset.
#[derive(Debug)]
pub struct StoredFile {
    file: File,
    /// No other open file of this process has it, or had it.
    number: u64,
    identity: FileIdentity,
    /// When it had changed last as it was opened.
    opened: i64,
    /// When it was last seen to have changed; see [`StoredFile::read_exact_at`].
    changed: AtomicI64,
}

/// A file that changed during so many reads in a row is not read.
const MOST_CHANGES: usize = 16;

impl StoredFile {
    /// Opens `path`, which must be a regular file; a pipe or device is refused without waiting.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Refused`] for something that is not a file.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with_info(path).map(|(file, _)| file)
    }

    /// [`StoredFile::open`], with the attributes of what was opened.
    ///
    /// # Errors
    /// As [`StoredFile::open`].
    pub fn open_with_info(path: &Path) -> Result<(Self, FileInfo)> {
        let failed = |source| Error::io(path, "open", source);
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        let mode = rustix::fs::Mode::empty();
        let place = rustix::fs::open(path, flags, mode).map_err(|errno| failed(errno.into()))?;
        let place = File::from(place);
        let meta = place.metadata().map_err(failed)?;
        if !meta.is_file() {
            return Err(folder::not_a_file(path, &meta));
        }
        let open = match folder::reopen(place.as_fd()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                rustix::fs::open(path, folder::READING, mode).map_err(io::Error::from)
            }
            other => other,
        };
        let open = File::from(open.map_err(failed)?);
        let meta = open.metadata().map_err(failed)?;
        if !meta.is_file() {
            return Err(folder::not_a_file(path, &meta));
        }
        let info = FileInfo::new(&meta, true);
        Ok((Self::of(open, info), info))
    }

    fn of(file: File, info: FileInfo) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            file,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            identity: info.identity,
            opened: info.changed,
            changed: AtomicI64::new(info.changed),
        }
    }

    /// Device, inode and length when it was opened.
    #[must_use]
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// A number that differs after each change of the file, as of the last read.
    #[must_use]
    pub fn changed(&self) -> i64 {
        self.changed.load(Ordering::Acquire)
    }

    /// [`StoredFile::changed`] as of the moment when it was opened.
    #[must_use]
    pub fn changed_at_open(&self) -> i64 {
        self.opened
    }

    /// [`StoredFile::changed`] as of now.
    ///
    /// # Errors
    /// What the system says.
    pub fn look_for_changes(&self) -> io::Result<i64> {
        loop {
            let before = self.changed();
            let now = change_time(&self.file.metadata()?);
            if self.note_change(before, now) {
                return Ok(now);
            }
        }
    }

    /// Notes a change. Only whoever knew the state before it may: what another thread saw meanwhile
    /// may be newer.
    fn note_change(&self, before: i64, now: i64) -> bool {
        let order = (Ordering::AcqRel, Ordering::Acquire);
        self.changed
            .compare_exchange(before, now, order.0, order.1)
            .is_ok()
    }

    /// Fills `buf` from byte `offset` on. A file that somebody cuts meanwhile reads as zeros for a
    /// moment before it ends earlier, so what was read is taken only when the file has not changed
    /// since.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::UnexpectedEof`] when the file ends before.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        match window::active() {
            true => window::read_exact_at(self, buf, offset),
            false => self.read_exact_at_directly(buf, offset),
        }
    }

    fn read_exact_at_directly(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        let end = offset.saturating_add(buf.len() as u64);
        for _ in 0..MOST_CHANGES {
            let before = self.changed();
            self.file.read_exact_at(buf, offset)?;
            let meta = self.file.metadata()?;
            let now = change_time(&meta);
            // The time of a cut comes before its length, and the zeros after both.
            if now == before && meta.len() >= end {
                return Ok(());
            }
            self.note_change(before, now);
        }
        let reason = format!(
            "it changed during each of {MOST_CHANGES} reads in a row; it can be read once nobody writes it"
        );
        Err(io::Error::other(reason))
    }

    /// Fills `buf` from byte `offset` on as far as the file goes, and says how far.
    fn read_at_most(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Reads some bytes from byte `offset` on; none at the end of the file.
    ///
    /// # Errors
    /// What the system says.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.file.read_at(buf, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Asks the system to read `len` bytes from `offset` on ahead of use; a hint without answer.
    pub fn read_ahead(&self, offset: u64, len: u64) {
        let len = std::num::NonZeroU64::new(len);
        let _ = rustix::fs::fadvise(&self.file, offset, len, rustix::fs::Advice::WillNeed);
    }

    /// Calls `take` with the file's bytes in order, in pieces of at most `buf.len()` bytes, for as
    /// long as it says so.
    ///
    /// # Errors
    /// What reading gives; [`io::ErrorKind::Interrupted`] when `take` ended it.
    pub fn read_through(
        &self,
        buf: &mut [u8],
        mut take: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> io::Result<u64> {
        let mut offset = 0;
        loop {
            match self.read_at(buf, offset)? {
                0 => return Ok(offset),
                n => {
                    if take(buf.get(..n).unwrap_or_default()).is_break() {
                        return Err(io::ErrorKind::Interrupted.into());
                    }
                    offset += n as u64;
                }
            }
        }
    }

    fn file(&self) -> &File {
        &self.file
    }
}

/// The fault of a file that is another one than it was at first.
#[must_use]
pub fn replaced(seen: FileIdentity, found: FileIdentity) -> Fault {
    let shown = |file: FileIdentity| {
        format!(
            "inode {} of device {} with {} bytes",
            file.inode, file.device, file.len
        )
    };
    Fault::new(FaultKind::Replaced, shown(seen), shown(found))
}

/// The whole of a small file.
///
/// # Errors
/// [`Error::Io`]; [`FaultKind::Length`] when it has more than `limit` bytes.
pub fn read_small(path: &Path, limit: u64) -> Result<Vec<u8>> {
    read_limited(path, &StoredFile::open(path)?, limit)
}

/// The whole of a small file at `place`, as it is now.
///
/// # Errors
/// As [`read_small`].
pub fn read_small_at(place: &Place, limit: u64) -> Result<Vec<u8>> {
    read_limited(place.path(), &place.open_current()?, limit)
}

/// [`read_small`] of a file that nobody but this user can have written.
///
/// # Errors
/// As there; [`Error::Refused`] for a file that somebody else could have written.
pub fn read_own(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let (file, info) = StoredFile::open_with_info(path)?;
    if info.uid != rustix::process::geteuid().as_raw() || info.mode & 0o022 != 0 {
        return Err(Error::refused(path, "others than this user can write it"));
    }
    read_limited(path, &file, limit)
}

fn read_limited(path: &Path, file: &StoredFile, limit: u64) -> Result<Vec<u8>> {
    let too_long = |found: u64| {
        Fault::new(
            FaultKind::Length,
            format!("at most {limit} bytes"),
            format!("{found} bytes"),
        )
        .in_file(path)
    };
    if file.identity.len > limit {
        return Err(too_long(file.identity.len));
    }
    let mut bytes = Vec::new();
    let read = (&file.file)
        .take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| Error::io(path, "read", source))?;
    if read as u64 > limit {
        return Err(too_long(read as u64));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
