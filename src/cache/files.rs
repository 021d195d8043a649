//! The files of a cache, where they lay when it was opened.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Cache;
use crate::error::{Error, Fault, FaultKind, Result};
use crate::format::manifest::{MAX_MANIFEST_LEN, Manifest, ManifestFault, ShardEntry};
use crate::format::{INDEX_FILE, MANIFEST_FILE, METADATA_FILE, SHARDS_DIR};
use crate::storage::{self, Folder, OpenFileLimit, Place};

/// What cannot be done when a shard is missing.
const MISSING_SHARD: &str =
    "find this shard, which manifest.json lists: copy the cache again, with all its files";

/// The folder, and where each of its files lies.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) folder: Folder,
    /// `None` for a cache without shards, which needs no folder for them.
    pub(super) shards: Option<Folder>,
    pub(super) manifest: Place,
    pub(super) metadata: Place,
    pub(super) index: Place,
}

impl Files {
    /// Finds all files, whose manifest is `manifest`, and those of its shards.
    pub(super) fn find(
        folder: Folder,
        manifest_file: Place,
        manifest: &Manifest,
    ) -> Result<(Self, Vec<Place>)> {
        let shards = match manifest.shards.is_empty() {
            true => None,
            false => Some(shards_of(&folder, manifest)?),
        };
        let mut places = Vec::with_capacity(manifest.shards.len());
        for entry in &manifest.shards {
            let folder = shards.as_ref().unwrap_or(&folder);
            places.push(find_shard(folder, entry)?);
        }
        let files = Self {
            index: folder.file(INDEX_FILE)?,
            metadata: folder.file(METADATA_FILE)?,
            manifest: manifest_file,
            shards,
            folder,
        };
        Ok((files, places))
    }
}

/// The folder of a cache. When it is missing, so is the manifest.
pub(super) fn open_folder(dir: &Path, limit: &Arc<OpenFileLimit>) -> Result<Folder> {
    Folder::open(dir, limit).map_err(|error| missing(error, || dir.join(MANIFEST_FILE)))
}

/// An error that names the file that is missing with its folder.
fn missing(error: Error, file: impl FnOnce() -> PathBuf) -> Error {
    match error {
        Error::Io { source, action, .. } if source.kind() == ErrorKind::NotFound => Error::Io {
            path: file(),
            action,
            source,
        },
        other => other,
    }
}

/// The folder of the shards. When it is missing, so is the first shard.
pub(super) fn shards_of(folder: &Folder, manifest: &Manifest) -> Result<Folder> {
    let first = manifest.shards.first();
    let first = first.map_or("", |shard| shard.name.as_str());
    folder.folder(SHARDS_DIR).map_err(|error| match error {
        Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            let first = folder.path().join(SHARDS_DIR).join(first);
            Error::io(first, MISSING_SHARD, source)
        }
        other => other,
    })
}

/// A shard is a file of the length that the manifest says.
pub(super) fn find_shard(folder: &Folder, shard: &ShardEntry) -> Result<Place> {
    let place = folder
        .file(shard.name.as_str())
        .map_err(|error| match error {
            Error::Io { path, source, .. } if source.kind() == ErrorKind::NotFound => {
                Error::io(path, MISSING_SHARD, source)
            }
            other => other,
        })?;
    let len = place.info().identity.len;
    if len != shard.byte_len {
        return Err(Fault::new(
            FaultKind::Length,
            format!("{} bytes (byte_len of the manifest)", shard.byte_len),
            format!("{len} bytes"),
        )
        .in_file(place.path()));
    }
    Ok(place)
}

/// Reads and checks the manifest in `folder`, and nothing else; also gives its place and bytes.
pub(super) fn manifest_in(folder: &Folder) -> Result<(Place, Manifest, Vec<u8>)> {
    let place = match folder.file(MANIFEST_FILE) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            return Err(Error::Incomplete {
                cache: folder.path().to_path_buf(),
            });
        }
        other => other?,
    };
    let (manifest, bytes) = read_manifest(&place)?;
    Ok((place, manifest, bytes))
}

fn read_manifest(place: &Place) -> Result<(Manifest, Vec<u8>)> {
    let bytes = storage::read_small_at(place, MAX_MANIFEST_LEN)?;
    match Manifest::parse(&bytes) {
        Ok(manifest) => Ok((manifest, bytes)),
        Err(ManifestFault::Version(found)) => Err(Error::UnsupportedVersion {
            path: place.path().to_path_buf(),
            found,
        }),
        Err(ManifestFault::Fault(fault)) => Err(fault.in_file(place.path())),
    }
}

