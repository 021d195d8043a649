//! Names and attributes: lookup, getattr, readdir, readlink, statfs, and the refusal of changes.

use std::ffi::OsStr;
use std::time::SystemTime;

use super::access::Permissions;
use super::names::parse_decimal;
use super::node::ControlFile;
use super::snapshots::Snapshot;
use super::{Attr, DirEntry, FileKind, Ino, Mounted, Node, StatFs, Ttl, Vfs, VfsError};
use crate::format::{MANIFEST_FILE, METADATA_FILE};
use crate::view::{Decimal, NAME_MAX};

/// What is in the root, in listing order.
const ROOT_ENTRIES: [(&str, Node, FileKind); 6] = [
    (".control", Node::Control, FileKind::Directory),
    ("by-name", Node::ByName, FileKind::Directory),
    ("caches", Node::Caches, FileKind::Directory),
    (METADATA_FILE, Node::JoinedTable, FileKind::File),
    ("samples", Node::Samples, FileKind::Directory),
    ("views", Node::Views, FileKind::Directory),
];
/// Bytes per block in statfs.
const BLOCK_SIZE: u32 = 4096;

impl Vfs {
    /// The node called `name` in folder `parent`.
    ///
    /// # Errors
    /// [`VfsError::NotFound`], [`VfsError::NameTooLong`], [`VfsError::NotADirectory`]; and
    /// [`VfsError::Damaged`] for a sample whose size cannot be known.
    pub fn lookup(&self, parent: Ino, name: &OsStr) -> Result<Attr, VfsError> {
        self.lookup_by(None, parent, name)
    }

    /// [`Vfs::lookup`] for the process `caller`, 0 when it is of another PID namespace: control files that
    /// take commands have a node for each.
    ///
    /// # Errors
    /// As [`Vfs::lookup`].
    pub fn lookup_by(
        &self,
        caller: Option<u32>,
        parent: Ino,
        name: &OsStr,
    ) -> Result<Attr, VfsError> {
        if name.len() > NAME_MAX {
            return Err(VfsError::NameTooLong);
        }
        let node = match self.node(parent)? {
            Node::Root => ROOT_ENTRIES
                .iter()
                .find(|(entry, ..)| name == *entry)
                .map(|(_, node, kind)| self.in_root(*node, *kind).0),
            Node::Samples => self.by_decimal(name).map(|m| Node::SampleDir(m.slot())),
            Node::Caches => self.by_decimal(name).map(|m| Node::CacheDir(m.slot())),
            Node::ByName => name
                .to_str()
                .and_then(|name| self.caches.by_link(name))
                .map(|mounted| Node::NameLink(mounted.slot())),
            Node::Control => ControlFile::ALL
                .into_iter()
                .find(|file| name == file.name())
                .map(|file| self.control_node(file, caller)),
            Node::SampleDir(slot) => {
                let count = self.mounted(slot)?.cache().sample_count();
                parse_decimal(name)
                    .filter(|sample| *sample < count)
                    .map(|sample| Node::Sample(slot, sample))
            }
            Node::CacheDir(slot) if name == MANIFEST_FILE => Some(self.manifest_node(slot)?),
            Node::CacheDir(slot) if name == METADATA_FILE => Some(Node::Metadata(slot)),
            Node::CacheDir(_) => None,
            Node::Views => self.find_view(name),
            Node::ViewDir(view, folder) => self.find_in_view(view, folder, name)?,
            _ => return Err(VfsError::NotADirectory),
        };
        let node = node.ok_or(VfsError::NotFound)?;
        if let Node::Sample(slot, sample) = node {
            self.at_sample(slot, sample);
            // Whoever looks a sample up by name mostly reads it next.
            self.mounted(slot)?.cache().read_ahead(sample);
        }
        let attr = self.attr(node)?;
        Ok(self.sealed(Some(node), attr))
    }

    /// Attributes of a node.
    ///
    /// # Errors
    /// [`VfsError::NotFound`], [`VfsError::Stale`], and [`VfsError::Damaged`] for a sample whose
    /// size cannot be known.
    pub fn getattr(&self, ino: Ino) -> Result<Attr, VfsError> {
        let node = self.node(ino)?;
        let attr = self.attr(node)?;
        Ok(self.sealed(Some(node), attr))
    }

    /// Whether nothing ever appears in the folder `ino`, so that the absence of a name may be
    /// remembered.
    #[must_use]
    pub fn is_static_dir(&self, ino: Ino) -> bool {
        !matches!(
            self.inodes.node(ino),
            Some(Node::Control | Node::Samples | Node::Caches | Node::ByName) | None
        )
    }

