//! Files mapped for reading.

use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use super::guard::Guarded;
use super::{FileIdentity, FileInfo, Place, StoredFile};
use crate::error::{Error, Fault, FaultKind, Result};

/// A whole file, mapped read-only and shared, so that all readers of the file share its pages.
///
/// The mapping outlives the descriptor. Its bytes are what the file holds at the time of each
/// access: code above must not rely on an earlier check of them for memory safety. Bytes that the
/// file has lost (it was cut, or its disk failed) read as zeros, and [`MappedFile::intact`] tells.
#[derive(Clone, Debug)]
pub struct MappedFile(Arc<Inner>);

/// Bytes at the end of a file that are compared with those at first. The formats of mapped files do
/// not end in so many zeros.
const END: usize = 24;

#[derive(Debug)]
struct Inner {
    /// `None` for an empty file, which cannot be mapped. The guard goes before the map.
    map: Option<(Guarded, Mmap)>,
    /// The last bytes, as they were when it was mapped.
    end: Vec<u8>,
    info: FileInfo,
}

impl MappedFile {
    /// Maps `path`, a regular file.
    ///
    /// # Errors
    /// As [`StoredFile::open`].
    pub fn open(path: &Path) -> Result<Self> {
        let (file, info) = StoredFile::open_with_info(path)?;
        Self::map(path, &file, info)
    }

    /// Maps the file at `place`, which must be the one that it was at first.
    ///
    /// # Errors
    /// As [`Place::open`].
    pub fn open_at(place: &Place) -> Result<Self> {
        Self::map(place.path(), &place.open()?, *place.info())
    }

    fn map(path: &Path, file: &StoredFile, info: FileInfo) -> Result<Self> {
        if info.identity.len == 0 {
            let end = Vec::new();
            return Ok(Self(Arc::new(Inner {
                map: None,
                end,
                info,
            })));
        }
        // SAFETY: the map is private to this value and read-only. Another process may change or cut
        // the file; readers take bytes by checked index and assume nothing of them (see the type).
        #[allow(unsafe_code)]
        let map =
            unsafe { Mmap::map(file.file()) }.map_err(|source| Error::io(path, "map", source))?;
        let guard = Guarded::new(&map);
        Ok(Self(Arc::new(Inner {
            end: last(&map).to_vec(),
            map: Some((guard, map)),
            info,
        })))
    }

    /// Device, inode and length when it was mapped.
    #[must_use]
    pub fn identity(&self) -> FileIdentity {
        self.0.info.identity
    }

    /// Attributes when it was mapped.
    #[must_use]
    pub fn info(&self) -> &FileInfo {
        &self.0.info
    }

    /// Whether all bytes that were read so far were the file's. To be asked after reading and
    /// before what was read is believed.
    ///
    /// A file that is cut inside a page reads as zeros from there to the end of the page, without
    /// a signal. But then its last bytes are lost too: they are zeros, or touching them tells.
    ///
    /// # Errors
    /// [`FaultKind::Replaced`] when bytes were lost.
    pub fn intact(&self) -> Result<(), Fault> {
        match &self.0.map {
            Some((guard, map)) if last(map) != self.0.end.as_slice() || guard.is_broken() => {
                Err(Fault::new(
                    FaultKind::Replaced,
                    format!("{} bytes, as when it was opened", self.0.info.identity.len),
                    "bytes that cannot be read any more: the file was cut or its disk failed",
                ))
            }
            _ => Ok(()),
        }
    }
}

fn last(bytes: &[u8]) -> &[u8] {
    bytes
        .get(bytes.len().saturating_sub(END)..)
        .unwrap_or_default()
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        self.0.map.as_ref().map_or(&[], |(_, map)| map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_cut_reads_as_zeros_and_is_marked() {
        let dir = tempfile::tempdir().unwrap();
        let (cut, whole) = (dir.path().join("cut"), dir.path().join("whole"));
        for path in [&cut, &whole] {
            std::fs::write(path, vec![7; 3 << 16]).unwrap();
        }
        for _ in 0..3 {
            std::fs::write(&cut, vec![7; 3 << 16]).unwrap();
            let (map, other) = (
                MappedFile::open(&cut).unwrap(),
                MappedFile::open(&whole).unwrap(),
            );
            assert_eq!(map.as_ref()[2 << 16], 7);
            map.intact().unwrap();
            let file = std::fs::File::options().write(true).open(&cut).unwrap();
            file.set_len(1 << 16).unwrap();
            assert_eq!(map.as_ref()[0], 7);
            assert_eq!(map.as_ref()[2 << 16], 0);
            assert_eq!(map.as_ref()[(3 << 16) - 1], 0);
            assert_eq!(map.intact().unwrap_err().kind, FaultKind::Replaced);
            assert_eq!(other.as_ref()[2 << 16], 7);
            other.intact().unwrap();
        }
    }

    #[test]
    fn a_cut_inside_a_page_is_known_while_it_lasts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; 5000]).unwrap();
        let map = MappedFile::open(&path).unwrap();
        for len in [4097, 4999] {
            std::fs::write(&path, vec![7; len]).unwrap();
            assert_eq!((map.as_ref()[len - 1], map.as_ref()[len]), (7, 0));
            assert_eq!(map.intact().unwrap_err().kind, FaultKind::Replaced);
            std::fs::write(&path, vec![7; 5000]).unwrap();
            map.intact().unwrap();
        }
        std::fs::write(&path, vec![7; 4000]).unwrap();
        assert_eq!(map.as_ref()[3999], 7);
        assert_eq!(map.intact().unwrap_err().kind, FaultKind::Replaced);
    }
}
