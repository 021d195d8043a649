//! What is wrong with a cache that cannot be opened: all of it, where `Cache::open` stops at the
//! first thing.

use std::ops::ControlFlow;
use std::path::Path;

use super::files::{find_shard, manifest_in, open_folder, shards_of};
use super::validate::{check_file, check_len};
use super::{FileCheck, open_table, rows};
use crate::error::{Error, Fault, FaultKind, Result};
use crate::format::manifest::Manifest;
use crate::format::{INDEX_FILE, METADATA_FILE};
use crate::storage::{Folder, MappedFile, OpenFileLimit, Place};

/// Bad rows of an index that are told; the rows after them are not looked at.
const MOST_ROWS: usize = 1000;

/// A cache as far as its manifest can be read, and what is wrong with its structure.
#[derive(Debug)]
pub struct Survey {
    manifest: Option<Manifest>,
    /// Files that can be hashed.
    files: Vec<(FileCheck, Place)>,
    /// Each reason for which the cache is refused.
    pub errors: Vec<Error>,
}

impl Survey {
    /// Does the checks of [`Cache::open`](super::Cache::open) on the cache in folder `dir`, and
    /// goes on after the first that fails.
    #[must_use]
    pub fn of(dir: &Path) -> Self {
        let mut survey = Self {
            manifest: None,
            files: Vec::new(),
            errors: Vec::new(),
        };
        let limit = OpenFileLimit::new(1);
        let opened = open_folder(dir, &limit).and_then(|folder| {
            let (_, manifest, _) = manifest_in(&folder)?;
            Ok((folder, manifest))
        });
        match opened {
            Ok((folder, manifest)) => {
                survey.shards(&folder, &manifest);
                survey.index(&folder, &manifest);
                survey.metadata(&folder, &manifest);
                survey.manifest = Some(manifest);
            }
            Err(error) => survey.errors.push(error),
        }
        survey
    }

    fn shards(&mut self, folder: &Folder, manifest: &Manifest) {
        if manifest.shards.is_empty() {
            return;
        }
        let shards = match shards_of(folder, manifest) {
            Ok(shards) => shards,
            Err(error) => return self.errors.push(error),
        };
        for (n, shard) in manifest.shards.iter().enumerate() {
            match find_shard(&shards, shard) {
                Ok(place) => self.files.push((FileCheck::Shard(n), place)),
                Err(error) => self.errors.push(error),
            }
        }
    }

    fn index(&mut self, folder: &Folder, manifest: &Manifest) {
        let opened = folder
            .file(INDEX_FILE)
            .and_then(|place| Ok((MappedFile::open_at(&place)?, place)));
        let (index, place) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.errors.push(error),
        };
        let path = place.path().to_path_buf();
        // What cannot be right by its length is not hashed.
        if check_len(manifest, FileCheck::Index, index.identity().len).is_ok() {
            self.files.push((FileCheck::Index, place));
        }
        let mut faults = rows::faults(&path, index.as_ref(), manifest);
        self.errors.extend(faults.by_ref().take(MOST_ROWS));
        if faults.next().is_some() {
            let found = format!("{MOST_ROWS} and more rows that point elsewhere");
            let fault = Fault::new(FaultKind::IndexRow, "rows inside their shards", found);
            self.errors.push(fault.in_file(&path));
        }
        let intact = index.intact().map_err(|fault| fault.in_file(&path));
        self.errors.extend(intact.err());
    }

    fn metadata(&mut self, folder: &Folder, manifest: &Manifest) {
        let result = folder.file(METADATA_FILE).and_then(|place| {
            let file = MappedFile::open_at(&place)?;
            let path = place.path().to_path_buf();
            let fits = check_len(manifest, FileCheck::Metadata, file.identity().len);
            fits.map_err(|fault| fault.in_file(&path))?;
            self.files.push((FileCheck::Metadata, place));
            open_table(&path, &file, manifest)?;
            file.intact().map_err(|fault| fault.in_file(&path))
        });
        self.errors.extend(result.err());
    }

    /// The identity that the cache has at `position` of a list, if its manifest can be read.
    #[must_use]
    pub fn cache_id(&self, position: u64) -> Option<u64> {
        let manifest = self.manifest.as_ref()?;
        Some(manifest.cache_id.unwrap_or(position))
    }

    /// As [`Cache::file_checks`](super::Cache::file_checks), of the files that are there.
    pub fn file_checks(&self) -> impl Iterator<Item = (FileCheck, u64)> + '_ {
        let len = |place: &Place| place.info().identity.len;
        self.files
            .iter()
            .map(move |(check, place)| (*check, len(place)))
    }

    /// As [`Cache::check_file_while`](super::Cache::check_file_while).
    ///
    /// # Errors
    /// As there.
    pub fn check_file_while(
        &self,
        check: FileCheck,
        buf: &mut [u8],
        go_on: &dyn Fn(u64) -> ControlFlow<()>,
    ) -> Result<()> {
        let place = self.files.iter().find(|(file, _)| *file == check);
        match (&self.manifest, place) {
            (Some(manifest), Some((_, place))) => check_file(place, manifest, check, buf, go_on),
            _ => Ok(()),
        }
    }
}
