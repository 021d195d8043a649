//! A tar archive, plain or compressed: each regular file in it is a sample, in the archive's order.
//!
//! The payloads of a plain archive are read by offset, so that several threads can; a compressed
//! one is one stream. An archive that ends without its end marker was cut, and is refused.

use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::read::MultiGzDecoder;
use tar::{Archive, Entry, EntryType};

use super::{Found, Item, Payload, Place, Source};
use crate::error::{Error, Result};
use crate::storage::{FileReader, ScratchFile, StoredFile};

/// A longer member of a compressed archive goes through a temporary file.
const MOST_IN_MEMORY: u64 = 8 << 20;

/// How the archive's bytes are stored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Packing {
    /// As they are.
    Plain,
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

/// A tar archive whose members are samples.
#[derive(Debug)]
pub struct Tar {
    path: PathBuf,
    packing: Packing,
}

/// A regular file in an archive.
pub(super) struct Member {
    /// Its path without `.` and empty segments.
    pub(super) name: Vec<u8>,
    /// Length in bytes.
    pub(super) len: u64,
    /// Its bytes, when they were asked for.
    pub(super) payload: Payload,
}

/// What an archive gives.
pub(super) enum Met {
    /// A regular file.
    Member(Member),
    /// Something else than a file or folder.
    Other(Place, String),
}

/// How much of a member is wanted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Want {
    /// Its name and length.
    Nothing,
    /// A way to its bytes.
    Payload,
    /// Its bytes, now.
    Bytes,
}

impl Tar {
    /// The archive at `path`, packed as its name says (`.tar`, `.tar.gz`, `.tgz`, `.tar.zst`,
    /// `.tzst`); `None` for any other name.
    #[must_use]
    pub fn by_name(path: PathBuf) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        let packing = if ends(&[".tar"]) {
            Packing::Plain
        } else if ends(&[".tar.gz", ".tgz"]) {
            Packing::Gzip
        } else if ends(&[".tar.zst", ".tzst"]) {
            Packing::Zstd
        } else {
            return None;
        };
        Some(Self { path, packing })
    }

    /// Calls `each` for the archive's members; `want` says what of a member with that name and
    /// length is needed.
    pub(super) fn members(
        &self,
        want: &dyn Fn(&[u8]) -> Want,
        each: &mut dyn FnMut(Met) -> Result<()>,
    ) -> Result<()> {
        let file = Arc::new(StoredFile::open(&self.path)?);
        let reader = FileReader::new(Arc::clone(&file));
        let visit = Visit {
            tar: self,
            file,
            want,
            each,
            ended: AtomicBool::new(false),
        };
        match self.packing {
            Packing::Plain => visit.plain(reader),
            Packing::Gzip => visit.stream(MultiGzDecoder::new(io::BufReader::new(reader))),
            Packing::Zstd => match zstd::Decoder::new(reader) {
                Ok(decoder) => visit.stream(decoder),
                Err(error) => Err(Error::io(&self.path, "start decompressing", error)),
            },
        }
    }
}

impl Source for Tar {
    fn path(&self) -> &Path {
        &self.path
    }

    fn visit(&self, load: bool, each: &mut dyn FnMut(Found) -> Result<()>) -> Result<()> {
        let want = |_: &[u8]| match load {
            true => Want::Payload,
            false => Want::Nothing,
        };
        self.members(&want, &mut |met| match met {
            Met::Member(member) => each(Found::Item(Item {
                place: Place::Member(member.name.clone()),
                name: member.name,
                payload: member.payload,
                len: Some(member.len),
                cells: Vec::new(),
            })),
            Met::Other(place, what) => each(Found::Skipped(place, what)),
        })
    }

    fn has_folders(&self) -> bool {
        true
    }

    fn names_are_unique(&self) -> bool {
        true
    }
}

struct Visit<'a> {
    tar: &'a Tar,
    file: Arc<StoredFile>,
    want: &'a dyn Fn(&[u8]) -> Want,
    each: &'a mut dyn FnMut(Met) -> Result<()>,
    /// The input ended while a header was being looked for.
    ended: AtomicBool,
}

