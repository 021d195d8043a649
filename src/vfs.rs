//! The tree of the mount on our own types: lookup, getattr, readdir, read, write.
//!
//! Nothing here knows FUSE; an adapter (`crate::fuse`) translates requests into these calls and
//! [`VfsError`]s into errno values. docs/semantics.md says what each call does.

mod access;
mod attr;
mod caches;
mod control;
mod control_link;
mod counters;
mod damage;
mod entry_attrs;
mod generated;
mod handles;
mod in_flight;
mod inodes;
mod joined;
mod log_level;
mod log_limit;
mod log_lines;
mod metrics;
mod migration;
mod names;
mod node;
mod payloads;
mod prefetch;
mod read;
mod refusals;
mod rescan;
mod scrub;
mod slow;
mod snapshots;
mod status;
mod tamper;
mod tree;
mod views;
mod xattr;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

pub use attr::{Attr, DirEntry, FileKind, SetAttr, StatFs, Ttl, VfsError, Work, Written};
pub use control::Command;
pub use counters::{Counters, Request};
pub use in_flight::{OnThread, Serving};
pub use log_lines::LogLines;
pub use node::Ino;

use caches::{Caches, Mounted};
use control::SeenTexts;
use damage::Damage;
use generated::Generated;
use in_flight::InFlight;
use inodes::Inodes;
use log_level::LogLevel;
use log_limit::LogLimit;
use migration::Migration;
use node::Node;
use payloads::Payloads;
use prefetch::Prefetch;
use refusals::Refusals;
use rescan::Rescan;
pub use scrub::Stale;
use scrub::{Forget, Scrub};
use slow::SlowReads;
use snapshots::Snapshots;
use tamper::Tamper;
use views::Views;

use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::format::manifest::FormatVersion;
use crate::storage::ScratchFile;
use crate::view::{OnCollision, ViewSpec};

/// Half of what a slow hard disk gives, so that readers keep the other half.
pub const DEFAULT_SCRUB_RATE: u64 = 64 << 20;

/// Two of the largest compressed samples that there can be.
pub const DEFAULT_TEMP_DISK: u64 = 8 << 30;

/// Which views have a `metadata.jsonl`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ViewMetadata {
    /// Those of pictures, sound or video, where loaders look for it. Others take it for data.
    #[default]
    Auto,
    /// All.
    On,
    /// None.
    Off,
}

/// How a tree is shown.
#[derive(Clone, Debug)]
pub struct VfsOptions {
    /// Where it is mounted, for `/.control/status`.
    pub mountpoint: PathBuf,
    /// Where the control files have a mount of their own; `/.control` then is a link to it.
    pub control_at: Option<PathBuf>,
    /// Owner of the folders and control files that belong to no cache.
    pub uid: u32,
    /// Group of the same.
    pub gid: u32,
    /// More groups that whoever mounted is in.
    pub groups: Vec<u32>,
    /// Owner to show instead of each cache's own.
    pub show_uid: Option<u32>,
    /// Group to show instead of each cache's own.
    pub show_gid: Option<u32>,
    /// Permission bits to take from 0444, instead of those that each cache's own files lack.
    pub umask: Option<u32>,
    /// Most bytes of decoded payloads to hold.
    pub cache_memory: u64,
    /// Most bytes of temporary files to hold.
    pub temp_disk: u64,
    /// Views to show beside those that are there without being asked for.
    pub views: Vec<ViewSpec>,
    /// Whether to show `by-<field>` and `path`.
    pub auto_views: bool,
    /// What happens to samples that a view in `views` would call the same.
    pub on_collision: OnCollision,
    /// Which views have a `metadata.jsonl`.
    pub view_metadata: ViewMetadata,
    /// Whether samples have extended attributes.
    pub xattrs: bool,
    /// What `/.control/log` shows.
    pub log: Arc<LogLines>,
    /// Bytes that a check behind the mount may read per second; 0 for as many as it can.
    pub scrub_rate: u64,
}

impl Default for VfsOptions {
    fn default() -> Self {
        Self {
            mountpoint: PathBuf::new(),
            control_at: None,
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            show_uid: None,
            show_gid: None,
            umask: None,
            cache_memory: 1 << 30,
            temp_disk: DEFAULT_TEMP_DISK,
            views: Vec::new(),
            auto_views: true,
            on_collision: OnCollision::Refuse,
            view_metadata: ViewMetadata::Auto,
            xattrs: false,
            log: Arc::default(),
            scrub_rate: DEFAULT_SCRUB_RATE,
        }
    }
}

