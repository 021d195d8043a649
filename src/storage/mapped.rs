//! Files mapped for reading. The only unsafe code of the crate.

use std::path::Path;

use memmap2::Mmap;

use super::{FileIdentity, FileInfo, StoredFile};
use crate::error::{Error, Result};

/// A whole file, mapped read-only and shared, so that all readers of the file share its pages.
///
/// The mapping outlives the descriptor. Its bytes are what the file holds at the time of each
/// access: code above must not rely on an earlier check of them for memory safety.
#[derive(Debug)]
pub struct MappedFile {
    /// `None` for an empty file, which cannot be mapped.
    map: Option<Mmap>,
    info: FileInfo,
}

impl MappedFile {
    /// Maps `path`, a regular file.
    ///
    /// # Errors
    /// As [`StoredFile::open`].
    pub fn open(path: &Path) -> Result<Self> {
        let (file, info) = StoredFile::open_with_info(path)?;
        if info.identity.len == 0 {
            return Ok(Self { map: None, info });
        }
        // SAFETY: the map is private to this value and read-only. Another process may change or cut
        // the file; readers take bytes by checked index and assume nothing of them (see the type).
        #[allow(unsafe_code)]
        let map =
            unsafe { Mmap::map(file.file()) }.map_err(|source| Error::io(path, "map", source))?;
        Ok(Self {
            map: Some(map),
            info,
        })
    }

    /// Device, inode and length when it was mapped.
    #[must_use]
    pub fn identity(&self) -> FileIdentity {
        self.info.identity
    }

    /// Attributes when it was mapped.
    #[must_use]
    pub fn info(&self) -> &FileInfo {
        &self.info
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}
