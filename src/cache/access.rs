//! Who may read which file of a cache: what the rights of everything that is shown come from.

use std::path::Path;
use std::sync::Arc;

use super::Cache;
use crate::error::Result;
use crate::format::{INDEX_FILE, MANIFEST_FILE, METADATA_FILE, SHARDS_DIR};
use crate::storage::{self, Access, FileIdentity, Right};

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
    /// Which file it was at first; `None` when it was not there.
    identity: Option<FileIdentity>,
    /// Of that file, as it was last seen.
    own: Arc<AccessSet>,
    /// Of that file and of the one that has its name now.
    access: Arc<AccessSet>,
}

impl Member {
    /// As the disk has it now. A file that went is served on as it was; one whose name another file
    /// took is too, so that both have to let in.
    fn now(path: &Path, right: Right, home: &Path, before: Option<&Self>) -> Self {
        match (read(path, right, home), before) {
            (Ok((identity, found)), Some(before)) if !before.is(&identity) => {
                let both = before.own.and([&found]);
                Self {
                    access: Arc::new(both),
                    ..before.clone()
                }
            }
            (Ok((identity, found)), before) => {
                // As it was at first: its times may have changed.
                let first = before.and_then(|before| before.identity);
                Self::new(first.or(Some(identity)), found)
            }
            (Err(_), Some(before)) => before.clone(),
            (Err(_), None) => Self::new(None, AccessSet(vec![Access::nobody()])),
        }
    }

    fn is(&self, found: &FileIdentity) -> bool {
        self.identity.is_some_and(|identity| identity.is(found))
    }

    fn new(identity: Option<FileIdentity>, access: AccessSet) -> Self {
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

fn read(path: &Path, right: Right, home: &Path) -> Result<(FileIdentity, AccessSet)> {
    let (identity, own) = storage::access(path, right)?;
    let mut all = AccessSet(vec![own]);
    if storage::is_symlink(path) {
        let (real, home) = (storage::real_path(path)?, storage::real_path(home)?);
        // The folders above the cache are not looked at.
        let through = real.ancestors().skip(1);
        for folder in through.take_while(|folder| !home.starts_with(folder)) {
            all = all.and([&AccessSet(vec![storage::access(folder, Right::Search)?.1])]);
        }
    }
    Ok((identity, all))
}

/// Who may read each file of a cache, at one moment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CacheAccess {
    folder: Member,
    manifest: Member,
    metadata: Member,
    index: Member,
    shards_folder: Member,
    shards: Vec<Member>,
}

impl Cache {
    /// Who may read its files now. `before` is what was found the last time.
    #[must_use]
    pub fn access(&self, before: Option<&CacheAccess>) -> CacheAccess {
        let dir = self.dir();
        let member = |name: &str, right, pick: fn(&CacheAccess) -> &Member| {
            Member::now(&dir.join(name), right, dir, before.map(pick))
        };
        let count = self.manifest().shards.len();
        let mut shards: Vec<Member> = Vec::with_capacity(count);
        for shard in 0..count {
            let before = before.and_then(|before| before.shards.get(shard));
            let now = Member::now(&self.shard_path(shard), Right::Read, dir, before);
            shards.push(now.sharing(shards.last()));
        }
        CacheAccess {
            // Links to the folder itself were followed by whoever named it.
            folder: Member::now(
                &dir.join("."),
                Right::Search,
                dir,
                before.map(|b| &b.folder),
            ),
            manifest: member(MANIFEST_FILE, Right::Read, |b| &b.manifest),
            metadata: member(METADATA_FILE, Right::Read, |b| &b.metadata),
            index: member(INDEX_FILE, Right::Read, |b| &b.index),
            shards_folder: member(SHARDS_DIR, Right::Search, |b| &b.shards_folder),
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
        let rest = [
            &self.folder,
            &self.shards_folder,
            &self.metadata,
            &self.manifest,
        ];
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
