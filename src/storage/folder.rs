//! Folders of caches and the files in them: resolved once, held, and opened without links after that.
//!
//! A folder of a cache may belong to somebody else, who may change what lies in it at any moment. So
//! links are followed when the cache is opened and never again; what is to be read is looked at before it
//! is opened; and it must still be what it was at first.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::io::Errno;

use super::device::FsKind;
use super::held_dir::{DirFd, HeldDir};
use super::resolve::{Resolved, lexical, place_without_links, resolve, resolve_from};
use super::{FileIdentity, FileInfo, FileStamp, OpenFileLimit, StoredFile, replaced};
use crate::error::{Error, Fault, FaultKind, Result};

/// The folder of a cache, or a folder in it, as it was when it was opened: renaming it, or turning a
/// link on the way to it elsewhere, changes nothing.
#[derive(Debug)]
pub struct Folder {
    /// As it was given, for people.
    shown: PathBuf,
    dir: Arc<HeldDir>,
    info: FileInfo,
    /// The owner of the cache.
    owner: u32,
    limit: Arc<OpenFileLimit>,
    /// Folders that links in this one lead to.
    elsewhere: Mutex<Vec<Arc<HeldDir>>>,
}

impl Folder {
    /// Opens the folder `path`; links on the way are followed now and never again.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Refused`] for something that is no folder, and for a link of somebody
    /// who owns neither this process nor what the link leads to.
    pub fn open(path: &Path, limit: &Arc<OpenFileLimit>) -> Result<Self> {
        let failed = |source| Error::io(path, "open", source);
        // The dot mounts what is mounted on demand.
        let found = match place_without_links(CWD, &path.join(".")) {
            Ok(file) => Resolved {
                file,
                folder: None,
                real: lexical(path).map_err(failed)?,
                links: Vec::new(),
            },
            Err(_) => resolve(path).map_err(failed)?,
        };
        Self::new(path.to_path_buf(), found, None, limit)
    }

