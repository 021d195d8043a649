//! Who may read which file of a cache: what the rights of everything that is shown come from.

use std::path::Path;
use std::sync::Arc;

use super::Cache;
use crate::error::Result;
use crate::storage::{self, Access, FileIdentity, FileInfo, Folder, Place, Right};

/// What all have to let in whoever reads something: each once.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AccessSet(Vec<Access>);

impl AccessSet {
    /// This and all of `others` too.
    #[must_use]
    pub fn and<'a>(&self, others: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = self.clone();
        for access in others.into_iter().flat_map(Self::iter) {
            if !all.0.contains(access) {
                all.0.push(access.clone());
            }
        }
        all
    }

    /// Its members, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Access> {
        self.0.iter()
    }
}

/// A file or folder of a cache, with the folders that a link to it leads through.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Member {
    /// Which file it was when the cache was opened.
    identity: FileIdentity,
    /// Of that file, as it was last seen.
    own: Arc<AccessSet>,
    /// Of that file and of the one that has its name now.
    access: Arc<AccessSet>,
}

impl Member {
    /// What was `opened` at `path`, a path without links, as the disk has it now. A file that went is
    /// served on as it was; so is one whose name another file took, so that both have to let in.
    fn now(
        path: &Path,
        opened: &FileInfo,
        right: Right,
        near: &Path,
        before: Option<&Self>,
    ) -> Self {
        let unseen = Self::new(opened.identity, AccessSet(vec![Access::nobody()]));
        let before = before.unwrap_or(&unseen);
        match read(path, right, near) {
            Ok((identity, found)) if is(&before.identity, &identity, right) => {
                Self::new(before.identity, found)
            }
            Ok((_, found)) => Self {
                access: Arc::new(before.own.and([&found])),
                ..before.clone()
            },
            Err(_) => before.clone(),
        }
    }

    fn new(identity: FileIdentity, access: AccessSet) -> Self {
        let own = Arc::new(access);
        Self {
            identity,
            access: Arc::clone(&own),
            own,
        }
    }

    /// Shares what is the same as in `other`: a cache may have very many shards.
    fn sharing(mut self, other: Option<&Self>) -> Self {
        if let Some(other) = other {
            for set in [&mut self.own, &mut self.access] {
                if *set == other.access {
                    *set = Arc::clone(&other.access);
                }
            }
        }
        self
    }
}

/// Who has `right` on `path`, and may pass the folders on the way to it that are not on the way to
/// `near`, the folder that it should be in: a link led there.
fn read(path: &Path, right: Right, near: &Path) -> Result<(FileIdentity, AccessSet)> {
    let (identity, own) = storage::access(path, right)?;
    let mut all = AccessSet(vec![own]);
    let through = path.ancestors().skip(1);
    for folder in through.take_while(|folder| !near.starts_with(folder)) {
        all = all.and([&AccessSet(vec![storage::access(folder, Right::Search)?.1])]);
    }
    Ok((identity, all))
}

/// Whether `found`, seen later, is what `opened` was.
fn is(opened: &FileIdentity, found: &FileIdentity, right: Right) -> bool {
    match right {
        Right::Read => opened.is(found),
        Right::Search => opened.is_folder(found),
    }
}

/// Who may read each file of a cache, at one moment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CacheAccess {
    folder: Member,
    manifest: Member,
    metadata: Member,
    index: Member,
    /// `None` for a cache without shards.
    shards_folder: Option<Member>,
    shards: Vec<Member>,
}

impl Cache {
    /// Who may read its files now. `before` is what was found the last time.
    #[must_use]
    pub fn access(&self, before: Option<&CacheAccess>) -> CacheAccess {
        let home = self.files.folder.real_path();
        let folder = |folder: &Folder, before| {
            let path = folder.real_path();
            Member::now(path, folder.info(), Right::Search, home, before)
        };
        let file = |place: &Place, near, before| {
            let path = place.real_path();
            Member::now(&path, place.info(), Right::Read, near, before)
        };
        let count = self.manifest().shards.len();
        let near = self.files.shards.as_ref().map_or(home, Folder::real_path);
        let mut shards: Vec<Member> = Vec::with_capacity(count);
        for (n, place) in (0..count).filter_map(|n| Some((n, self.shard_place(n)?))) {
            let before = before.and_then(|before| before.shards.get(n));
            shards.push(file(place, near, before).sharing(shards.last()));
        }
        let shards_folder = self.files.shards.as_ref().map(|shards| {
            let before = before.and_then(|before| before.shards_folder.as_ref());
            folder(shards, before)
        });
        let table = |place, pick: fn(&CacheAccess) -> &Member| file(place, home, before.map(pick));
        CacheAccess {
            folder: folder(&self.files.folder, before.map(|b| &b.folder)),
            manifest: table(&self.files.manifest, |b| &b.manifest),
            metadata: table(&self.files.metadata, |b| &b.metadata),
            index: table(&self.files.index, |b| &b.index),
            shards_folder,
            shards,
        }
    }
}

impl CacheAccess {
    /// Of the folder alone.
    #[must_use]
    pub fn folder(&self) -> &AccessSet {
        &self.folder.access
    }

    /// Of `manifest.json`.
    #[must_use]
    pub fn manifest(&self) -> AccessSet {
        self.manifest.access.and([&*self.folder.access])
    }

    /// Of `metadata.arrow`.
    #[must_use]
    pub fn metadata(&self) -> AccessSet {
        self.metadata.access.and([&*self.folder.access])
    }

    /// Of everything but the shards: `index.bin` comes first, which stands for the samples.
    #[must_use]
    pub fn without_shards(&self) -> AccessSet {
        let rest = [&self.folder, &self.metadata, &self.manifest].into_iter();
        let rest = rest.chain(&self.shards_folder);
        self.index.access.and(rest.map(|member| &*member.access))
    }

    /// Of each shard, by its position, without anything else.
    pub fn shards(&self) -> impl Iterator<Item = &AccessSet> {
        self.shards.iter().map(|shard| &*shard.access)
    }

    /// Of everything.
    #[must_use]
    pub fn whole(&self) -> AccessSet {
        self.without_shards().and(self.shards())
    }
}