impl Cache {
    /// Reads and checks the manifest of the cache in folder `dir`, and nothing else; also gives its
    /// bytes.
    ///
    /// # Errors
    /// As [`Cache::open`].
    pub fn read_manifest(dir: &Path) -> Result<(Manifest, Vec<u8>)> {
        let folder = open_folder(dir, &OpenFileLimit::new(1))?;
        manifest_in(&folder).map(|(_, manifest, bytes)| (manifest, bytes))
    }

    /// Reads and checks the manifest that the cache's folder has now, which a migration may have
    /// replaced since the cache was opened; also gives its bytes.
    ///
    /// # Errors
    /// As [`Cache::open`].
    pub fn manifest_now(&self) -> Result<(Manifest, Vec<u8>)> {
        read_manifest(&self.files.manifest)
    }

    /// Where the manifest lies.
    #[must_use]
    pub fn manifest_place(&self) -> &Place {
        &self.files.manifest
    }

    /// Where `metadata.arrow` lies.
    #[must_use]
    pub fn metadata_place(&self) -> &Place {
        &self.files.metadata
    }

    /// Where `index.bin` lies.
    #[must_use]
    pub fn index_place(&self) -> &Place {
        &self.files.index
    }

    /// Where the shard at position `shard` of the manifest's list lies.
    #[must_use]
    pub fn shard_place(&self, shard: usize) -> Option<&Place> {
        self.shards.place(shard)
    }

    /// Whether each file lies on a file system that is known to note each change in a ctime that nobody
    /// can set.
    #[must_use]
    pub fn keeps_ctime(&self) -> bool {
        let files = &self.files;
        let tables = [&files.manifest, &files.metadata, &files.index];
        let shards = (0..self.manifest.shards.len()).filter_map(|n| self.shards.place(n));
        tables.into_iter().chain(shards).all(Place::keeps_ctime)
    }

    /// The folder, held since the cache was opened.
    #[must_use]
    pub fn folder(&self) -> &Folder {
        &self.files.folder
    }

    /// The paths of all entries of the folder of the shards; none for a cache without shards that
    /// has no such folder.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn list_shards(&self) -> Result<Vec<PathBuf>> {
        match &self.files.shards {
            Some(shards) => shards.list(),
            None => match self.files.folder.folder(SHARDS_DIR) {
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                    Ok(Vec::new())
                }
                other => other?.list(),
            },
        }
    }

    /// Where the cache's folder and files really lie, links resolved when it was opened.
    #[must_use]
    pub fn real_paths(&self) -> Vec<PathBuf> {
        let files = &self.files;
        let mut paths = vec![files.folder.real_path().to_path_buf()];
        for place in [&files.manifest, &files.metadata, &files.index] {
            paths.push(place.real_path());
        }
        let shards = files.shards.as_ref().map(Folder::real_path);
        paths.extend(shards.map(std::path::Path::to_path_buf));
        for shard in 0..self.manifest.shards.len() {
            let path = self.shards.place(shard).map(Place::real_path);
            paths.extend(path.filter(|path| path.parent() != shards));
        }
        paths
    }

    /// Whether another cache has come to this one's place: another folder, or another manifest in it
    /// than the one that was loaded or its migrated form. A place that cannot be looked at is not
    /// replaced.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        let limit = OpenFileLimit::new(1);
        let Ok(now) = Folder::open(self.dir(), &limit) else {
            return false;
        };
        if !self.files.folder.is(&now) {
            return true;
        }
        let (loaded, seen) = (&self.manifest, self.files.manifest.info());
        let untouched = now.file(MANIFEST_FILE).is_ok_and(|found| {
            let found = found.info();
            seen.identity.is(&found.identity) && seen.mtime == found.mtime
        });
        if untouched {
            return false;
        }
        match manifest_in(&now) {
            Ok((_, found, bytes)) => {
                let migrated = Manifest {
                    version: loaded.version,
                    cache_id: loaded.cache_id,
                    ..found
                };
                bytes != self.manifest_bytes && migrated != *loaded
            }
            Err(error) => matches!(
                error,
                Error::Damaged { .. } | Error::UnsupportedVersion { .. }
            ),
        }
    }
}