    /// The folder `name` in this one.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub fn folder(&self, name: &str) -> Result<Self> {
        let shown = self.shown.join(name);
        let found = self
            .resolve(name)
            .map_err(|source| Error::io(&shown, "open", source))?;
        Self::new(shown, found, Some(self.owner), &self.limit)
    }

    fn new(
        shown: PathBuf,
        found: Resolved,
        owner: Option<u32>,
        limit: &Arc<OpenFileLimit>,
    ) -> Result<Self> {
        let failed = |source| Error::io(&shown, "open", source);
        let dir = File::from(found.file);
        let meta = dir.metadata().map_err(failed)?;
        if !meta.is_dir() {
            return Err(Error::refused(&shown, "not a folder"));
        }
        let kind = limit.kind_of(meta.dev(), &dir);
        let info = FileInfo::new(&meta, kind.numbered);
        check_links(&shown, &found.links, info.uid, owner)?;
        let dir = HeldDir::new(dir.into(), found.real, limit).map_err(failed)?;
        Ok(Self {
            dir: Arc::new(dir),
            owner: owner.unwrap_or(info.uid),
            info,
            shown,
            limit: Arc::clone(limit),
            elsewhere: Mutex::default(),
        })
    }

    /// The path as it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shown
    }

    /// The path without links, as it was when the folder was opened.
    #[must_use]
    pub fn real_path(&self) -> &Path {
        &self.dir.path
    }

    /// Attributes when it was opened.
    #[must_use]
    pub fn info(&self) -> &FileInfo {
        &self.info
    }

    /// Whether `other`, opened later, is the same folder, as far as its file system tells.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let (a, b) = (&self.dir, &other.dir);
        a.device == b.device && (a.inode == b.inode || !a.kind.numbered)
    }

    /// The paths of all entries, ordered bytewise by name, below the path as it was given.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn list(&self) -> Result<Vec<PathBuf>> {
        let names = || -> io::Result<Vec<OsString>> {
            let dir = self.dir.get()?;
            let flags = READING | OFlags::DIRECTORY;
            let open = openat(&dir, ".", flags, Mode::empty())?;
            let mut names = Vec::new();
            for entry in Dir::new(open)? {
                let name = entry?.file_name().to_bytes().to_vec();
                if !matches!(name.as_slice(), b"." | b"..") {
                    names.push(OsString::from_vec(name));
                }
            }
            Ok(names)
        };
        let mut names = names().map_err(|source| Error::io(&self.shown, "list", source))?;
        names.sort_by(|a, b| a.as_encoded_bytes().cmp(b.as_encoded_bytes()));
        Ok(names.iter().map(|name| self.shown.join(name)).collect())
    }

    /// The file `name` in this folder. It is not opened: what it is shows in [`Place::info`].
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Refused`] for something that is no regular file, and for a link of
    /// somebody who owns neither this process nor what the link leads to.
    pub fn file(&self, name: &str) -> Result<Place> {
        let shown = self.shown.join(name);
        let failed = |source| Error::io(&shown, "open", source);
        let found = self.resolve(name).map_err(failed)?;
        let (dir, name) = match (found.links.is_empty(), found.folder) {
            (false, Some(folder)) => {
                let name = found.real.file_name().unwrap_or_default().to_owned();
                let path = found.real.parent().unwrap_or(Path::new("/")).to_path_buf();
                (self.elsewhere(folder, path).map_err(failed)?, name)
            }
            _ => (Arc::clone(&self.dir), OsString::from(name)),
        };
        let (info, kind) = look(&shown, &found.file, &dir)?;
        check_links(&shown, &found.links, info.uid, Some(self.owner))?;
        Ok(Place {
            shown,
            dir,
            name,
            info,
            keeps_ctime: kind.keeps_ctime,
        })
    }

    fn resolve(&self, name: &str) -> io::Result<Resolved> {
        let dir = self.dir.get()?;
        let path = Path::new(name);
        match place_without_links(&dir, path) {
            Ok(file) => Ok(Resolved {
                file,
                folder: None,
                real: self.dir.path.join(name),
                links: Vec::new(),
            }),
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                let start = dir.as_fd().try_clone_to_owned()?;
                resolve_from(start, self.dir.path.clone(), path)
            }
            Err(error) => Err(error),
        }
    }

    /// A folder that a link leads to; many links may lead to one.
    fn elsewhere(&self, fd: OwnedFd, path: PathBuf) -> io::Result<Arc<HeldDir>> {
        let mut dirs = self
            .elsewhere
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = dirs.iter().find(|dir| dir.path == path) {
            return Ok(Arc::clone(known));
        }
        let dir = Arc::new(HeldDir::new(fd, path, &self.limit)?);
        dirs.push(Arc::clone(&dir));
        Ok(dir)
    }
}

/// A link that neither root nor who runs this process made may lead to what the cache's owner owns; one on
/// the way to the cache, to what the link's own owner owns. Else its owner would show what is not theirs.
fn check_links(
    shown: &Path,
    links: &[(PathBuf, u32)],
    target: u32,
    cache_owner: Option<u32>,
) -> Result<()> {
    let me = rustix::process::geteuid().as_raw();
    let bad = links.iter().find(|(_, owner)| {
        let trusted = [0, me].contains(owner);
        !trusted && target != cache_owner.unwrap_or(*owner)
    });
    let Some((link, owner)) = bad else {
        return Ok(());
    };
    let reason = format!(
        "the symbolic link {} of user {owner} leads to what user {target} owns: not followed, since \
         neither root nor who mounts made it (name the target itself, or let root make the link)",
        link.display()
    );
    Err(Error::refused(shown, reason))
}

/// A file of a cache, where it really lies.
#[derive(Clone, Debug)]
pub struct Place {
    shown: PathBuf,
    dir: Arc<HeldDir>,
    name: OsString,
    info: FileInfo,
    keeps_ctime: bool,
}

impl Place {
    /// The path for people: below the folder as that was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shown
    }

    /// The path without links, as it was when the cache was opened.
    #[must_use]
    pub fn real_path(&self) -> PathBuf {
        self.dir.path.join(&self.name)
    }

    /// [`Place::real_path`], if the folder there is still the one that the file lies in.
    ///
    /// # Errors
    /// [`FaultKind::Replaced`] when another folder is there; [`Error::Io`].
    pub fn path_now(&self) -> Result<PathBuf> {
        let found = self.dir.find().map_err(|source| self.failed(source))?;
        match found {
            Some(_) => Ok(self.real_path()),
            None => Err(Fault::new(
                FaultKind::Replaced,
                "the folder in which it lay when the cache was opened",
                "another folder",
            )
            .in_file(&self.shown)),
        }
    }

    /// Attributes when the cache was opened.
    #[must_use]
    pub fn info(&self) -> &FileInfo {
        &self.info
    }

    /// Whether the file system is known to note each change of the file in its ctime.
    #[must_use]
    pub fn keeps_ctime(&self) -> bool {
        self.keeps_ctime
    }

    /// Opens the file, which must be the one that it was at first.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Refused`] for something that is no regular file;
    /// [`FaultKind::Replaced`] when it is another file.
    pub fn open(&self) -> Result<StoredFile> {
        self.open_if(|found| match self.info.identity.is(&found) {
            true => Ok(()),
            false => Err(replaced(self.info.identity, found).in_file(&self.shown)),
        })
    }

    /// Opens whatever file has the name now.
    ///
    /// # Errors
    /// As [`Place::open`], but for another file.
    pub fn open_current(&self) -> Result<StoredFile> {
        self.open_if(|_| Ok(()))
    }

    fn open_if(&self, check: impl Fn(FileIdentity) -> Result<()>) -> Result<StoredFile> {
        let dir = self.dir.get().map_err(|source| self.failed(source))?;
        let place = self.place(&dir)?;
        check(look(&self.shown, &place, &self.dir)?.0.identity)?;
        let open = match reopen(place.as_fd()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let flags = READING | OFlags::NOFOLLOW;
                openat(&dir, &self.name, flags, Mode::empty()).map_err(io::Error::from)
            }
            other => other,
        };
        let open = open.map_err(|source| self.failed(source))?;
        // Without /proc another file may have come to the name since.
        let (info, _) = look(&self.shown, &open, &self.dir)?;
        check(info.identity)?;
        Ok(StoredFile::of(File::from(open), info))
    }

    /// The stamp of whatever file has the name now.
    ///
    /// # Errors
    /// As [`Place::open_current`].
    pub fn stamp(&self) -> Result<FileStamp> {
        let dir = self.dir.get().map_err(|source| self.failed(source))?;
        let place = File::from(self.place(&dir)?);
        let meta = place.metadata().map_err(|source| self.failed(source))?;
        Ok(FileStamp::new(&meta, self.dir.kind))
    }

    fn place(&self, dir: &DirFd<'_>) -> Result<OwnedFd> {
        place_without_links(dir, Path::new(&self.name)).map_err(|source| {
            match source.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
                true => Error::refused(
                    &self.shown,
                    "it was a file when the cache was opened and is a symbolic link now: not followed",
                ),
                false => self.failed(source),
            }
        })
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::io(&self.shown, "open", source)
    }
}