    /// Target of a symbolic link.
    ///
    /// # Errors
    /// [`VfsError::NotASymlink`], [`VfsError::NotFound`].
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>, VfsError> {
        match self.node(ino)? {
            Node::NameLink(slot) => Ok(link_target(self.mounted(slot)?).into_bytes()),
            Node::ControlLink => Ok(self.control_target().to_vec()),
            _ => Err(VfsError::NotASymlink),
        }
    }

    /// Bytes and files of the whole tree.
    #[must_use]
    pub fn statfs(&self) -> StatFs {
        let sum = |value: fn(&Mounted) -> u64| {
            let values = self.caches.iter().map(value);
            values.fold(0_u64, u64::saturating_add)
        };
        let bytes = sum(|mounted| {
            let cache = mounted.cache();
            let metadata = cache.metadata_info().identity.len;
            cache.manifest().decoded_len().saturating_add(metadata)
        });
        StatFs {
            blocks: bytes.div_ceil(u64::from(BLOCK_SIZE)),
            // The samples, and five nodes more for each cache.
            files: sum(|mounted| mounted.cache().sample_count().saturating_add(5)),
            block_size: BLOCK_SIZE,
            name_max: 255,
        }
    }

    /// Calls `sink` for each entry of folder `ino` from `offset` on, until it returns false.
    /// Entries keep their offsets for the life of the mount.
    ///
    /// # Errors
    /// [`VfsError::NotADirectory`], [`VfsError::NotFound`].
    pub fn readdir(
        &self,
        ino: Ino,
        offset: u64,
        sink: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<(), VfsError> {
        let folder = self.node(ino)?;
        if let Node::ViewDir(view, folder) = folder {
            return self.read_view_dir(view, folder, offset, sink);
        }
        let parent = self.parent_of(folder)?;
        let count = self.entry_count(folder)?;
        let mut decimal = Decimal::default();
        for position in offset..count.saturating_add(2) {
            let (node, kind, name) = match position {
                0 => (folder, FileKind::Directory, OsStr::new(".")),
                1 => (parent, FileKind::Directory, OsStr::new("..")),
                n => match self.entry(folder, n - 2, &mut decimal) {
                    Some(entry) => entry,
                    None => continue,
                },
            };
            let entry = DirEntry {
                ino: self.ino(node),
                next_offset: position + 1,
                kind,
                name,
            };
            if !sink(entry) {
                break;
            }
        }
        Ok(())
    }

    /// Number of entries of a folder, without `.` and `..`.
    fn entry_count(&self, folder: Node) -> Result<u64, VfsError> {
        Ok(match folder {
            Node::Root => ROOT_ENTRIES.len() as u64,
            Node::Samples | Node::Caches | Node::ByName => self.caches.len() as u64,
            Node::Control => ControlFile::ALL.len() as u64,
            Node::Views => self.view_count(),
            Node::SampleDir(slot) => self.mounted(slot)?.cache().sample_count(),
            Node::CacheDir(slot) => self.mounted(slot).map(|_| 2)?,
            _ => return Err(VfsError::NotADirectory),
        })
    }

    /// Entry number `n` of a folder; a cache without a link has none in `/by-name`.
    fn entry<'a>(
        &'a self,
        folder: Node,
        n: u64,
        decimal: &'a mut Decimal,
    ) -> Option<(Node, FileKind, &'a OsStr)> {
        let at = usize::try_from(n).ok()?;
        Some(match folder {
            Node::Root => {
                let (name, node, kind) = ROOT_ENTRIES.get(at)?;
                let (node, kind) = self.in_root(*node, *kind);
                (node, kind, OsStr::new(name))
            }
            Node::Samples => {
                let entry = self.caches.get(at)?;
                let name = decimal.name(entry.entry.cache_id);
                (Node::SampleDir(entry.slot()), FileKind::Directory, name)
            }
            Node::Caches => {
                let entry = self.caches.get(at)?;
                let name = decimal.name(entry.entry.cache_id);
                (Node::CacheDir(entry.slot()), FileKind::Directory, name)
            }
            Node::ByName => {
                let mounted = self.caches.get(at)?;
                let name = OsStr::new(mounted.link.as_deref()?);
                (Node::NameLink(mounted.slot()), FileKind::Symlink, name)
            }
            Node::Views => {
                let (node, name) = self.view_entry(at)?;
                (node, FileKind::Directory, name)
            }
            Node::Control => {
                let file = *ControlFile::ALL.get(at)?;
                let name = OsStr::new(file.name());
                (Node::ControlFile(file), FileKind::File, name)
            }
            Node::SampleDir(slot) => (Node::Sample(slot, n), FileKind::File, decimal.name(n)),
            Node::CacheDir(slot) if n == 0 => (
                self.manifest_node(slot).ok()?,
                FileKind::File,
                OsStr::new(MANIFEST_FILE),
            ),
            Node::CacheDir(slot) => (
                Node::Metadata(slot),
                FileKind::File,
                OsStr::new(METADATA_FILE),
            ),
            _ => return None,
        })
    }

