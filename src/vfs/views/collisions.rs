//! Names that occur twice in a view: refused, or made distinct by suffixes.

use std::collections::HashMap;

use super::LINES_FILE;
use super::build::{in_view, refused};
use super::folders::TOP;
use super::index::{Names, ViewIndex, hash_of, lookup_key, ordinal_of};
use crate::error::Result;
use crate::view::{OnCollision, Scope};

/// Refuses names that occur twice, or gives suffixes to all samples that have one, until every name
/// is its own.
pub(super) fn resolve(names: &Names<'_>, index: &mut ViewIndex) -> Result<()> {
    let hides_lines = index.has_lines
        && index
            .find_folder(names, TOP, LINES_FILE.as_bytes())
            .is_some();
    let refuse = names.view.on_collision() == OnCollision::Refuse;
    if refuse && hides_lines {
        let reason = format!(
            "a folder of it would be called {LINES_FILE}, which is its own file: \
             mount with --view-metadata=off, or choose another template"
        );
        return Err(refused(names, reason));
    }
    index.has_lines &= !hides_lines;
    loop {
        let mut collisions = Collisions {
            names,
            suffixed: index.suffixed.clone(),
            refuse,
            colliding: Vec::new(),
            escaped: Vec::new(),
            first: None,
        };
        same_names(names, index, &mut collisions);
        file_and_folder(names, index, &mut collisions);
        if index.has_lines
            && let Some(file) = index.find_file(names, TOP, LINES_FILE.as_bytes())
        {
            collisions.note(file, Other::Lines);
        }
        let Some((later, other)) = collisions.first else {
            if add_suffixes(names, index, collisions.escaped)? {
                continue;
            }
            return Ok(());
        };
        collisions.colliding.append(&mut collisions.escaped);
        let resolved = !refuse && add_suffixes(names, index, collisions.colliding)?;
        if !resolved {
            return Err(refused(names, collision_text(names, index, later, other)));
        }
    }
}

/// The samples that may not keep their names.
struct Collisions<'a> {
    names: &'a Names<'a>,
    /// See [`ViewIndex::suffixed`].
    suffixed: Vec<u32>,
    refuse: bool,
    /// All of them, unless the view is refused anyway.
    colliding: Vec<u32>,
    /// Those whose names are not as they were stored, and would be what another one's is.
    escaped: Vec<u32>,
    /// The first sample that has a name that was taken, and what took it.
    first: Option<(u32, Other)>,
}

impl Collisions<'_> {
    fn note(&mut self, later: u32, other: Other) {
        // What was escaped gives way to what was stored, and is no reason to refuse anything.
        let is_escaped = |ordinal| {
            self.suffixed.binary_search(&ordinal).is_err() && self.names.is_escaped(ordinal)
        };
        let gives_way = match other {
            Other::Sample(earlier) => match (is_escaped(earlier), is_escaped(later)) {
                (true, false) => Some(earlier),
                (false, true) => Some(later),
                _ => None,
            },
            Other::Folder(_) | Other::Lines => is_escaped(later).then_some(later),
        };
        if let Some(ordinal) = gives_way {
            self.escaped.push(ordinal);
            return;
        }
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
    index.show_folders(names, &mut path);
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
fn same_names(names: &Names<'_>, index: &ViewIndex, collisions: &mut Collisions<'_>) {
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
fn file_and_folder(names: &Names<'_>, index: &ViewIndex, collisions: &mut Collisions<'_>) {
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
                .map_err(|fault| in_view(names, ordinal, fault))?;
            let key = lookup_key(index.folders.hash(folder, &name), ordinal);
            index.lookup.push(key);
        }
    }
    index.lookup.sort_unstable();
    Ok(!new.is_empty())
}
