//! The caches of the tree. Caches may join, all of a batch at once, and never leave: references stay
//! good, and places in a listing stay what they were.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};

use super::VfsOptions;
use super::access::{CachePermissions, Permissions, Shared};
use crate::cache::Cache;
use crate::dataset::Entry;
use crate::format::manifest::{FormatVersion, Manifest};
use crate::parallel::in_parallel;
use crate::view::{NAME_MAX, escape_component};

/// One cache in the tree.
#[derive(Debug)]
pub(super) struct Mounted {
    pub(super) entry: Entry,
    permissions: ArcSwap<CachePermissions>,
    /// Its name under `/by-name`, when its source name can be one.
    pub(super) link: Option<String>,
    /// The manifest that a migration has put in the place of the one that was loaded.
    pub(super) migrated: ArcSwapOption<Vec<u8>>,
}

impl Mounted {
    pub(super) fn slot(&self) -> u64 {
        self.entry.position as u64
    }

    pub(super) fn cache(&self) -> &Cache {
        &self.entry.cache
    }

    /// Who may read what of it.
    pub(super) fn permissions(&self) -> Guard<Arc<CachePermissions>> {
        self.permissions.load()
    }

    /// The manifest as it is now.
    pub(super) fn manifest_version(&self) -> FormatVersion {
        match self.migrated.load().is_some() {
            true => FormatVersion::V3,
            false => self.cache().manifest().version,
        }
    }

    /// Takes the manifest from disk, if it is the migrated form of the one that was loaded. Once
    /// taken it stays: its node is one that never changes.
    pub(super) fn reload_manifest(&self) {
        let loaded = self.cache().manifest();
        if loaded.version == FormatVersion::V3 || self.migrated.load().is_some() {
            return;
        }
        let migrated = Manifest {
            version: FormatVersion::V3,
            cache_id: Some(self.entry.cache_id),
            ..loaded.clone()
        };
        if let Ok((manifest, bytes)) = self.cache().manifest_now()
            && manifest == migrated
        {
            self.migrated.store(Some(Arc::new(bytes)));
        }
    }
}

/// All caches, in the order of the list and then of their joining.
#[derive(Debug)]
pub(super) struct Caches {
    list: boxcar::Vec<Mounted>,
    shown: ArcSwap<Shown>,
}

/// How many of the caches are shown, and where each is.
#[derive(Clone, Debug)]
struct Shown {
    count: usize,
    by_id: HashMap<u64, usize>,
    /// By position in the list: every request asks here.
    by_slot: Vec<Option<usize>>,
    by_link: HashMap<String, usize>,
    newest: SystemTime,
    shared: Shared,
}

impl Caches {
    pub(super) fn new(entries: &[Entry], options: &VfsOptions) -> Self {
        let caches = Self {
            list: boxcar::Vec::new(),
            shown: ArcSwap::from_pointee(Shown {
                count: 0,
                by_id: HashMap::new(),
                by_slot: Vec::new(),
                by_link: HashMap::new(),
                newest: SystemTime::UNIX_EPOCH,
                shared: Shared::default(),
            }),
        };
        caches.join(entries, options);
        caches
    }

    /// Shows `entries` too, all at once. Their ids and positions must be new; calls must not overlap.
    pub(super) fn join(&self, entries: &[Entry], options: &VfsOptions) {
        let mut shown = Shown::clone(&self.shown.load());
        let permissions = in_parallel(entries.len(), |n| {
            let cache = &entries.get(n)?.cache;
            Some(CachePermissions::now(cache, options, None))
        });
        let links = shown.link_names(entries);
        for ((entry, permissions), link) in entries
            .iter()
            .zip(permissions.into_iter().flatten())
            .zip(links)
        {
            let mounted = Mounted {
                permissions: ArcSwap::from_pointee(permissions),
                entry: entry.clone(),
                link,
                migrated: ArcSwapOption::empty(),
            };
            shown.note(&mounted);
            self.list.push(mounted);
        }
        shown.shared = self.shared_by(shown.count, options);
        self.shown.store(Arc::new(shown));
    }

