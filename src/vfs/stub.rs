//! A stand-in tree: `/samples/0` with three files, and `.control/migrate`.

use std::ffi::OsStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::{Attr, DirEntry, FileKind, Ino, SetAttr, StatFs, Ttl, VfsError};

const SAMPLES: u64 = 2;
const CACHE: u64 = 3;
const CONTROL: u64 = 4;
const MIGRATE: u64 = 5;
const FIRST: u64 = 16;

/// The tree.
#[derive(Debug)]
pub struct Vfs {
    control: Mutex<Vec<u8>>,
    panics: AtomicU64,
    started: SystemTime,
}

impl Default for Vfs {
    fn default() -> Self {
        Self {
            control: Mutex::new(Vec::new()),
            panics: AtomicU64::new(0),
            started: SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000),
        }
    }
}

fn content(ino: u64) -> Option<Vec<u8>> {
    match ino.checked_sub(FIRST)? {
        0 => Some(b"hello\n".to_vec()),
        1 => Some((0_u32..75_000).flat_map(|n| n.to_le_bytes()).collect()),
        2 => Some(b"this one panics when read\n".to_vec()),
        _ => None,
    }
}

#[allow(missing_docs)]
impl Vfs {
    fn children(ino: Ino) -> Result<&'static [(&'static str, u64)], VfsError> {
        Ok(match ino.0 {
            1 => &[("samples", SAMPLES), (".control", CONTROL)],
            SAMPLES => &[("0", CACHE)],
            CACHE => &[("0", FIRST), ("1", FIRST + 1), ("2", FIRST + 2)],
            CONTROL => &[("migrate", MIGRATE)],
            _ => return Err(VfsError::NotADirectory),
        })
    }

    pub fn is_static_dir(&self, ino: Ino) -> bool {
        ino.0 != CONTROL
    }

    pub fn lookup(&self, parent: Ino, name: &OsStr) -> Result<Attr, VfsError> {
        if name.len() > 255 {
            return Err(VfsError::NameTooLong);
        }
        let found = Self::children(parent)?.iter().find(|(n, _)| *n == name);
        found.map_or(Err(VfsError::NotFound), |(_, ino)| self.getattr(Ino(*ino)))
    }

    pub fn getattr(&self, ino: Ino) -> Result<Attr, VfsError> {
        let dir = Self::children(ino).is_ok();
        let size = match content(ino.0) {
            Some(bytes) => bytes.len() as u64,
            None if ino.0 == MIGRATE => self.control.lock().map_or(0, |c| c.len() as u64),
            None if dir => 0,
            None => return Err(VfsError::NotFound),
        };
        Ok(Attr {
            ino,
            size,
            mtime: self.started,
            kind: if dir {
                FileKind::Directory
            } else {
                FileKind::File
            },
            perm: match ino.0 {
                MIGRATE => 0o600,
                _ if dir => 0o555,
                _ => 0o444,
            },
            nlink: if dir { 2 } else { 1 },
            uid: 0,
            gid: 0,
            ttl: if ino.0 == MIGRATE {
                Ttl::Never
            } else {
                Ttl::Forever
            },
        })
    }

    pub fn setattr(&self, ino: Ino, change: SetAttr) -> Result<Attr, VfsError> {
        if ino.0 != MIGRATE || change.mode.is_some() || change.uid.is_some() || change.gid.is_some()
        {
            return Err(VfsError::ReadOnly);
        }
        self.getattr(ino)
    }

    pub fn readlink(&self, _ino: Ino) -> Result<Vec<u8>, VfsError> {
        Err(VfsError::NotASymlink)
    }

    pub fn readdir(
        &self,
        ino: Ino,
        offset: u64,
        sink: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<(), VfsError> {
        let dots = [(".", ino.0), ("..", 1)];
        for (n, (name, child)) in (1_u64..).zip(dots.iter().chain(Self::children(ino)?)) {
            let kind = self.getattr(Ino(*child))?.kind;
            let entry = DirEntry {
                ino: Ino(*child),
                next_offset: n,
                kind,
                name: OsStr::new(name),
            };
            if n > offset && !sink(entry) {
                break;
            }
        }
        Ok(())
    }

    pub fn entry_attr(&self, ino: Ino) -> Attr {
        self.getattr(ino).unwrap_or(Attr {
            ino,
            size: 0,
            mtime: self.started,
            kind: FileKind::File,
            perm: 0o444,
            nlink: 1,
            uid: 0,
            gid: 0,
            ttl: Ttl::Never,
        })
    }

    #[allow(clippy::panic)]
    pub fn read(
        &self,
        ino: Ino,
        offset: u64,
        size: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), VfsError> {
        let bytes = match content(ino.0) {
            Some(_) if ino.0 == FIRST + 2 => panic!("the stub was asked to panic"),
            Some(bytes) => bytes,
            None => self
                .control
                .lock()
                .map(|c| c.clone())
                .map_err(|_| VfsError::Busy)?,
        };
        out.extend(
            bytes
                .iter()
                .skip(usize::try_from(offset).unwrap_or(usize::MAX))
                .take(size as usize),
        );
        Ok(())
    }

    pub fn write(&self, ino: Ino, _offset: u64, data: &[u8]) -> Result<u32, VfsError> {
        if ino.0 != MIGRATE {
            return Err(VfsError::ReadOnly);
        }
        if data.trim_ascii() != b"3" {
            return Err(VfsError::BadControlWord);
        }
        if let Ok(mut control) = self.control.lock() {
            *control = b"{}\n".to_vec();
        }
        u32::try_from(data.len()).map_err(|_| VfsError::BadControlWord)
    }

    pub fn statfs(&self) -> StatFs {
        StatFs {
            blocks: 75,
            files: 7,
            block_size: 4096,
            name_max: 255,
        }
    }

    pub fn note_panic(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }
}