    pub(super) fn attr(&self, node: Node) -> Result<Attr, VfsError> {
        let ino = self.ino(node);
        let caches = u32::try_from(self.caches.len()).unwrap_or(u32::MAX - 2);
        let folder = |subfolders: u32, mtime| {
            let attr = self.plain(ino, FileKind::Directory, 0, mtime);
            Ok(Attr {
                nlink: 2 + subfolders,
                ..attr
            })
        };
        match node {
            Node::Root => folder(
                5 - u32::from(self.options.control_at.is_some()),
                self.newest,
            ),
            Node::Views => {
                let views = u32::try_from(self.view_count()).unwrap_or(u32::MAX - 2);
                folder(views, self.newest).map(|attr| self.with_names(attr))
            }
            Node::ViewDir(view, folder) => self.view_dir_attr(view, folder),
            Node::ViewLines(view) => self.view_lines_attr(view),
            Node::JoinedTable => self.joined_attr(),
            Node::Samples | Node::Caches => folder(caches, self.caches.newest()),
            Node::ByName => folder(0, self.caches.newest()).map(|attr| self.with_names(attr)),
            Node::Control => folder(0, self.started),
            Node::ControlLink => Ok(self.control_link_attr()),
            Node::Log(number) => self.log_attr(Some(number)),
            Node::ControlFile(ControlFile::Log) => self.log_attr(None),
            Node::ControlFile(file) | Node::Command { file, .. } | Node::Visit { file, .. } => {
                Ok(match self.command_attr(node) {
                    Some(attr) => attr,
                    None => self.snapshot_attr(&self.snapshot(file)),
                })
            }
            Node::Snapshot(number) => {
                let snapshot = self.snapshots.get(number).ok_or(VfsError::Stale)?;
                Ok(self.snapshot_attr(&snapshot))
            }
            Node::SampleDir(slot) => {
                let mounted = self.mounted(slot)?;
                let shown = mounted.permissions().samples;
                let attr = self.of_cache(ino, mounted, shown, FileKind::Directory, 0);
                Ok(Attr { nlink: 2, ..attr })
            }
            Node::CacheDir(slot) => {
                let mounted = self.mounted(slot)?;
                let shown = mounted.permissions().folder;
                let attr = self.of_cache(ino, mounted, shown, FileKind::Directory, 0);
                Ok(Attr { nlink: 2, ..attr })
            }
            Node::Sample(slot, sample) => {
                let mounted = self.mounted(slot)?;
                if sample >= mounted.cache().sample_count() {
                    return Err(VfsError::NotFound);
                }
                self.at_sample(slot, sample);
                let (size, trusted) = mounted
                    .cache()
                    .remembered_len(sample)
                    .map_err(|error| self.damaged(slot, sample, error))?;
                let shown = mounted.permissions().sample(mounted.cache(), sample);
                let attr = self.of_cache(ino, mounted, shown, FileKind::File, size);
                let cache = self.caches.number(slot);
                let links = cache.map_or(0, |cache| self.views.links(cache, sample));
                Ok(Attr {
                    nlink: 1 + links,
                    // A length that a damaged record states may be another one when it was repaired.
                    ttl: if trusted { attr.ttl } else { Ttl::Never },
                    ..attr
                })
            }
            Node::Manifest(slot) => {
                let mounted = self.mounted(slot)?;
                let len = mounted.cache().manifest_bytes().len() as u64;
                let shown = mounted.permissions().manifest;
                Ok(Attr {
                    // A migration puts another file in its place.
                    ttl: Ttl::Never,
                    ..self.of_cache(ino, mounted, shown, FileKind::File, len)
                })
            }
            Node::Migrated(slot) => {
                let mounted = self.mounted(slot)?;
                let migrated = mounted.migrated.load_full().ok_or(VfsError::NotFound)?;
                let (len, shown) = (migrated.len() as u64, mounted.permissions().manifest);
                Ok(self.of_cache(ino, mounted, shown, FileKind::File, len))
            }
            Node::Metadata(slot) => {
                let mounted = self.mounted(slot)?;
                let len = mounted.cache().metadata_info().identity.len;
                let shown = mounted.permissions().metadata;
                Ok(self.of_cache(ino, mounted, shown, FileKind::File, len))
            }
            Node::NameLink(slot) => {
                let mounted = self.mounted(slot)?;
                let len = link_target(mounted).len() as u64;
                let shown = mounted.permissions().samples;
                let attr = self.of_cache(ino, mounted, shown, FileKind::Symlink, len);
                Ok(Attr {
                    perm: 0o777,
                    ..attr
                })
            }
        }
    }