impl Visit<'_> {
    fn plain(mut self, reader: FileReader) -> Result<()> {
        let ended = std::mem::take(&mut self.ended);
        let mut archive = Archive::new(EndWatch {
            inner: reader,
            ended: &ended,
        });
        let entries = archive.entries_with_seek().map_err(|e| self.broken(e))?;
        for entry in entries {
            let entry = entry.map_err(|error| self.broken(error))?;
            let position = match entry.header().entry_type() {
                EntryType::GNUSparse => None,
                _ => Some(entry.raw_file_position()),
            };
            self.entry(entry, position)?;
        }
        self.check_end(&ended)
    }

    fn stream(mut self, reader: impl Read) -> Result<()> {
        let ended = std::mem::take(&mut self.ended);
        let mut archive = Archive::new(EndWatch {
            inner: reader,
            ended: &ended,
        });
        let entries = archive.entries().map_err(|error| self.broken(error))?;
        for entry in entries {
            let entry = entry.map_err(|error| self.broken(error))?;
            self.entry(entry, None)?;
        }
        self.check_end(&ended)?;
        // Checksums of the compressed stream stand at its end.
        io::copy(&mut archive.into_inner().inner, &mut io::sink())
            .map(|_| ())
            .map_err(|error| self.broken(error))
    }

    fn entry(&mut self, mut entry: Entry<'_, impl Read>, position: Option<u64>) -> Result<()> {
        let raw = entry.path_bytes().into_owned();
        let name = plain_name(&raw);
        let place = Place::Member(name.clone());
        let header = entry.header().entry_type();
        if header.is_dir() || header.is_pax_global_extensions() {
            return Ok(());
        }
        if header.is_hard_link() {
            let reason = "a hard link, which holds no bytes (make the archive with tar's \
                          --hard-dereference)";
            return Err(super::refuse(&self.tar.path, &place, reason));
        }
        let file = header.is_file() || header.is_contiguous() || header.is_gnu_sparse();
        if !file {
            let what = match header {
                EntryType::Symlink => "a symbolic link",
                EntryType::Fifo => "a pipe",
                EntryType::Char | EntryType::Block => "a device",
                _ => "a member of an unknown kind",
            };
            return (self.each)(Met::Other(place, what.to_owned()));
        }
        // Old archives mark a folder by a slash at the end of its name only.
        if raw.ends_with(b"/") {
            return Ok(());
        }
        if name.is_empty() {
            return Err(super::refuse(
                &self.tar.path,
                &place,
                "a file without a name",
            ));
        }
        let len = entry.size();
        let past_end =
            position.is_some_and(|offset| offset.saturating_add(len) > self.file.identity().len);
        if past_end {
            return Err(self.cut(&place));
        }
        let payload = match ((self.want)(&name), position) {
            (Want::Nothing, _) => Payload::Left,
            (Want::Payload, Some(offset)) => Payload::Part {
                file: Arc::clone(&self.file),
                offset,
                len,
            },
            (Want::Payload, None) if len > MOST_IN_MEMORY => {
                let failed = |error| Error::io(&self.tar.path, format!("read {place}"), error);
                let mut spool = ScratchFile::create()?;
                let read = io::copy(&mut entry, &mut spool).map_err(failed)?;
                if read != len {
                    return Err(self.cut(&place));
                }
                Payload::Spooled(Arc::new(spool))
            }
            (Want::Payload | Want::Bytes, _) => {
                let mut bytes = Vec::new();
                let read = entry
                    .read_to_end(&mut bytes)
                    .map_err(|error| Error::io(&self.tar.path, format!("read {place}"), error))?;
                if read as u64 != len {
                    return Err(self.cut(&place));
                }
                Payload::Bytes(bytes)
            }
        };
        (self.each)(Met::Member(Member { name, len, payload }))
    }

    fn check_end(&self, ended: &AtomicBool) -> Result<()> {
        if ended.load(Ordering::Relaxed) {
            let reason = "the archive ends without its end marker: it has been cut";
            return Err(Error::refused(&self.tar.path, reason));
        }
        Ok(())
    }

    fn cut(&self, place: &Place) -> Error {
        super::refuse(
            &self.tar.path,
            place,
            "the archive ends inside this member: it has been cut",
        )
    }

    fn broken(&self, error: io::Error) -> Error {
        Error::io(&self.tar.path, "read the archive", error)
    }
}

