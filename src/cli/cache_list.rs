//! The ordered list of caches, as every command takes it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::dataset;
use crate::error::{Error, Result};

/// The arguments that name caches.
#[derive(Clone, Debug, clap::Args)]
pub struct CacheList {
    /// Cache folders, or folders whose children are caches (by name, bytewise)
    #[arg(value_name = "CACHES", required_unless_present = "caches_from")]
    caches: Vec<PathBuf>,

    /// Read more cache folders from FILE, one path a line, after those named here
    #[arg(long, value_name = "FILE")]
    caches_from: Option<PathBuf>,
}

impl CacheList {
    /// The caches, folders of caches expanded.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Refused`] naming the path that cannot be read or holds no caches.
    pub fn expand(&self) -> Result<Vec<PathBuf>> {
        let mut paths = self.caches.clone();
        if let Some(list) = &self.caches_from {
            paths.extend(read_list(list)?);
            if paths.is_empty() {
                return Err(Error::refused(list, "no cache folder is listed here"));
            }
        }
        dataset::expand(&paths)
    }
}

/// One path a line, any bytes; empty lines do not count.
///
/// # Errors
/// [`Error::Io`].
pub fn read_list(list: &Path) -> Result<Vec<PathBuf>> {
    let bytes =
        fs::read(list).map_err(|source| Error::io(list, "read the list of caches", source))?;
    let lines = bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    Ok(lines
        .map(|line| PathBuf::from(OsStr::from_bytes(line)))
        .collect())
}
