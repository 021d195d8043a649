//! What a file has beside its bytes: owner, mode, and extended attributes, ACLs among them.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr};
use rustix::fs::{getxattr, listxattr};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// Most bytes that the kernel gives for a value, and for all names.
const XATTR_MAX: usize = 64 << 10;

/// Sums of the file's bytes: those of the old file would be wrong.
const SUMS: [&[u8]; 2] = [b"security.ima", b"security.evm"];
/// Where the bytes of this one file lie, which a new file has of its own (Lustre).
const PLACES: &[u8] = b"lustre.";

type Xattrs = BTreeMap<CString, Vec<u8>>;

/// Owner, mode and extended attributes of a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Attributes {
    uid: u32,
    gid: u32,
    mode: u32,
    xattrs: Xattrs,
}

impl Attributes {
    /// Those of `path`, links followed.
    ///
    /// # Errors
    /// [`Error::Io`] naming `path`, and the attribute that cannot be read or that no other file
    /// may have.
    pub(super) fn of(path: &Path) -> Result<Self> {
        let meta = fs::metadata(path).map_err(|source| Error::io(path, "stat", source))?;
        let list = |buf: &mut [u8]| listxattr(path, buf);
        let names = names(list).map_err(|e| Error::io(path, "list its attributes", e))?;
        let mut xattrs = Xattrs::new();
        for name in names {
            if SUMS.contains(&name.to_bytes()) {
                let source = io::Error::from(io::ErrorKind::Unsupported);
                return Err(Error::io(path, keeping(&name), source));
            }
            match value(|buf| getxattr(path, &name, buf)) {
                Ok(value) => drop(xattrs.insert(name, value)),
                Err(Errno::NODATA) => {}
                Err(errno) => return Err(Error::io(path, keeping(&name), errno.into())),
            }
        }
        Ok(Self {
            uid: meta.uid(),
            gid: meta.gid(),
            mode: meta.mode() & 0o7777,
            xattrs,
        })
    }

    /// Whether a new file of this process may lack some of it.
    pub(super) fn are_uncommon(&self) -> bool {
        let ids = (rustix::process::geteuid(), rustix::process::getegid());
        let own = (ids.0.as_raw(), ids.1.as_raw());
        !self.xattrs.is_empty() || (self.uid, self.gid) != own || self.mode & 0o7000 != 0
    }

    /// Gives all of it to `file`, which is to take the place of `target`, and takes what that
    /// has beyond it: its folder may have given it an ACL.
    ///
    /// # Errors
    /// [`Error::Io`] naming `target` and what cannot be kept.
    pub(super) fn give_to(&self, file: &File, target: &Path) -> Result<()> {
        let failed = |action: &'static str| move |source| Error::io(target, action, source);
        let meta = file.metadata().map_err(failed("stat the new file"))?;
        if (meta.uid(), meta.gid()) != (self.uid, self.gid) {
            fchown(file, Some(self.uid), Some(self.gid)).map_err(failed("keep its owner"))?;
        }
        let found = xattrs_of(file).map_err(failed("list attributes of the new file"))?;
        for name in found.keys().filter(|name| !self.xattrs.contains_key(*name)) {
            fremovexattr(file, name)
                .map_err(|errno| Error::io(target, "keep its lack of attributes", errno.into()))?;
        }
        for (name, value) in &self.xattrs {
            if found.get(name) != Some(value) {
                fsetxattr(file, name, value, XattrFlags::empty())
                    .map_err(|errno| Error::io(target, keeping(name), errno.into()))?;
            }
        }
        // After the owner: changing that one clears the set-id bits. After the ACL, which has a
        // part of the mode: both say the same there.
        file.set_permissions(Permissions::from_mode(self.mode))
            .map_err(failed("keep its mode"))?;
        self.compare(file, target)
    }

    /// A system may take what it was given and keep something else.
    fn compare(&self, file: &File, target: &Path) -> Result<()> {
        let failed = |source| Error::io(target, "look at the new file", source);
        let lost = |action: String| {
            let source = io::Error::from(io::ErrorKind::Unsupported);
            Err(Error::io(target, action, source))
        };
        let meta = file.metadata().map_err(failed)?;
        let kept = (meta.uid(), meta.gid(), meta.mode() & 0o7777);
        if kept != (self.uid, self.gid, self.mode) {
            return lost("keep its owner and mode".to_owned());
        }
        let found = xattrs_of(file).map_err(failed)?;
        let names = self.xattrs.keys().chain(found.keys());
        for name in names {
            if self.xattrs.get(name) != found.get(name) {
                return lost(keeping(name));
            }
        }
        Ok(())
    }
}

/// The action that fails.
fn keeping(name: &CString) -> String {
    format!("keep its attribute {}", name.to_string_lossy())
}

fn xattrs_of(file: &File) -> io::Result<Xattrs> {
    let fd = file.as_fd();
    let mut xattrs = Xattrs::new();
    for name in names(|buf| flistxattr(fd, buf))? {
        match value(|buf| fgetxattr(fd, &name, buf)) {
            Ok(value) => drop(xattrs.insert(name, value)),
            Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(xattrs)
}

/// The names that `list` gives; none where the file system has none.
fn names(list: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>) -> io::Result<Vec<CString>> {
    let mut buf = vec![0; XATTR_MAX];
    let len = match list(&mut buf) {
        Ok(len) => len,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => 0,
        Err(errno) => return Err(errno.into()),
    };
    let names = buf.get(..len).unwrap_or_default().split(|byte| *byte == 0);
    let names = names.filter(|name| !name.is_empty() && !name.starts_with(PLACES));
    // There is no zero left in them.
    Ok(names.filter_map(|name| CString::new(name).ok()).collect())
}

fn value(get: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut buf = vec![0; XATTR_MAX];
    let len = get(&mut buf)?;
    buf.truncate(len);
    buf.shrink_to_fit();
    Ok(buf)
}