    /// The manifest of a cache as it is now.
    fn manifest_node(&self, slot: u64) -> Result<Node, VfsError> {
        match self.mounted(slot)?.migrated.load().is_some() {
            true => Ok(Node::Migrated(slot)),
            false => Ok(Node::Manifest(slot)),
        }
    }

    /// The present text of a control file that changes all the time.
    pub(super) fn snapshot(&self, file: ControlFile) -> Snapshot {
        let caches = self.caches.iter();
        let verified = caches.map(|mounted| mounted.cache().verification_changes());
        let runs = self.migration.runs()
            + self.scrub.changes()
            + self.tamper.refused()
            + self.views.changes();
        let state = verified.fold(self.damage.changes() + runs, u64::wrapping_add);
        self.snapshots.take(file, state, || match file {
            ControlFile::Damaged => self.damaged_text(),
            ControlFile::Metrics => self.metrics_text(),
            ControlFile::Caches
            | ControlFile::Log
            | ControlFile::LogLevel
            | ControlFile::Migrate
            | ControlFile::Prefetch
            | ControlFile::Verify => Vec::new(),
            ControlFile::Status => self.status_text(),
        })
    }

    pub(super) fn snapshot_attr(&self, snapshot: &Snapshot) -> Attr {
        let ino = self.ino(Node::Snapshot(snapshot.number));
        let len = snapshot.text.len() as u64;
        Attr {
            ttl: Ttl::Never,
            perm: self.perm_of(snapshot.file),
            ..self.plain(ino, FileKind::File, len, snapshot.taken)
        }
    }

    /// Who may read a control file that only tells.
    pub(super) fn perm_of(&self, file: ControlFile) -> u16 {
        match file {
            // Numbers alone.
            ControlFile::Metrics => 0o444,
            _ => self.tells_to(),
        }
    }

    /// Who may read a text that tells names, paths and values of all caches.
    fn tells_to(&self) -> u16 {
        // Nobody knows who may read a cache that was refused.
        match self.skipped.is_empty() && !self.rescan.has_refused() {
            true => self.caches.shared().control.file,
            false => 0o400,
        }
    }

    /// A folder whose names come from manifests: whoever may not read all of them may use the names
    /// that he knows, and not list them.
    fn with_names(&self, folder: Attr) -> Attr {
        let hidden = 0o444 & !self.caches.shared().names.file;
        Attr {
            perm: folder.perm & !hidden,
            ..folder
        }
    }

    fn of_cache(
        &self,
        ino: Ino,
        mounted: &Mounted,
        shown: Permissions,
        kind: FileKind,
        size: u64,
    ) -> Attr {
        let Permissions { uid, gid, file } = shown;
        let perm = match kind {
            FileKind::Directory => shown.dir(&self.options),
            _ => file,
        };
        Attr {
            perm,
            uid,
            gid,
            ..self.plain(ino, kind, size, mounted.cache().index_info().mtime)
        }
    }

    /// Attributes of a node that belongs to no cache.
    pub(super) fn plain(&self, ino: Ino, kind: FileKind, size: u64, mtime: SystemTime) -> Attr {
        Attr {
            ino,
            size,
            mtime,
            kind,
            perm: match kind {
                FileKind::Directory => 0o755,
                _ => 0o444,
            },
            nlink: 1,
            uid: self.options.uid,
            gid: self.options.gid,
            ttl: Ttl::Forever,
            sealed: false,
        }
    }

    pub(super) fn by_decimal(&self, name: &OsStr) -> Option<&Mounted> {
        self.caches.by_id(parse_decimal(name)?)
    }
}

fn link_target(mounted: &Mounted) -> String {
    format!("../samples/{}", mounted.entry.cache_id)
}
