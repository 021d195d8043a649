//! What is wrong with a cache that cannot be opened: all of it, where `Cache::open` stops at the
//! first thing.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::validate::check_file;
use super::{Cache, FileCheck, check_shard, open_table, rows};
use crate::error::{Error, Fault, FaultKind, Result};
use crate::format::manifest::Manifest;
use crate::format::{INDEX_FILE, METADATA_FILE, SHARDS_DIR};
use crate::storage::MappedFile;

/// Bad rows of an index that are told one by one.
const MOST_ROWS: usize = 1000;

/// A cache as far as its manifest can be read, and what is wrong with its structure.
#[derive(Debug)]
pub struct Survey {
    dir: PathBuf,
    manifest: Option<Manifest>,
    /// Files that can be hashed, with their lengths in bytes.
    files: Vec<(FileCheck, u64)>,
    /// Each reason for which the cache is refused.
    pub errors: Vec<Error>,
}

impl Survey {
    /// Does the checks of [`Cache::open`] on the cache in folder `dir`, and goes on after the first
    /// that fails.
    #[must_use]
    pub fn of(dir: &Path) -> Self {
        let mut survey = Self {
            dir: dir.to_path_buf(),
            manifest: None,
            files: Vec::new(),
            errors: Vec::new(),
        };
        match Cache::read_manifest(dir) {
            Ok((manifest, _)) => {
                survey.shards(&manifest);
                survey.index(&manifest);
                survey.metadata(&manifest);
                survey.manifest = Some(manifest);
            }
            Err(error) => survey.errors.push(error),
        }
        survey
    }

    fn shards(&mut self, manifest: &Manifest) {
        let folder = self.dir.join(SHARDS_DIR);
        for (n, shard) in manifest.shards.iter().enumerate() {
            match check_shard(&folder.join(shard.name.as_str()), shard) {
                Ok(seen) => self.files.push((FileCheck::Shard(n), seen.identity.len)),
                Err(error) => self.errors.push(error),
            }
        }
    }

    fn index(&mut self, manifest: &Manifest) {
        let path = self.dir.join(INDEX_FILE);
        let index = match MappedFile::open(&path) {
            Ok(index) => index,
            Err(error) => return self.errors.push(error),
        };
        self.files.push((FileCheck::Index, index.identity().len));
        let mut faults = rows::faults(&path, index.as_ref(), manifest);
        self.errors.extend(faults.by_ref().take(MOST_ROWS));
        let more = faults.count();
        if more > 0 {
            let found = format!("{more} more rows that point elsewhere");
            let fault = Fault::new(FaultKind::IndexRow, "rows inside their shards", found);
            self.errors.push(fault.in_file(&path));
        }
        let intact = index.intact().map_err(|fault| fault.in_file(&path));
        self.errors.extend(intact.err());
    }

    fn metadata(&mut self, manifest: &Manifest) {
        let path = self.dir.join(METADATA_FILE);
        let result = MappedFile::open(&path).and_then(|file| {
            self.files.push((FileCheck::Metadata, file.identity().len));
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

    /// As [`Cache::file_checks`], of the files that are there.
    pub fn file_checks(&self) -> impl Iterator<Item = (FileCheck, u64)> + '_ {
        self.files.iter().copied()
    }

    /// As [`Cache::check_file_while`].
    ///
    /// # Errors
    /// As there.
    pub fn check_file_while(
        &self,
        check: FileCheck,
        buf: &mut [u8],
        go_on: &dyn Fn(u64) -> ControlFlow<()>,
    ) -> Result<()> {
        match &self.manifest {
            Some(manifest) => check_file(&self.dir, manifest, check, buf, go_on),
            None => Ok(()),
        }
    }
}
