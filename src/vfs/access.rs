//! Who may read what: nobody reads through the mount what they could not read from the cache.
//!
//! Each node has an owner, a group and a mode, which the kernel holds callers to. A class of them
//! (owner, group, others) has the right only when each user in it is let in by all files that the
//! node's bytes come from. ACLs may let in users that no class can show; they are not let in here.

use std::sync::Arc;

use super::VfsOptions;
use crate::cache::{AccessSet, Cache, CacheAccess};
use crate::storage::Access;

/// Owner, group and permission bits of something in the tree.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Permissions {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// 0444 or less.
    pub(super) file: u16,
}

impl Permissions {
    /// Of what is made of everything in `sources`, shown as that of user and group `ids`. Where that
    /// keeps out who mounted, who has opened all of it (as one whom an ACL names), it is shown as his.
    fn of(ids: (u32, u32), sources: &AccessSet, options: &VfsOptions) -> Self {
        let first = Self::shown_as(ids, sources, options);
        let own = [(options.uid, ids.1), (options.uid, options.gid)];
        let mut tried =
            std::iter::once(first).chain(own.map(|own| Self::shown_as(own, sources, options)));
        let found = tried.find(|found| found.lets_in_mounter(options));
        found.unwrap_or(first).overridden(options)
    }

    /// Of what is made of all of these caches. Where owners differ it belongs to whoever mounted.
    pub(super) fn shared(caches: &[Arc<CachePermissions>], options: &VfsOptions) -> Self {
        let sources = &AccessSet::default().and(caches.iter().map(|cache| &cache.all));
        let own = (options.uid, options.gid);
        let ids = match caches.split_first() {
            Some((first, rest)) if rest.iter().all(|cache| cache.ids == first.ids) => first.ids,
            _ => own,
        };
        Self::of(ids, sources, options)
    }

    /// What may be shown when owner and group are `uid` and `gid`.
    fn shown_as((uid, gid): (u32, u32), sources: &AccessSet, options: &VfsOptions) -> Self {
        let all = |lets: &dyn Fn(&Access) -> bool| sources.iter().all(lets);
        let class = |may: bool, bit: u16| if may { bit } else { 0 };
        let owner = uid == options.uid || all(&|access| access.lets_user(uid));
        let group = all(&|access| access.lets_group(gid, uid));
        let others = all(&|access| access.lets_others(uid, gid));
        let file = class(owner, 0o400) | class(group, 0o040) | class(others, 0o004);
        Self { uid, gid, file }
    }

    fn lets_in_mounter(self, options: &VfsOptions) -> bool {
        let class = if options.uid == 0 {
            return true;
        } else if options.uid == self.uid {
            0o400
        } else if options.gid == self.gid || options.groups.contains(&self.gid) {
            0o040
        } else {
            0o004
        };
        self.file & class != 0
    }

    /// With what `--uid`, `--gid` and `--umask` say instead.
    fn overridden(self, options: &VfsOptions) -> Self {
        let mask = |umask: u32| u16::try_from(0o444 & !umask).unwrap_or(0);
        let mut file = self.file;
        // Who was of the class that is another's now passes as one of the next.
        if options.show_uid.is_some_and(|uid| uid != self.uid) && file & 0o400 == 0 {
            file = 0;
        }
        if options.show_gid.is_some_and(|gid| gid != self.gid) && file & 0o040 == 0 {
            file &= 0o400;
        }
        Self {
            uid: options.show_uid.unwrap_or(self.uid),
            gid: options.show_gid.unwrap_or(self.gid),
            file: options.umask.map_or(file, mask),
        }
    }

    /// Bits of a folder that whoever may read the files may list and enter. Its owner may write, too:
    /// nothing changes in the tree, but a copy of it can be removed again.
    pub(super) fn dir(self, options: &VfsOptions) -> u16 {
        let umask = u16::try_from(options.umask.unwrap_or(0) & 0o777).unwrap_or(0o777);
        self.file | (self.file >> 2) | ((self.file >> 1) & 0o200 & !umask)
    }
}