/// Notices when the input is read to its end.
struct EndWatch<'a, R> {
    inner: R,
    ended: &'a AtomicBool,
}

impl<R: Read> Read for EndWatch<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(out)?;
        if n == 0 && !out.is_empty() {
            self.ended.store(true, Ordering::Relaxed);
        }
        Ok(n)
    }
}

impl<R: Seek> Seek for EndWatch<'_, R> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

/// `name` without `.` and empty segments: `./a//b` is `a/b`.
fn plain_name(name: &[u8]) -> Vec<u8> {
    let segments = name.split(|&byte| byte == b'/');
    segments
        .filter(|segment| !segment.is_empty() && *segment != b".")
        .collect::<Vec<_>>()
        .join(&b'/')
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    #[test]
    fn names_lose_what_says_nothing() {
        for (name, plain) in [
            (&b"./a/b"[..], &b"a/b"[..]),
            (b"a//b/", b"a/b"),
            (b"/a/./b", b"a/b"),
            (b"./", b""),
            (b"../.a", b"../.a"),
            (b"\xff", b"\xff"),
        ] {
            assert_eq!(plain_name(name), plain);
        }
    }

    fn archive() -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, len) in [("a", 10_usize), ("b/c", 70_000), ("e", 0)] {
            let mut header = tar::Header::new_gnu();
            header.set_size(len as u64);
            header.set_cksum();
            let bytes = vec![name.as_bytes()[0]; len];
            builder.append_data(&mut header, name, &bytes[..]).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn packed(bytes: &[u8], packing: Packing) -> Vec<u8> {
        use std::io::Write;
        match packing {
            Packing::Plain => bytes.to_vec(),
            Packing::Gzip => {
                let mut gz = flate2::write::GzEncoder::new(Vec::new(), Default::default());
                gz.write_all(bytes).unwrap();
                gz.finish().unwrap()
            }
            Packing::Zstd => zstd::encode_all(bytes, 1).unwrap(),
        }
    }

    fn sizes(tar: &Tar, want: Want) -> Result<Vec<(Vec<u8>, u64)>> {
        let mut seen = Vec::new();
        tar.members(&|_| want, &mut |met| {
            if let Met::Member(member) = met {
                if let Payload::Bytes(bytes) = &member.payload {
                    assert_eq!(bytes.len() as u64, member.len);
                }
                seen.push((member.name, member.len));
            }
            Ok(())
        })?;
        Ok(seen)
    }

    #[test]
    fn a_cut_archive_is_refused_wherever_it_is_cut() {
        let bytes = archive();
        // The last 1024 bytes are the end marker, of which half is enough.
        let whole = bytes.len() - 512;
        for (ending, packing) in [
            (".tar", Packing::Plain),
            (".tar.gz", Packing::Gzip),
            (".tar.zst", Packing::Zstd),
        ] {
            let try_with = |bytes: &[u8], want| {
                let file = file(ending, bytes);
                let tar = Tar::by_name(file.path().to_path_buf()).unwrap();
                assert_eq!(tar.packing, packing);
                sizes(&tar, want)
            };
            for want in [Want::Nothing, Want::Payload, Want::Bytes] {
                for len in [
                    0,
                    100,
                    512,
                    520,
                    1024,
                    1536,
                    2000,
                    whole - 512,
                    whole,
                    bytes.len(),
                ] {
                    match try_with(&packed(&bytes[..len], packing), want) {
                        Ok(seen) => {
                            assert!(len >= whole, "{ending} {len}");
                            let lens: Vec<_> = seen.into_iter().map(|(_, len)| len).collect();
                            assert_eq!(lens, [10, 70_000, 0]);
                        }
                        Err(_) => assert!(len < whole, "{ending} {len} {want:?}"),
                    }
                }
            }
            if packing != Packing::Plain {
                let cut = packed(&bytes, packing);
                assert!(
                    try_with(&cut[..cut.len() - 3], Want::Nothing).is_err(),
                    "{ending}"
                );
            }
        }
    }
}
