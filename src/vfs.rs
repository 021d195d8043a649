//! The tree of the mount on our own types: lookup, getattr, readdir, read, write.
//!
//! Nothing here knows FUSE; an adapter (`crate::fuse`) translates requests into these calls and
//! [`VfsError`]s into errno values. docs/semantics.md says what each call does.

mod access;
mod attr;
mod control;
mod counters;
mod damage;
mod in_flight;
mod joined;
mod lazy_file;
mod log_level;
mod migration;
mod names;
mod node;
mod payloads;
mod read;
mod scrub;
mod snapshots;
mod status;
mod tree;
mod views;
mod xattr;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

pub use attr::{Attr, DirEntry, FileKind, SetAttr, StatFs, Ttl, VfsError, Written};
pub use counters::{Counters, Request};
pub use in_flight::Serving;
pub use node::Ino;

use access::Permissions;
use arc_swap::ArcSwapOption;
use control::SeenTexts;
use damage::Damage;
use in_flight::InFlight;
use lazy_file::LazyFile;
use log_level::LogLevel;
use migration::Migration;
use node::{MAX_SAMPLES, MAX_SLOTS, Node};
use payloads::Payloads;
use scrub::{Forget, Scrub};
use snapshots::Snapshots;
use views::Views;

use crate::cache::Cache;
use crate::dataset::{Dataset, Entry};
use crate::error::{Error, Result};
use crate::format::MANIFEST_FILE;
use crate::format::manifest::{FormatVersion, Manifest};
use crate::storage::{self, ScratchFile};
use crate::view::{OnCollision, ViewSpec};

/// Half of what a slow hard disk gives, so that readers keep the other half.
pub const DEFAULT_SCRUB_RATE: u64 = 64 << 20;

/// How a tree is shown.
#[derive(Clone, Debug)]
pub struct VfsOptions {
    /// Where it is mounted, for `/.control/status`.
    pub mountpoint: PathBuf,
    /// Owner of the folders and control files that belong to no cache.
    pub uid: u32,
    /// Group of the same.
    pub gid: u32,
    /// Owner to show instead of each cache's own.
    pub show_uid: Option<u32>,
    /// Group to show instead of each cache's own.
    pub show_gid: Option<u32>,
    /// Permission bits to take from 0444, instead of those that each cache's own files lack.
    pub umask: Option<u32>,
    /// Most bytes of decoded payloads to hold.
    pub cache_memory: u64,
    /// Views to show beside those that are there without being asked for.
    pub views: Vec<ViewSpec>,
    /// Whether to show `by-<field>` and `path`.
    pub auto_views: bool,
    /// What happens to samples that a view in `views` would call the same.
    pub on_collision: OnCollision,
    /// Whether each view has a `metadata.jsonl`.
    pub view_metadata: bool,
    /// Whether samples have extended attributes.
    pub xattrs: bool,
    /// Bytes that a check behind the mount may read per second; 0 for as many as it can.
    pub scrub_rate: u64,
}

impl Default for VfsOptions {
    fn default() -> Self {
        Self {
            mountpoint: PathBuf::new(),
            uid: 0,
            gid: 0,
            show_uid: None,
            show_gid: None,
            umask: None,
            cache_memory: 1 << 30,
            views: Vec::new(),
            auto_views: true,
            on_collision: OnCollision::Refuse,
            view_metadata: true,
            xattrs: false,
            scrub_rate: DEFAULT_SCRUB_RATE,
        }
    }
}

/// One cache in the tree.
#[derive(Debug)]
struct Mounted {
    entry: Entry,
    permissions: Permissions,
    /// Its name under `/by-name`, when its source name can be one.
    link: Option<String>,
    /// The manifest that a migration has put in the place of the one that was loaded.
    migrated: ArcSwapOption<Vec<u8>>,
}

impl Mounted {
    fn slot(&self) -> u64 {
        self.entry.position as u64
    }

    fn cache(&self) -> &Cache {
        &self.entry.cache
    }

    /// The manifest as it is now.
    fn manifest_version(&self) -> FormatVersion {
        match self.migrated.load().is_some() {
            true => FormatVersion::V3,
            false => self.cache().manifest().version,
        }
    }

    /// Takes the manifest from disk, if it is the migrated form of the one that was loaded. Once
    /// taken it stays: its node is one that never changes.
    fn reload_manifest(&self) {
        let loaded = self.cache().manifest();
        if loaded.version == FormatVersion::V3 || self.migrated.load().is_some() {
            return;
        }
        let migrated = Manifest {
            version: FormatVersion::V3,
            cache_id: Some(self.entry.cache_id),
            ..loaded.clone()
        };
        if let Ok((manifest, bytes)) = Cache::read_manifest(self.cache().dir())
            && manifest == migrated
        {
            self.migrated.store(Some(Arc::new(bytes)));
        }
    }
}

