//! All files below a folder, ordered bytewise by their paths.

use std::ffi::OsStr;
use std::fs::{self, FileType};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::error::{Error, Result};

/// What a walk meets; paths are relative to its start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Walked<'a> {
    /// A regular file, or a symbolic link to one.
    File(&'a [u8]),
    /// Something that is neither a file nor a folder, and what it is. A symbolic link to a folder
    /// is not followed, since it might lead back.
    Other(&'a [u8], &'static str),
}

/// Calls `each` for everything below `root` but folders, ordered by the bytes of the whole relative
/// path (`a.b` before `a/b`). Memory is bounded by the names in the folders on one path.
///
/// # Errors
/// [`Error::Io`] for a folder that cannot be read or a symbolic link that leads nowhere; what
/// `each` gives.
pub fn walk(root: &Path, each: &mut dyn FnMut(Walked<'_>) -> Result<()>) -> Result<()> {
    below(root, &mut Vec::new(), each)
}

fn below(
    root: &Path,
    relative: &mut Vec<u8>,
    each: &mut dyn FnMut(Walked<'_>) -> Result<()>,
) -> Result<()> {
    let names = Names::read(&absolute(root, relative))?;
    let len = relative.len();
    for (name, kind) in names.iter() {
        relative.extend_from_slice(name);
        match kind {
            Kind::File => each(Walked::File(relative))?,
            Kind::Dir => below(root, relative, each)?,
            Kind::Link => {
                let path = absolute(root, relative);
                let target = fs::metadata(&path)
                    .map_err(|source| Error::io(path, "follow the symbolic link", source))?;
                match target.is_file() {
                    true => each(Walked::File(relative))?,
                    false if target.is_dir() => {
                        each(Walked::Other(relative, "a symbolic link to a folder"))?;
                    }
                    false => each(Walked::Other(relative, what(target.file_type())))?,
                }
            }
            Kind::Special(what) => each(Walked::Other(relative, what))?,
        }
        relative.truncate(len);
    }
    Ok(())
}

fn absolute(root: &Path, relative: &[u8]) -> std::path::PathBuf {
    root.join(OsStr::from_bytes(relative))
}

#[derive(Clone, Copy)]
enum Kind {
    File,
    Dir,
    Link,
    Special(&'static str),
}

pub(super) fn what(file_type: FileType) -> &'static str {
    if file_type.is_fifo() {
        "a pipe"
    } else if file_type.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// The entries of one folder, some 16 bytes beside each name. A folder's name ends in a slash, so
/// that sorting the names sorts the paths below them.
struct Names {
    bytes: Vec<u8>,
    /// Start of the name, its length, and what it is.
    entries: Vec<(usize, u16, Kind)>,
}

impl Names {
    fn read(dir: &Path) -> Result<Self> {
        let mut names = Self {
            bytes: Vec::new(),
            entries: Vec::new(),
        };
        names
            .fill(dir)
            .map_err(|source| Error::io(dir, "list", source))?;
        let bytes = &names.bytes;
        names
            .entries
            .sort_unstable_by(|a, b| name(bytes, a).cmp(name(bytes, b)));
        Ok(names)
    }

    fn fill(&mut self, dir: &Path) -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let file_type = entry.file_type()?;
            let kind = if file_type.is_file() {
                Kind::File
            } else if file_type.is_dir() {
                Kind::Dir
            } else if file_type.is_symlink() {
                Kind::Link
            } else {
                Kind::Special(what(file_type))
            };
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&entry.file_name().into_vec());
            if file_type.is_dir() {
                self.bytes.push(b'/');
            }
            let len = u16::try_from(self.bytes.len() - start)
                .map_err(|_| io::Error::from(io::ErrorKind::InvalidFilename))?;
            self.entries.push((start, len, kind));
        }
        Ok(())
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], Kind)> {
        self.entries
            .iter()
            .map(|entry| (name(&self.bytes, entry), entry.2))
    }
}

fn name<'a>(bytes: &'a [u8], &(start, len, _): &(usize, u16, Kind)) -> &'a [u8] {
    bytes
        .get(start..start + usize::from(len))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn paths_are_ordered_bytewise_and_links_to_folders_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for dir in ["a", "a/z", "b.d"] {
            fs::create_dir(path(dir)).unwrap();
        }
        for file in ["a/b", "a.b", "a0", "a/z/1", "b.d/x", "b", "B"] {
            fs::write(path(file), "").unwrap();
        }
        symlink("a.b", path("link")).unwrap();
        symlink("..", path("a/up")).unwrap();
        let odd = path("x").join(OsStr::from_bytes(b"\xff"));
        fs::create_dir(path("x")).unwrap();
        fs::write(odd, "").unwrap();

        let mut seen = Vec::new();
        walk(root.path(), &mut |met| {
            seen.push(match met {
                Walked::File(path) => path.to_vec(),
                Walked::Other(path, what) => [path, b" ", what.as_bytes()].concat(),
            });
            Ok(())
        })
        .unwrap();
        let expected: [&[u8]; 10] = [
            b"B",
            b"a.b",
            b"a/b",
            b"a/up a symbolic link to a folder",
            b"a/z/1",
            b"a0",
            b"b",
            b"b.d/x",
            b"link",
            b"x/\xff",
        ];
        assert_eq!(seen, expected);

        symlink("nowhere", path("dangling")).unwrap();
        assert!(walk(root.path(), &mut |_| Ok(())).is_err());
    }
}
