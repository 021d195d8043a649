//! From a path to what lies there: without following links, or with each link noted.
//!
//! Nothing is opened for reading here: a descriptor of a place (`O_PATH`) wakes no device and no pipe.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat};
use rustix::io::Errno;

use super::device::refuse_own;

/// Links on one path, as many as the kernel follows.
const MOST_LINKS: usize = 40;

/// What lies at the end of a path.
#[derive(Debug)]
pub(super) struct Resolved {
    /// The place itself.
    pub(super) file: OwnedFd,
    /// The folder that it lies in; `None` for a path that ends in `..` or is the root.
    pub(super) folder: Option<OwnedFd>,
    /// Its path without links.
    pub(super) real: PathBuf,
    /// Each link that was followed, and its owner.
    pub(super) links: Vec<(PathBuf, u32)>,
}

const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// The place `path` below `dir`, if no link lies on the way and it is none.
///
/// # Errors
/// `ELOOP` for a link; what the system says.
pub(super) fn place_without_links(dir: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = ResolveFlags::NO_SYMLINKS;
    let file = match openat2(&dir, path, PLACE, Mode::empty(), flags) {
        // Before Linux 5.6, or where calls are filtered.
        Err(Errno::NOSYS | Errno::PERM) => step_without_links(dir, path)?,
        other => other?,
    };
    refuse_own(&file)?;
    Ok(file)
}

/// As openat2(2) without links, step by step.
fn step_without_links(dir: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let mut place = openat(dir, ".", PLACE | OFlags::DIRECTORY, Mode::empty())?;
    for part in path.components() {
        let name = match part {
            Component::RootDir => OsStr::new("/"),
            other => other.as_os_str(),
        };
        place = openat(&place, name, PLACE | OFlags::NOFOLLOW, Mode::empty())?;
        if is_link(&place)?.is_some() {
            return Err(Errno::LOOP.into());
        }
    }
    Ok(place)
}

/// The owner of a link; `None` when it is something else.
fn is_link(place: &OwnedFd) -> io::Result<Option<u32>> {
    refuse_own(place)?;
    let found = fstat(place)?;
    let link = FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
    Ok(link.then_some(found.st_uid))
}

/// Follows `path` from the working folder on, links and all.
pub(super) fn resolve(path: &Path) -> io::Result<Resolved> {
    let (start, real) = match path.is_absolute() {
        true => (root()?, PathBuf::from("/")),
        false => {
            let start = openat(CWD, ".", PLACE | OFlags::DIRECTORY, Mode::empty())?;
            (start, std::env::current_dir()?)
        }
    };
    resolve_from(start, real, path)
}

/// Follows `path` from the folder `start` on, whose path without links is `real`.
pub(super) fn resolve_from(start: OwnedFd, real: PathBuf, path: &Path) -> io::Result<Resolved> {
    let mut links = Vec::new();
    let mut todo: VecDeque<OsString> = parts(path).collect();
    let (mut at, mut real) = (start, real);
    let mut folder = None;
    while let Some(name) = todo.pop_front() {
        if name == "/" {
            (at, real, folder) = (root()?, PathBuf::from("/"), None);
            continue;
        }
        let next = openat(&at, &name, PLACE | OFlags::NOFOLLOW, Mode::empty())?;
        if let Some(owner) = is_link(&next)? {
            links.push((real.join(&name), owner));
            if links.len() > MOST_LINKS {
                return Err(Errno::LOOP.into());
            }
            let target = readlinkat(&next, "", Vec::new())?.into_bytes();
            let target = PathBuf::from(OsString::from_vec(target));
            for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                todo.push_front(part);
            }
            continue;
        }
        if name == ".." {
            real.pop();
            (at, folder) = (next, None);
        } else {
            real.push(&name);
            let next = if todo.is_empty() {
                next
            } else {
                mounted(&at, &name).unwrap_or(next)
            };
            folder = Some(std::mem::replace(&mut at, next));
        }
    }
    Ok(Resolved {
        file: at,
        folder,
        real,
        links,
    })
}

/// The folder `name` in `dir` with what is mounted there on demand: a place alone wakes no automounter.
fn mounted(dir: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    place_without_links(dir, &Path::new(name).join("."))
}

fn root() -> io::Result<OwnedFd> {
    Ok(openat(CWD, "/", PLACE | OFlags::DIRECTORY, Mode::empty())?)
}

/// The names on a path, `/` for the root.
fn parts(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|part| match part {
        Component::CurDir => None,
        Component::RootDir => Some(OsString::from("/")),
        other => Some(other.as_os_str().to_owned()),
    })
}

/// The path of `path` without `.` and `..`, right where no link lies on it.
pub(super) fn lexical(path: &Path) -> io::Result<PathBuf> {
    let mut real = std::path::absolute(path)?;
    if real.components().any(|part| part == Component::ParentDir) {
        let mut plain = PathBuf::new();
        for part in real.components() {
            match part {
                Component::ParentDir => {
                    plain.pop();
                }
                other => plain.push(other),
            }
        }
        real = plain;
    }
    Ok(real)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn each_way_to_a_place_agrees_and_links_are_told_with_their_owners() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "text").unwrap();
        symlink("../a/./b", root.join("a/rel")).unwrap();
        symlink(root.join("a/rel"), root.join("abs")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let inode = fs::metadata(root.join("a/b/file")).unwrap().ino();
        for (path, links) in [
            ("a/b/file", 0),
            ("a/../a/b/file", 0),
            ("a/rel/file", 1),
            ("abs/file", 2),
        ] {
            let found = resolve(&root.join(path)).unwrap();
            assert_eq!(found.real, root.join("a/b/file"), "{path}");
            assert_eq!(found.links.len(), links, "{path}");
            let me = rustix::process::geteuid().as_raw();
            assert!(found.links.iter().all(|(_, owner)| *owner == me));
            assert_eq!(fstat(&found.file).unwrap().st_ino, inode, "{path}");
            let parent = fs::metadata(root.join("a/b")).unwrap().ino();
            assert_eq!(fstat(found.folder.unwrap()).unwrap().st_ino, parent);
            for place in [
                place_without_links(CWD, &root.join(path)),
                step_without_links(CWD, &root.join(path)),
            ] {
                match place {
                    Ok(place) => {
                        assert_eq!(links, 0, "{path}");
                        assert_eq!(fstat(place).unwrap().st_ino, inode);
                        assert_eq!(lexical(&root.join(path)).unwrap(), root.join("a/b/file"));
                    }
                    Err(error) => {
                        assert!(links > 0, "{path}: {error}");
                        assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
                    }
                }
            }
        }
        let looped = resolve(&root.join("loop")).unwrap_err();
        assert_eq!(looped.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        let missing = resolve(&root.join("abs/nothing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
