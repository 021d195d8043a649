//! Building a view: one pass over its samples, in order.

use std::collections::HashMap;
use std::hash::RandomState;

use super::collisions;
use super::corpus::Corpus;
use super::folders::{Folders, TOP, at_mut};
use super::index::{Names, ViewIndex, lookup_key};
use crate::error::{Error, Result};
use crate::vfs::ViewMetadata;
use crate::view::{NameFault, Scope, extension_in, is_media, unmarked};

/// Bytes of folder paths that are remembered while building, so that a sample's folder is mostly
/// found without making another sample's name.
const REMEMBERED: usize = 32 << 20;

/// Files by whose names it is told what a view is of.
const LOOKED_AT: usize = 8;

/// Builds the view that `names` are of. `lines` says whether the view has a file of its own at the
/// top.
pub(super) fn build(names: &Names<'_>, lines: ViewMetadata) -> Result<ViewIndex> {
    let mut builder = Builder::new(names);
    for ordinal in shown(names) {
        builder.add(ordinal)?;
    }
    let mut index = builder.finish();
    index.has_lines = match lines {
        ViewMetadata::On => true,
        ViewMetadata::Off => false,
        ViewMetadata::Auto => is_of_media(names, &index.files),
    };
    collisions::resolve(names, &mut index)?;
    index.suffixed.shrink_to_fit();
    Ok(index)
}

/// Whether most of a few files, from all over the view, are called like pictures, sound or video.
fn is_of_media(names: &Names<'_>, files: &[u32]) -> bool {
    let step = (files.len() / LOOKED_AT).max(1);
    let mut name = Vec::new();
    let (mut seen, mut found) = (0, 0);
    for ordinal in files.iter().step_by(step).take(LOOKED_AT) {
        let made = names.full(*ordinal, Scope::Name, &[], &mut name);
        let ending = std::str::from_utf8(&name).ok().and_then(extension_in);
        seen += 1;
        found += usize::from(made.is_ok() && ending.is_some_and(is_media));
    }
    found * 2 > seen
}

/// Ordinals of the samples that the view shows, in order.
fn shown<'a>(names: &'a Names<'_>) -> impl Iterator<Item = u32> + 'a {
    let corpus: &Corpus = names.corpus;
    let caches = 0..corpus.entries().len();
    // The values of a table that was found wrong name nothing.
    let is_trusted = |cache: &usize| {
        let entry = corpus.entries().get(*cache);
        entry.is_some_and(|entry| entry.cache.table().is_ok())
    };
    let ordinals = caches
        .filter(|cache| names.view.shows_cache(*cache))
        .filter(is_trusted)
        .flat_map(|cache| corpus.of_cache(cache));
    ordinals.filter(|ordinal| {
        let subject = corpus.subject(*ordinal);
        subject.is_some_and(|subject| names.view.shows(subject))
    })
}

struct Builder<'a> {
    names: &'a Names<'a>,
    folders: Folders,
    /// By sample shown: its ordinal and its folder.
    ordinals: Vec<u32>,
    homes: Vec<u32>,
    lookup: Vec<u64>,
    /// The folder of the sample before, whose path is `last`.
    last: Vec<u8>,
    last_folder: u32,
    remembered: HashMap<Box<[u8]>, u32>,
    remembered_len: usize,
    path: Vec<u8>,
    other: Vec<u8>,
}

impl<'a> Builder<'a> {
    fn new(names: &'a Names<'a>) -> Self {
        let corpus = names.corpus;
        let caches = 0..corpus.entries().len();
        let most: usize = caches
            .filter(|cache| names.view.shows_cache(*cache))
            .map(|cache| corpus.of_cache(cache).len())
            .sum();
        // A filter may leave few of them.
        let room = match names.view.spec().filter() {
            None => most,
            Some(_) => 0,
        };
        Self {
            names,
            folders: Folders::new(RandomState::new()),
            ordinals: Vec::with_capacity(room),
            homes: Vec::with_capacity(room),
            lookup: Vec::with_capacity(room),
            last: Vec::new(),
            last_folder: TOP,
            remembered: HashMap::new(),
            remembered_len: 0,
            path: Vec::new(),
            other: Vec::new(),
        }
    }

