//! The folder in which a cache is written before it gets its name.
//!
//! ```text
//! .<name>.<pid>-<start>-<n>-<machine>.datasetrt-partial
//! ```
//!
//! It lies beside the target, so that one rename publishes it. `pid` and `start` (when the process
//! began, in clock ticks since boot) name its owner, among the processes of `machine` (a boot of the
//! system, and in it a container). The owner also holds a lock on it, which is seen from elsewhere
//! where the file system has such locks. A folder that nobody has locked is a leftover; without
//! locks, one whose owner would have to be a process of ours and is none.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::name::SourceName;
use crate::error::{Error, Result};
use crate::format::STAGING_SUFFIX;
use crate::format::digest::{Sha256Digest, cache_id_of};
use crate::storage::{self, DirLock};

/// Bytes of a source name that a staging folder repeats; of a longer one it has the start and a
/// number made from all of it, so that its own name stays below 255 bytes.
const MAX_STEM: usize = 150;

/// A staging folder of this process. Dropped before [`Staging::publish`], it is removed.
#[derive(Debug)]
pub(super) struct Staging {
    dir: PathBuf,
    target: PathBuf,
    /// Folders above it that did not exist before, the uppermost first.
    created: Vec<PathBuf>,
    lock: Option<DirLock>,
    published: bool,
}

impl Staging {
    /// Creates the staging folder for `out/name`, and `out` when it is missing.
    pub(super) fn create(out: &Path, name: &SourceName) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let target = out.join(name.as_str());
        if storage::exists(&target) {
            return Err(storage::already_there(&target));
        }
        let owner = std::process::id();
        let dir = out.join(format!(
            "{}{owner}-{}-{}-{}{STAGING_SUFFIX}",
            stem(name),
            start_of(owner).unwrap_or(0),
            NEXT.fetch_add(1, Ordering::Relaxed),
            machine(),
        ));
        let mut staging = Self {
            dir,
            target,
            created: storage::create_dirs_synced(out)?,
            lock: None,
            published: false,
        };
        storage::create_dir(&staging.dir)?;
        staging.lock = DirLock::try_take(&staging.dir)?;
        Ok(staging)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    /// Gives the folder, in which all is durable, its name, which must still be free, and makes
    /// that durable too.
    pub(super) fn publish(mut self) -> Result<PathBuf> {
        let renamed = storage::rename_dir_synced(&self.dir, &self.target);
        // The rename may have succeeded although syncing the parent failed.
        self.published = renamed.is_ok() || !storage::exists(&self.dir);
        renamed.map(|()| self.target.clone())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.published {
            return;
        }
        if storage::exists(&self.dir)
            && let Err(error) = storage::remove_tree(&self.dir)
        {
            log::warn!("{}", error.chain());
        }
        for dir in self.created.iter().rev() {
            storage::remove_empty_dir(dir);
        }
    }
}

/// What an ended process left behind while it wrote a cache.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Leftover {
    /// The staging folder.
    pub dir: PathBuf,
    /// The process that wrote it.
    pub pid: u32,
}

impl Leftover {
    /// Removes it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove(self) -> Result<()> {
        storage::remove_tree(&self.dir)
    }
}

