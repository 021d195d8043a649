//! Caches that were published below the given folders after the list was opened.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Dataset, Entry, expand_one, open_within};
use crate::error::{Error, Result};
use crate::format::manifest::FormatVersion;

/// What another look at the arguments of a list found.
#[derive(Debug)]
pub struct Newcomers {
    /// Caches that can join the list; [`Dataset::skipped`] has those that cannot, and the arguments
    /// that cannot be looked at, with the reason.
    pub dataset: Dataset,
    /// Folders of the list that are not there any more.
    pub gone: Vec<PathBuf>,
    /// Folders of the list at whose place another cache is now. Those that were opened are served on.
    pub replaced: Vec<PathBuf>,
}

impl Newcomers {
    /// Leaves out the caches that `check` refuses, with its reason.
    pub fn refuse(&mut self, check: impl Fn(&Entry) -> Result<()>) {
        self.refuse_each(|entry| check(entry).err().map(|error| vec![error]));
    }

    /// Leaves out the caches that `check` has reasons against.
    pub(super) fn refuse_each(&mut self, check: impl Fn(&Entry) -> Option<Vec<Error>>) {
        let Dataset {
            entries, skipped, ..
        } = &mut self.dataset;
        entries.retain(|entry| match check(entry) {
            None => true,
            Some(errors) => {
                skipped.extend(errors);
                false
            }
        });
    }
}

impl Dataset {
    /// Looks for caches of `arguments` ([`super::expand`]) that are not among `known`, which are the caches
    /// of this list and those that joined it before.
    ///
    /// A cache of format 2 cannot join: its identity is its position in the list, which would be
    /// another one on the next mount. Neither can one whose identity is taken.
    #[must_use]
    pub fn newcomers(&self, arguments: &[PathBuf], known: &[Entry]) -> Newcomers {
        let mut paths = Vec::new();
        let mut skipped = Vec::new();
        for argument in arguments {
            // Whoever looks often wants no line each time.
            match expand_one(argument, log::Level::Debug) {
                Ok(found) => paths.extend(found),
                Err(error) => skipped.push(error),
            }
        }
        let known_dirs: HashSet<&Path> = known.iter().map(|entry| entry.cache.dir()).collect();
        let fresh: Vec<PathBuf> = paths
            .iter()
            .filter(|path| !known_dirs.contains(path.as_path()))
            .cloned()
            .collect();
        let first = known.iter().map(|entry| entry.position + 1).max();
        let mut found = Self {
            entries: Vec::new(),
            skipped,
            sample_counts: Vec::new(),
            limit: Arc::clone(&self.limit),
        };
        for opened in open_within(&fresh, first.unwrap_or(0), &self.limit) {
            match opened.and_then(|entry| admit(entry, known, &found.entries)) {
                Ok(entry) => found.entries.push(entry),
                Err(error) => found.skipped.push(error),
            }
        }
        let listed: HashSet<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let gone = known_dirs.into_iter().filter(|dir| !listed.contains(dir));
        let mut gone: Vec<PathBuf> = gone.map(Path::to_path_buf).collect();
        gone.sort();
        let there = known.iter().map(|entry| &entry.cache);
        let there = there.filter(|cache| listed.contains(cache.dir()));
        let replaced = there.filter(|cache| cache.is_replaced());
        Newcomers {
            replaced: replaced.map(|cache| cache.dir().to_path_buf()).collect(),
            dataset: found,
            gone,
        }
    }
}

fn admit(entry: Entry, known: &[Entry], admitted: &[Entry]) -> Result<Entry> {
    if entry.cache.manifest().version == FormatVersion::V2 {
        return Err(Error::refused(
            entry.cache.dir(),
            "a cache of format 2 cannot join a running mount, since its id is its position in the list: \
             migrate it to format 3 first (datasetrt migrate --to 3), or unmount and mount again",
        ));
    }
    let mut others = known.iter().chain(admitted);
    match others.find(|other| other.cache_id == entry.cache_id) {
        Some(other) => Err(Error::DuplicateCacheId {
            cache_id: entry.cache_id,
            first: other.cache.dir().to_path_buf(),
            second: entry.cache.dir().to_path_buf(),
        }),
        None => Ok(entry),
    }
}