/// The tree over one list of caches.
#[derive(Debug)]
pub struct Vfs {
    options: VfsOptions,
    dataset: Dataset,
    caches: Vec<Mounted>,
    by_id: HashMap<u64, usize>,
    by_slot: HashMap<u64, usize>,
    by_link: HashMap<String, usize>,
    skipped: Vec<String>,
    started: SystemTime,
    newest: SystemTime,
    counters: Counters,
    in_flight: InFlight,
    damage: Damage,
    payloads: Payloads,
    snapshots: Snapshots,
    seen_texts: SeenTexts,
    migration: Migration,
    scrub: Scrub,
    forget: Forget,
    log_level: LogLevel,
    views: Views,
    joined: LazyFile,
}

impl Vfs {
    /// A tree over `dataset`.
    ///
    /// # Errors
    /// [`Error::Refused`] for more caches or samples than inode numbers can tell apart;
    /// [`Error::View`] for a view that was asked for and cannot be shown.
    pub fn new(dataset: Dataset, options: VfsOptions) -> Result<Self> {
        let links = tree::link_names(dataset.entries());
        let caches: Vec<Mounted> = dataset
            .entries()
            .iter()
            .zip(links)
            .map(|(entry, link)| Mounted {
                permissions: Permissions::of(&entry.cache, &options),
                entry: entry.clone(),
                link,
                migrated: ArcSwapOption::empty(),
            })
            .collect();
        for mounted in &caches {
            let too_many =
                mounted.slot() >= MAX_SLOTS || mounted.cache().sample_count() > MAX_SAMPLES;
            if too_many {
                let reason = format!(
                    "too many caches (over {MAX_SLOTS}) or samples (over {MAX_SAMPLES}) for one mount"
                );
                return Err(Error::refused(mounted.cache().dir(), reason));
            }
        }
        let views = Views::new(&caches, &options)?;
        let numbered = |key: fn(&Mounted) -> u64| {
            let keys = caches.iter().enumerate();
            keys.map(|(n, mounted)| (key(mounted), n)).collect()
        };
        let by_link = caches
            .iter()
            .enumerate()
            .filter_map(|(n, mounted)| Some((mounted.link.clone()?, n)));
        let newest = caches
            .iter()
            .map(|mounted| mounted.cache().index_info().mtime)
            .max();
        let started = SystemTime::now();
        Ok(Self {
            by_id: numbered(|mounted| mounted.entry.cache_id),
            by_slot: numbered(Mounted::slot),
            by_link: by_link.collect(),
            skipped: dataset.skipped().iter().map(Error::chain).collect(),
            started,
            migration: Migration::new(started),
            scrub: Scrub::new(options.scrub_rate),
            forget: Forget::default(),
            log_level: LogLevel::new(started),
            newest: newest.unwrap_or(SystemTime::UNIX_EPOCH),
            counters: Counters::default(),
            in_flight: InFlight::new(),
            damage: Damage::default(),
            payloads: Payloads::new(options.cache_memory),
            snapshots: Snapshots::default(),
            seen_texts: SeenTexts::default(),
            views,
            joined: LazyFile::default(),
            caches,
            dataset,
            options,
        })
    }

    /// What the mount has done so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The folders below which a command may change files, or a view make a temporary one.
    #[must_use]
    pub fn writable_folders(&self) -> Vec<PathBuf> {
        let caches = self.caches.iter().map(Mounted::cache);
        let migratable = caches.filter(|cache| cache.manifest().version == FormatVersion::V2);
        let folders = migratable.filter_map(|cache| {
            let manifest = storage::real_path(&cache.dir().join(MANIFEST_FILE)).ok()?;
            Some(manifest.parent()?.to_path_buf())
        });
        folders.chain(ScratchFile::folders()).collect()
    }

    /// Gives back memory that was not used for a while; to be called every few seconds.
    pub fn tidy(&self) {
        if self.payloads.drop_idle(Instant::now()) {
            crate::storage::give_back_free_memory();
        }
    }

    /// The cache in slot `slot`.
    fn at_slot(&self, slot: u64) -> Option<&Mounted> {
        self.caches.get(*self.by_slot.get(&slot)?)
    }

    fn mounted(&self, slot: u64) -> Result<&Mounted, VfsError> {
        self.at_slot(slot).ok_or(VfsError::NotFound)
    }

    fn node(&self, ino: Ino) -> Result<Node, VfsError> {
        Node::of(ino).ok_or(VfsError::NotFound)
    }
}