    /// Looks again who may read what, and gives the caches of which that has changed. Calls must not
    /// overlap with each other nor with [`Caches::join`].
    pub(super) fn look_at_permissions(&self, options: &VfsOptions) -> Vec<&Mounted> {
        let caches: Vec<&Mounted> = self.iter().collect();
        let changed = in_parallel(caches.len(), |n| {
            let mounted = *caches.get(n)?;
            let before = mounted.permissions();
            let now = CachePermissions::now(mounted.cache(), options, Some(&before));
            let same = now.shows_as(&before);
            mounted.permissions.store(Arc::new(now));
            (!same).then_some(mounted)
        });
        let mut shown = Shown::clone(&self.shown.load());
        shown.shared = self.shared_by(shown.count, options);
        self.shown.store(Arc::new(shown));
        changed.into_iter().flatten().collect()
    }

    fn shared_by(&self, count: usize, options: &VfsOptions) -> Shared {
        let caches = (0..count).filter_map(|n| Some(self.list.get(n)?.permissions.load_full()));
        Shared::of(&caches.collect::<Vec<_>>(), options)
    }

    /// Who may read what is about all caches.
    pub(super) fn shared(&self) -> Shared {
        self.shown.load().shared
    }

    /// Who may read what shows something of each of the caches that `shows` lets in.
    pub(super) fn shared_permissions(
        &self,
        options: &VfsOptions,
        shows: impl Fn(usize) -> bool,
    ) -> Permissions {
        let caches = self.iter().enumerate().filter(|(n, _)| shows(*n));
        let caches = caches.map(|(_, mounted)| mounted.permissions.load_full());
        Permissions::shared(&caches.collect::<Vec<_>>(), options)
    }

    pub(super) fn len(&self) -> usize {
        self.shown.load().count
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Mounted> {
        (0..self.len()).map_while(|n| self.list.get(n))
    }

    /// Cache number `n`, from 0.
    pub(super) fn get(&self, n: usize) -> Option<&Mounted> {
        self.list.get(n).filter(|_| n < self.len())
    }

    pub(super) fn by_id(&self, cache_id: u64) -> Option<&Mounted> {
        let n = *self.shown.load().by_id.get(&cache_id)?;
        self.list.get(n)
    }

    pub(super) fn by_slot(&self, slot: u64) -> Option<&Mounted> {
        self.list.get(self.number(slot)?)
    }

    /// The number of the cache in slot `slot`.
    pub(super) fn number(&self, slot: u64) -> Option<usize> {
        let slot = usize::try_from(slot).ok()?;
        *self.shown.load().by_slot.get(slot)?
    }

    pub(super) fn by_link(&self, name: &str) -> Option<&Mounted> {
        let n = *self.shown.load().by_link.get(name)?;
        self.list.get(n)
    }

    /// The latest mtime of a cache.
    pub(super) fn newest(&self) -> SystemTime {
        self.shown.load().newest
    }
}

impl Shown {
    fn note(&mut self, mounted: &Mounted) {
        let n = self.count;
        self.count += 1;
        self.by_id.insert(mounted.entry.cache_id, n);
        let slot = mounted.entry.position;
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot.saturating_add(1), None);
        }
        if let Some(number) = self.by_slot.get_mut(slot) {
            *number = Some(n);
        }
        if let Some(link) = &mounted.link {
            self.by_link.insert(link.clone(), n);
        }
        let mtime = mounted.cache().index_info().mtime;
        self.newest = match self.count {
            1 => mtime,
            _ => self.newest.max(mtime),
        };
    }

    /// A name under `/by-name` for each of `entries`: the escaped source name, and `~<cache_id>` after
    /// it where several have the same. Names that are shown already stay. A name that would be too
    /// long has no link.
    fn link_names(&self, entries: &[Entry]) -> Vec<Option<String>> {
        let names: Vec<_> = entries
            .iter()
            .map(|entry| escape_component(&entry.cache.manifest().source_name))
            .collect();
        let mut uses: HashMap<&str, u32> = HashMap::new();
        for name in names.iter().flatten() {
            *uses.entry(name).or_default() += 1;
        }
        let unique = |(name, entry): (&Option<String>, &Entry)| {
            let name = name.as_ref()?;
            if uses.get(name.as_str()) == Some(&1) && !self.by_link.contains_key(name) {
                return Some(name.clone());
            }
            let name = format!("{name}~{}", entry.cache_id);
            (name.len() <= NAME_MAX).then_some(name)
        };
        let mut links: Vec<_> = names.iter().zip(entries).map(unique).collect();
        // A source may be called what another's name became; the later one goes without.
        let mut seen = std::collections::HashSet::new();
        for link in &mut links {
            if link
                .as_ref()
                .is_some_and(|name| self.by_link.contains_key(name) || !seen.insert(name.clone()))
            {
                *link = None;
            }
        }
        links
    }
}
