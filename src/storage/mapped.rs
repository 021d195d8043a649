//! Files mapped for reading.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

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
    /// Grows by two when the file is mapped again; odd while that is done.
    turn: AtomicU64,
}

/// A moment at which a mapped file was whole.
#[derive(Clone, Copy, Debug)]
pub struct Whole(u64);

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
                turn: AtomicU64::new(0),
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
            turn: AtomicU64::new(0),
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

    /// Whether it is whole now. To be asked before reading; [`MappedFile::whole_since`] is to be
    /// asked after that.
    ///
    /// # Errors
    /// As [`MappedFile::intact`]; also while it is mapped again.
    pub fn whole(&self) -> Result<Whole, Fault> {
        let turn = self.0.turn.load(Ordering::Acquire);
        if turn % 2 == 1 {
            return Err(self.lost());
        }
        self.intact().map(|()| Whole(turn))
    }

    /// Whether all bytes that were read since `then` were the file's. To be asked after reading and
    /// before what was read is believed.
    ///
    /// # Errors
    /// As [`MappedFile::intact`].
    pub fn whole_since(&self, then: Whole) -> Result<(), Fault> {
        // What was read before comes before this look.
        fence(Ordering::Acquire);
        self.intact()?;
        match self.0.turn.load(Ordering::Acquire) == then.0 {
            true => Ok(()),
            false => Err(self.lost()),
        }
    }

    /// Maps `file` in the place of what has lost bytes: the file that was mapped at first, whole again.
    /// Calls must not overlap. What others read meanwhile does not pass [`MappedFile::whole_since`].
    ///
    /// # Errors
    /// What the system says; it is as before then.
    pub fn map_again(&self, file: &StoredFile) -> io::Result<()> {
        let Some((guard, _)) = &self.0.map else {
            return Ok(());
        };
        self.0.turn.fetch_add(1, Ordering::SeqCst);
        let mapped = guard.map_again(file.file());
        self.0.turn.fetch_add(1, Ordering::SeqCst);
        mapped
    }

    /// Whether all bytes that were read since it was mapped were the file's. To be asked after
    /// reading and before what was read is believed, where nobody maps it again.
    ///
    /// A file that is cut inside a page reads as zeros from there to the end of the page, without
    /// a signal. But then its last bytes are lost too: they are zeros, or touching them tells.
    ///
    /// # Errors
    /// [`FaultKind::Replaced`] when bytes were lost.
    pub fn intact(&self) -> Result<(), Fault> {
        match &self.0.map {
            Some((guard, map)) if last(map) != self.0.end.as_slice() || guard.is_broken() => {
                Err(self.lost())
            }
            _ => Ok(()),
        }
    }

    fn lost(&self) -> Fault {
        Fault::new(
            FaultKind::Replaced,
            format!("{} bytes, as when it was opened", self.0.info.identity.len),
            "bytes that cannot be read any more: the file was cut or its disk failed",
        )
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
    fn a_file_that_is_whole_again_is_mapped_again_and_nothing_read_before_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let bytes = vec![7; 3 << 16];
        for _ in 0..3 {
            std::fs::write(&path, &bytes).unwrap();
            let map = MappedFile::open(&path).unwrap();
            let whole = map.whole().unwrap();
            std::fs::write(&path, "").unwrap();
            assert_eq!(map.as_ref()[2 << 16], 0);
            assert!(map.whole_since(whole).is_err());
            std::fs::write(&path, &bytes).unwrap();
            assert!(map.whole().is_err() && map.whole_since(whole).is_err());
            map.map_again(&StoredFile::open(&path).unwrap()).unwrap();
            assert!(map.as_ref() == bytes);
            assert!(map.whole_since(whole).is_err(), "it may be zeros");
            let again = map.whole().unwrap();
            map.whole_since(again).unwrap();
            // Lost once more.
            std::fs::write(&path, "").unwrap();
            assert_eq!(map.as_ref()[1 << 16], 0);
            assert!(map.whole_since(again).is_err());
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