    fn add(&mut self, ordinal: u32) -> Result<()> {
        let mut path = std::mem::take(&mut self.path);
        let added = self
            .names
            .plain(ordinal, Scope::Path, &mut path)
            .and_then(|()| {
                let (folder, name) = split(&path);
                let (name, _) = unmarked(name);
                let home = self.folder(folder, ordinal)?;
                let key = lookup_key(self.folders.hash(home, name), ordinal);
                self.ordinals.push(ordinal);
                self.homes.push(home);
                self.lookup.push(key);
                Ok(())
            });
        self.path = path;
        added.map_err(|fault| in_view(self.names, ordinal, fault))
    }

    /// The folder with this path, made if there is none.
    fn folder(&mut self, path: &[u8], ordinal: u32) -> Result<u32, NameFault> {
        if path.is_empty() {
            return Ok(TOP);
        }
        if path == self.last {
            return Ok(self.last_folder);
        }
        let folder = match self.remembered.get(path) {
            Some(folder) => *folder,
            None => {
                let folder = self.walk(path, ordinal)?;
                if self.remembered_len < REMEMBERED {
                    self.remembered_len += path.len() + 40;
                    self.remembered.insert(path.into(), folder);
                }
                folder
            }
        };
        self.last.clear();
        self.last.extend_from_slice(path);
        self.last_folder = folder;
        Ok(folder)
    }

    fn walk(&mut self, path: &[u8], ordinal: u32) -> Result<u32, NameFault> {
        let (names, other) = (self.names, &mut self.other);
        let mut folder = TOP;
        for name in path.split(|byte| *byte == b'/') {
            let folders = &self.folders;
            let found = folders.find(folder, name, |number| {
                let Some((sample, depth)) = folders.path(number) else {
                    return false;
                };
                names.plain(sample, Scope::Path, other).is_ok()
                    && other.split(|byte| *byte == b'/').nth(depth - 1) == Some(name)
            });
            folder = match found {
                Some(found) => found,
                None => self
                    .folders
                    .add(folder, name, ordinal)
                    .ok_or(NameFault::TooDeep)?,
            };
        }
        Ok(folder)
    }

    fn finish(mut self) -> ViewIndex {
        self.remembered = HashMap::new();
        let mut counts = vec![0_u32; self.folders.len()];
        for home in &self.homes {
            if let Some(count) = at_mut(&mut counts, *home) {
                *count += 1;
            }
        }
        self.folders.finish(&counts);
        let mut files = vec![0; self.ordinals.len()];
        for (ordinal, home) in self.ordinals.iter().zip(&self.homes) {
            if let Some(left) = at_mut(&mut counts, *home) {
                let end = self.folders.files(*home).end;
                let place = usize::try_from(*left)
                    .ok()
                    .and_then(|left| end.checked_sub(left));
                if let Some(file) = place.and_then(|place| files.get_mut(place)) {
                    *file = *ordinal;
                }
                *left -= 1;
            }
        }
        drop((self.ordinals, self.homes));
        let mut lookup = self.lookup;
        lookup.sort_unstable();
        lookup.shrink_to_fit();
        ViewIndex {
            folders: self.folders,
            files,
            lookup,
            suffixed: Vec::new(),
            has_lines: false,
        }
    }
}

/// Folder and name of a path.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        None => (&[], path),
        Some(at) => (
            path.get(..at).unwrap_or_default(),
            path.get(at + 1..).unwrap_or_default(),
        ),
    }
}

pub(super) fn in_view(names: &Names<'_>, ordinal: u32, fault: NameFault) -> Error {
    match names.corpus.subject(ordinal) {
        Some(subject) => fault.in_view(names.view, subject),
        None => refused(names, fault.to_string()),
    }
}

pub(super) fn refused(names: &Names<'_>, reason: String) -> Error {
    Error::View {
        view: names.view.name().to_owned(),
        reason,
    }
}