/// Finds what ended processes left of the cache `name` in `out`.
///
/// # Errors
/// [`Error::Refused`] when a living process is writing that cache now, or one of another machine may be;
/// [`Error::Io`].
pub fn leftovers(out: &Path, name: &SourceName) -> Result<Vec<Leftover>> {
    if !storage::exists(out) {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for dir in storage::list_dir(out)? {
        let Some(owner) = owner_of(&dir, name) else {
            continue;
        };
        let pid = owner.pid;
        let refused = |why: String| Err(Error::refused(out.join(name.as_str()), why));
        let mine = machine();
        let here = owner.machine.as_ref().map(|machine| *machine == mine);
        let alive = start_of(pid).is_some_and(|now| now == owner.start) && here != Some(false);
        match DirLock::try_take(&dir)? {
            Some(lock) if !alive && (lock.keeps_out() || here == Some(true)) => {}
            Some(_) if !alive => {
                return refused(format!(
                    "a process of another machine or container may be writing this cache now (in {}): \
                     this file system has no locks that tell; remove that folder if there is none",
                    dir.display()
                ));
            }
            _ => {
                return refused(format!(
                    "process {pid} is writing this cache now (in {}): wait for it, or end it",
                    dir.display()
                ));
            }
        }
        found.push(Leftover { dir, pid });
    }
    Ok(found)
}

/// How the names of all staging folders of `name` begin.
fn stem(name: &SourceName) -> String {
    let name = name.as_str();
    if name.len() <= MAX_STEM {
        return format!(".{name}.");
    }
    let start = (0..=MAX_STEM).rev().find_map(|cut| name.get(..cut));
    format!(".{}~{:016x}.", start.unwrap_or_default(), cache_id_of(name))
}

/// Whose a staging folder is, by its name.
#[derive(Debug, Eq, PartialEq)]
struct Owner {
    pid: u32,
    start: u64,
    machine: Option<String>,
}

fn owner_of(dir: &Path, name: &SourceName) -> Option<Owner> {
    let unique = dir
        .file_name()?
        .to_str()?
        .strip_suffix(STAGING_SUFFIX)?
        .strip_prefix(&stem(name))?;
    let mut parts = unique.split('-');
    let (pid, start) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next()?.parse::<u64>().ok()?;
    let machine = parts.next().map(str::to_owned);
    parts.next().is_none().then_some(Owner {
        pid,
        start,
        machine,
    })
}

/// A word for this boot of this machine, and the container in it: where process numbers mean the same.
fn machine() -> String {
    let boot = storage::read_small(Path::new("/proc/sys/kernel/random/boot_id"), 64);
    let mut what = boot.unwrap_or_default();
    let container = storage::stat(Path::new("/proc/self/ns/pid"));
    let container = container.map_or(0, |found| found.identity.inode);
    what.extend(container.to_string().into_bytes());
    let mut word = Sha256Digest::of(&what).to_string();
    word.truncate(12);
    word
}

/// When process `pid` began, in clock ticks since boot; `None` when there is no such process.
fn start_of(pid: u32) -> Option<u64> {
    let stat = storage::read_small(Path::new(&format!("/proc/{pid}/stat")), 4096).ok()?;
    let stat = String::from_utf8_lossy(&stat).into_owned();
    // The second field, the command in parentheses, may contain anything; `start` is the 22nd.
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> SourceName {
        SourceName::new(text).unwrap()
    }

    #[test]
    fn a_dropped_staging_folder_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("a/b");
        let staging = Staging::create(&out, &name("x")).unwrap();
        assert!(storage::exists(staging.dir()));
        drop(staging);
        assert!(!storage::exists(&root.path().join("a")));
    }

    #[test]
    fn a_living_writer_is_named_and_a_dead_one_is_a_leftover() {
        let root = tempfile::tempdir().unwrap();
        let staging = Staging::create(root.path(), &name("x")).unwrap();
        let error = leftovers(root.path(), &name("x")).unwrap_err().to_string();
        assert!(
            error.contains(&format!("process {}", std::process::id())),
            "{error}"
        );
        assert_eq!(leftovers(root.path(), &name("y")).unwrap(), []);
        drop(staging);
        // No process began zero ticks after boot.
        let dir = root.path().join(format!(".x.1-0-0{STAGING_SUFFIX}"));
        storage::create_dir_synced(&dir).unwrap();
        let left = leftovers(root.path(), &name("x")).unwrap();
        assert_eq!(
            left,
            [Leftover {
                dir: dir.clone(),
                pid: 1
            }]
        );
        let lock = DirLock::try_take(&dir).unwrap();
        assert!(
            leftovers(root.path(), &name("x")).is_err(),
            "locked elsewhere"
        );
        drop(lock);
        left.into_iter().for_each(|left| left.remove().unwrap());
        assert!(!storage::exists(&dir));
    }

    #[test]
    fn staging_names_fit_and_belong_to_one_name() {
        let long = "x".repeat(255);
        let other = format!("{}y", "x".repeat(254));
        let dir = PathBuf::from(format!("{}7-8-9{STAGING_SUFFIX}", stem(&name(&long))));
        assert!(dir.as_os_str().len() <= 255);
        let owner = |pid, start| Owner {
            pid,
            start,
            machine: None,
        };
        assert_eq!(owner_of(&dir, &name(&long)), Some(owner(7, 8)));
        assert_eq!(owner_of(&dir, &name(&other)), None);
        let dotted = PathBuf::from(format!(".a.1-2-3.4-5-6{STAGING_SUFFIX}"));
        assert_eq!(owner_of(&dotted, &name("a")), None);
        assert_eq!(owner_of(&dotted, &name("a.1-2-3")), Some(owner(4, 5)));
    }

    #[test]
    fn what_exists_at_the_target_is_not_replaced() {
        let root = tempfile::tempdir().unwrap();
        let staging = Staging::create(root.path(), &name("x")).unwrap();
        let target = root.path().join("x");
        storage::create_dir_synced(&target).unwrap();
        assert!(matches!(staging.publish(), Err(Error::Refused { .. })));
        assert_eq!(storage::list_dir(root.path()).unwrap(), [target]);
        assert!(matches!(
            Staging::create(root.path(), &name("x")),
            Err(Error::Refused { .. })
        ));
    }
}