/// What everything of one cache shows.
#[derive(Debug)]
pub(super) struct CachePermissions {
    found: CacheAccess,
    /// Owner and group of `index.bin`, which stand for those of everything.
    ids: (u32, u32),
    /// Of all its files together.
    all: AccessSet,
    /// Of all but its shards.
    tables: AccessSet,
    /// `/caches/<cache_id>`
    pub(super) folder: Permissions,
    pub(super) manifest: Permissions,
    pub(super) metadata: Permissions,
    /// `/samples/<cache_id>`
    pub(super) samples: Permissions,
    /// Of all its files together.
    whole: Permissions,
    /// Samples, by shard; one for all when it is the same.
    shards: Vec<Permissions>,
}

impl CachePermissions {
    /// As the disk has it now. `before` is what was found the last time.
    pub(super) fn now(cache: &Cache, options: &VfsOptions, before: Option<&Self>) -> Self {
        let found = cache.access(before.map(|before| &before.found));
        let without_shards = found.without_shards();
        let index = without_shards.iter().next();
        let ids = index.map_or((options.uid, options.gid), Access::ids);
        let of = |sources: &AccessSet| Permissions::of(ids, sources, options);
        let mut shards = Vec::new();
        let mut last: Option<(&AccessSet, Permissions)> = None;
        for shard in found.shards() {
            let shown = match last {
                Some((set, shown)) if set == shard => shown,
                _ => of(&without_shards.and([shard])),
            };
            last = Some((shard, shown));
            shards.push(shown);
        }
        if let Some(first) = shards.first().copied()
            && shards.iter().all(|shard| *shard == first)
        {
            shards = vec![first];
        }
        let all = found.whole();
        Self {
            folder: of(found.folder()),
            manifest: of(&found.manifest()),
            metadata: of(&found.metadata()),
            samples: of(&without_shards),
            tables: without_shards,
            whole: of(&all),
            all,
            ids,
            shards,
            found,
        }
    }

    /// Of a sample of `cache`.
    pub(super) fn sample(&self, cache: &Cache, sample: u64) -> Permissions {
        match self.shards.as_slice() {
            [all] => *all,
            shards => {
                let shard = cache.shard_of(sample).ok();
                let shown = shard.and_then(|shard| shards.get(shard));
                // Which shard it would be in is not known when the index is damaged.
                shown.copied().unwrap_or(self.whole)
            }
        }
    }

    /// Whether nothing is shown in another way than in `other`.
    pub(super) fn shows_as(&self, other: &Self) -> bool {
        let of = |one: &Self| {
            let folders = (one.folder, one.samples, one.whole);
            (folders, one.manifest, one.metadata)
        };
        of(self) == of(other) && self.shards == other.shards
    }
}

/// Who may read what is about all caches: whoever may not read one of them may not read it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shared {
    /// `/metadata.arrow`
    pub(super) table: Permissions,
    /// Control files that tell names, paths and values; they belong to whoever mounted.
    pub(super) control: Permissions,
    /// Lists of names that are made of manifests and tables; they belong to whoever mounted.
    pub(super) names: Permissions,
}

impl Shared {
    pub(super) fn of(caches: &[Arc<CachePermissions>], options: &VfsOptions) -> Self {
        let own = (options.uid, options.gid);
        let of_own = |sources: &AccessSet| {
            let shown = Permissions::shown_as(own, sources, options);
            let overridden = shown.overridden(options);
            // Who is shown as the owner of samples does not own this.
            Permissions {
                file: overridden.file,
                ..shown
            }
        };
        let all = AccessSet::default().and(caches.iter().map(|cache| &cache.all));
        let tables = AccessSet::default().and(caches.iter().map(|cache| &cache.tables));
        Self {
            table: Permissions::shared(caches, options),
            control: of_own(&all),
            names: of_own(&tables),
        }
    }
}