/// The tree over one list of caches.
#[derive(Debug)]
pub struct Vfs {
    options: VfsOptions,
    dataset: Dataset,
    inodes: Inodes,
    caches: Caches,
    skipped: Vec<String>,
    started: SystemTime,
    newest: SystemTime,
    counters: Counters,
    in_flight: InFlight,
    damage: Damage,
    payloads: Payloads,
    refusals: Refusals,
    /// What the counters said when they were last looked at, and when memory was last given back.
    work_seen: AtomicU64,
    work_trimmed: AtomicU64,
    snapshots: Snapshots,
    seen_texts: SeenTexts,
    migration: Migration,
    scrub: Scrub,
    forget: Forget,
    tamper: Tamper,
    log_level: LogLevel,
    log_limit: LogLimit,
    prefetch: Prefetch,
    slow: SlowReads,
    rescan: Rescan,
    views: Views,
    joined: Generated,
}

impl Vfs {
    /// A tree over `dataset`.
    ///
    /// # Errors
    /// [`Error::Refused`] for more samples than inode numbers can tell apart;
    /// [`Error::View`] for a view that was asked for and cannot be shown.
    pub fn new(dataset: Dataset, options: VfsOptions) -> Result<Self> {
        let inodes = Inodes::new(&dataset)?;
        let caches = Caches::new(dataset.entries(), &options);
        let views = Views::new(&caches, &options)?;
        inodes.add_views(&views.folder_bounds());
        let started = SystemTime::now();
        Ok(Self {
            skipped: dataset.skipped().iter().map(Error::chain).collect(),
            started,
            migration: Migration::new(started),
            scrub: Scrub::new(options.scrub_rate, started),
            forget: Forget::default(),
            tamper: Tamper::default(),
            log_level: LogLevel::new(started),
            log_limit: LogLimit::default(),
            prefetch: Prefetch::new(options.cache_memory, started),
            slow: SlowReads::default(),
            newest: caches.newest(),
            rescan: Rescan::new(started),
            counters: Counters::default(),
            in_flight: InFlight::new(),
            damage: Damage::default(),
            payloads: Payloads::new(options.cache_memory, options.temp_disk),
            refusals: Refusals::default(),
            work_seen: AtomicU64::new(0),
            work_trimmed: AtomicU64::new(0),
            snapshots: Snapshots::default(),
            seen_texts: SeenTexts::default(),
            views,
            inodes,
            joined: Generated::default(),
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

    /// Notes how long a request about node `ino` took.
    pub fn note_time(&self, request: Request, ino: Ino, took: Duration) {
        self.counters.note_time(request, took);
        if request == Request::Read
            && self.slow.is_slow(took)
            && let Some(Node::Sample(slot, sample)) = self.inodes.node(ino)
        {
            self.slow.note((slot, sample), took, Instant::now());
        }
    }

    /// The folders below which a command may change files, or a view make a temporary one.
    #[must_use]
    pub fn writable_folders(&self) -> Vec<PathBuf> {
        let caches = self.caches.iter().map(Mounted::cache);
        let migratable = caches.filter(|cache| cache.manifest().version == FormatVersion::V2);
        let folders = migratable.filter_map(|cache| {
            let manifest = cache.manifest_place().real_path();
            Some(manifest.parent()?.to_path_buf())
        });
        folders.chain(ScratchFile::folders()).collect()
    }

    /// Gives back memory that was not used for a while; to be called every few seconds.
    pub fn tidy(&self) {
        let now = Instant::now();
        self.prefetch.drop_idle(now);
        self.slow.forget_old(now);
        self.tell_left_out(now);
        let evicted = [
            self.payloads.drop_idle(now),
            self.evict_views(),
            self.has_become_quiet(),
        ];
        if evicted.contains(&true) {
            crate::storage::give_back_free_memory();
        }
    }

    /// Whether a burst of work is over, for the first time since.
    fn has_become_quiet(&self) -> bool {
        let work = self.counters.bytes_read();
        let work = work.wrapping_add(self.counters.names_made());
        let quiet = self.work_seen.swap(work, Ordering::Relaxed) == work;
        quiet && self.work_trimmed.swap(work, Ordering::Relaxed) != work
    }

    /// The cache in slot `slot`.
    fn at_slot(&self, slot: u64) -> Option<&Mounted> {
        self.caches.by_slot(slot)
    }

    fn mounted(&self, slot: u64) -> Result<&Mounted, VfsError> {
        self.at_slot(slot).ok_or(VfsError::NotFound)
    }

    fn ino(&self, node: Node) -> Ino {
        self.inodes.number(node)
    }

    fn node(&self, ino: Ino) -> Result<Node, VfsError> {
        self.inodes.node(ino).ok_or(VfsError::NotFound)
    }
}