/// What lies at a place, before it is opened: a regular file that a disk holds.
fn look(shown: &Path, place: &OwnedFd, dir: &HeldDir) -> Result<(FileInfo, FsKind)> {
    let failed = |source| Error::io(shown, "stat", source);
    let file = File::from(place.try_clone().map_err(failed)?);
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err(not_a_file(shown, &meta));
    }
    let kind = match meta.dev() == dir.device {
        true => dir.kind,
        false => FsKind::of(&file),
    };
    if kind.of_kernel {
        let why = "it lies on a file system of the kernel, whose files change as they are read";
        return Err(Error::refused(shown, why));
    }
    Ok((FileInfo::new(&meta, kind.numbered), kind))
}

pub(super) fn not_a_file(shown: &Path, meta: &Metadata) -> Error {
    let what = match meta.is_dir() {
        true => "a folder",
        false => super::walk::what(meta.file_type()),
    };
    Error::refused(shown, format!("not a regular file: it is {what}"))
}

/// How a file is opened for reading: it never waits, and makes no terminal the process's own.
pub(super) const READING: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOCTTY)
    .union(OFlags::NONBLOCK);

/// Opens what is at `place` for reading. `NotFound` where there is no /proc.
pub(super) fn reopen(place: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // Of this thread: it may have a table of descriptors of its own.
    let path = format!("/proc/thread-self/fd/{}", place.as_raw_fd());
    Ok(rustix::fs::open(path, READING, Mode::empty())?)
}
