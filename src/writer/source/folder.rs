//! A folder: each regular file below it is a sample, ordered bytewise by path.
//!
//! Symbolic links to files are packed as the files they lead to; links to folders are not followed,
//! and they, pipes, sockets and devices are left out and reported.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{Found, Item, Payload, Place, Source};
use crate::error::Result;
use crate::storage::{self, Walked};

/// A folder of files.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The folder at `path`.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }
}

impl Source for Folder {
    fn path(&self) -> &Path {
        &self.path
    }

    fn visit(&self, load: bool, each: &mut dyn FnMut(Found) -> Result<()>) -> Result<()> {
        storage::walk(&self.path, &mut |met| match met {
            Walked::File(name) => each(Found::Item(Item {
                payload: match load {
                    true => Payload::File(self.path.join(OsStr::from_bytes(name))),
                    false => Payload::Left,
                },
                name: name.to_vec(),
                len: None,
                place: Place::Member(name.to_vec()),
                cells: Vec::new(),
            })),
            Walked::Other(name, what) => {
                let place = Place::Member(name.to_vec());
                each(Found::Skipped(place, what.to_owned()))
            }
        })
    }

    fn has_folders(&self) -> bool {
        true
    }
}
