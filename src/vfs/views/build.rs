//! Building a view: one pass over its samples, in order, and a search for names that occur twice.

use std::collections::HashMap;
use std::hash::RandomState;

use super::LINES_FILE;
use super::corpus::Corpus;
use super::folders::{Folders, TOP, at_mut};
use super::index::{Names, ViewIndex, hash_of, lookup_key, ordinal_of};
use crate::error::{Error, Result};
use crate::view::{NameFault, OnCollision, Scope};

/// Bytes of folder paths that are remembered while building, so that a sample's folder is mostly
/// found without making another sample's name.
const REMEMBERED: usize = 32 << 20;

/// Builds the view that `names` are of. `with_lines` says whether the view has a file of its own at
/// the top.
pub(super) fn build(names: &Names<'_>, with_lines: bool) -> Result<ViewIndex> {
    let mut builder = Builder::new(names);
    for ordinal in shown(names) {
        builder.add(ordinal)?;
    }
    let mut index = builder.finish();
    resolve_collisions(names, &mut index, with_lines)?;
    index.suffixed.shrink_to_fit();
    Ok(index)
}

/// Ordinals of the samples that the view shows, in order.
fn shown<'a>(names: &'a Names<'_>) -> impl Iterator<Item = u32> + 'a {
    let corpus: &Corpus = names.corpus;
    let caches = 0..corpus.entries().len();
    let ordinals = caches
        .filter(|cache| names.view.shows_cache(*cache))
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
                self.names.check_len(ordinal, name)?;
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
            hides_lines: false,
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

fn in_view(names: &Names<'_>, ordinal: u32, fault: NameFault) -> Error {
    match names.corpus.subject(ordinal) {
        Some(subject) => fault.in_view(names.view, subject),
        None => refused(names, fault.to_string()),
    }
}

fn refused(names: &Names<'_>, reason: String) -> Error {
    Error::View {
        view: names.view.name().to_owned(),
        reason,
    }
}

/// Refuses names that occur twice, or gives suffixes to all samples that have one, until every name
/// is its own.
fn resolve_collisions(names: &Names<'_>, index: &mut ViewIndex, with_lines: bool) -> Result<()> {
    index.hides_lines = with_lines
        && index
            .find_folder(names, TOP, LINES_FILE.as_bytes())
            .is_some();
    let refuse = names.view.on_collision() == OnCollision::Refuse;
    if refuse && index.hides_lines {
        let reason = format!(
            "a folder of it would be called {LINES_FILE}, which is its own file: \
             mount with --view-metadata=off, or choose another template"
        );
        return Err(refused(names, reason));
    }
    loop {
        let mut collisions = Collisions {
            refuse,
            colliding: Vec::new(),
            first: None,
        };
        same_names(names, index, &mut collisions);
        file_and_folder(names, index, &mut collisions);
        if with_lines && let Some(file) = index.find_file(names, TOP, LINES_FILE.as_bytes()) {
            collisions.note(file, Other::Lines);
        }
        let Some((later, other)) = collisions.first else {
            return Ok(());
        };
        let resolved = !refuse && add_suffixes(names, index, collisions.colliding)?;
        if !resolved {
            return Err(refused(names, collision_text(names, index, later, other)));
        }
    }
}

/// The samples that may not keep their names.
struct Collisions {
    refuse: bool,
    /// All of them, unless the view is refused anyway.
    colliding: Vec<u32>,
    /// The first sample that has a name that was taken, and what took it.
    first: Option<(u32, Other)>,
}

impl Collisions {
    fn note(&mut self, later: u32, other: Other) {
        if self.first.is_none_or(|(known, _)| later < known) {
            self.first = Some((later, other));
        }
        if !self.refuse {
            self.colliding.push(later);
            if let Other::Sample(earlier) = other {
                self.colliding.push(earlier);
            }
        }
    }
}

/// What has the name that a sample would have.
#[derive(Clone, Copy)]
enum Other {
    /// An earlier sample.
    Sample(u32),
    /// A folder on the path of this sample.
    Folder(u32),
    /// The view's own file.
    Lines,
}

fn collision_text(names: &Names<'_>, index: &ViewIndex, later: u32, other: Other) -> String {
    let mut path = Vec::new();
    let _ = names.full(later, Scope::Path, &index.suffixed, &mut path);
    let path = String::from_utf8_lossy(&path);
    let shown = |ordinal: u32| match names.corpus.subject(ordinal) {
        Some(subject) => subject.to_string(),
        None => format!("sample {ordinal}"),
    };
    let advice = "add {cache_id} and {sample_id} to the template, or mount with \
                  --on-collision=suffix";
    match other {
        Other::Sample(earlier) => format!(
            "two samples would both be {path:?}: {} and {}; {advice}",
            shown(earlier),
            shown(later)
        ),
        Other::Folder(sample) => format!(
            "{path:?} would be both {} and a folder with {}; {advice}",
            shown(later),
            shown(sample)
        ),
        Other::Lines => format!(
            "{} would be {path:?}, which is the view's own file: mount with \
             --view-metadata=off or --on-collision=suffix",
            shown(later)
        ),
    }
}

/// Notes samples whose whole path an earlier one has.
fn same_names(names: &Names<'_>, index: &ViewIndex, collisions: &mut Collisions) {
    if names
        .view
        .template()
        .is_unique(names.corpus.entries().len())
        && index.suffixed.is_empty()
    {
        return;
    }
    let mut path = Vec::new();
    for run in index.lookup.chunk_by(|a, b| hash_of(*a) == hash_of(*b)) {
        if run.len() < 2 {
            continue;
        }
        // Samples with the same path but for the extension come first, then those that have the
        // extension too: the payloads of all others need not be looked at.
        let mut stems: HashMap<Vec<u8>, u32> = HashMap::new();
        let mut paths: HashMap<Vec<u8>, u32> = HashMap::new();
        for ordinal in run.iter().map(|key| ordinal_of(*key)) {
            let suffixed = &index.suffixed;
            if names
                .stem(ordinal, Scope::Path, suffixed, &mut path)
                .is_err()
            {
                continue;
            }
            let Some(&earlier) = stems.get(&path) else {
                stems.insert(path.clone(), ordinal);
                continue;
            };
            if names.view.template().ends_in_ext() {
                if paths.is_empty() || !paths.values().any(|known| *known == earlier) {
                    let _ = names.full(earlier, Scope::Path, suffixed, &mut path);
                    paths.entry(path.clone()).or_insert(earlier);
                }
                let _ = names.full(ordinal, Scope::Path, suffixed, &mut path);
                if let Some(&earlier) = paths.get(&path) {
                    collisions.note(ordinal, Other::Sample(earlier));
                } else {
                    paths.insert(path.clone(), ordinal);
                    continue;
                }
            } else {
                collisions.note(ordinal, Other::Sample(earlier));
            }
            // Later samples of the run do not change which one is named.
            if collisions.refuse {
                break;
            }
        }
    }
}

/// Notes samples that are called like a folder beside them.
fn file_and_folder(names: &Names<'_>, index: &ViewIndex, collisions: &mut Collisions) {
    if names.view.template().has_fixed_depth() {
        return;
    }
    let mut path = Vec::new();
    for folder in (1..).take(index.folders.len().saturating_sub(1)) {
        let Some(name) = index.folder_name(names, folder, &mut path) else {
            continue;
        };
        let parent = index.folders.parent(folder);
        if let Some(file) = index.find_file(names, parent, name)
            && let Some((sample, _)) = index.folders.path(folder)
        {
            collisions.note(file, Other::Folder(sample));
        }
    }
}

/// Gives the samples in `colliding` a suffix and the place in the look-up table that their new
/// names have. False when they all have one already: a folder may be called like that.
fn add_suffixes(names: &Names<'_>, index: &mut ViewIndex, colliding: Vec<u32>) -> Result<bool> {
    let mut new = colliding;
    new.sort_unstable();
    new.dedup();
    new.retain(|ordinal| index.suffixed.binary_search(ordinal).is_err());
    let is_new = |ordinal: u32| new.binary_search(&ordinal).is_ok();
    index.lookup.retain(|key| !is_new(ordinal_of(*key)));
    index.suffixed.extend_from_slice(&new);
    index.suffixed.sort_unstable();
    let mut name = Vec::new();
    for folder in (0..).take(index.folders.len()) {
        for file in index.folders.files(folder) {
            let Some(&ordinal) = index.files.get(file).filter(|ordinal| is_new(**ordinal)) else {
                continue;
            };
            names
                .stem(ordinal, Scope::Name, &index.suffixed, &mut name)
                .and_then(|()| names.check_len(ordinal, &name))
                .map_err(|fault| in_view(names, ordinal, fault))?;
            let key = lookup_key(index.folders.hash(folder, &name), ordinal);
            index.lookup.push(key);
        }
    }
    index.lookup.sort_unstable();
    Ok(!new.is_empty())
}
