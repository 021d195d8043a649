//! One view, built: which folder has which samples. Names are made anew when they are asked for.
//!
//! Twelve bytes for each sample: its ordinal in the list of files, and its ordinal with a hash of
//! its folder and name in the table for look-ups.

use std::cell::Cell;

use super::corpus::Corpus;
use super::folders::{Folders, TOP};
use crate::view::{
    Extensions, MARK, NAME_MAX, NameFault, NameSeries, Scope, Subject, View, shorten, unmarked,
};

/// A view whose folders are known.
#[derive(Debug)]
pub(super) struct ViewIndex {
    pub(super) folders: Folders,
    /// Ordinals, by folder and then in order.
    pub(super) files: Vec<u32>,
    /// [`lookup_key`]s in order.
    pub(super) lookup: Vec<u64>,
    /// Ordinals of samples with a suffix, in order.
    pub(super) suffixed: Vec<u32>,
    /// Whether the view has a file of its own at the top, which a folder that is called so hides.
    pub(super) has_lines: bool,
}

/// A name's hash above the ordinal of the sample that is called so.
pub(super) fn lookup_key(hash: u32, ordinal: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(ordinal)
}

pub(super) fn ordinal_of(key: u64) -> u32 {
    u32::try_from(key & u64::from(u32::MAX)).unwrap_or(0)
}

pub(super) fn hash_of(key: u64) -> u32 {
    u32::try_from(key >> 32).unwrap_or(0)
}

/// What a name in a view names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Named {
    Folder(u32),
    File(u32),
}

/// Makes the names of one view, and counts how many it has made.
pub(super) struct Names<'a> {
    pub(super) view: &'a View,
    pub(super) corpus: &'a Corpus,
    made: Cell<u64>,
}

impl<'a> Names<'a> {
    pub(super) fn new(view: &'a View, corpus: &'a Corpus) -> Self {
        Self {
            view,
            corpus,
            made: Cell::new(0),
        }
    }

    /// How many names were made.
    pub(super) fn made(&self) -> u64 {
        self.made.get()
    }

    /// Puts the sample's path or name into `out`, without suffix, and without an `{ext}` at the end
    /// of the template. Components that are not as they were stored have a [`MARK`].
    pub(super) fn plain(
        &self,
        ordinal: u32,
        scope: Scope,
        out: &mut Vec<u8>,
    ) -> Result<(), NameFault> {
        match self.corpus.subject(ordinal) {
            Some(subject) => self.of(subject, scope, out),
            None => {
                out.clear();
                Ok(())
            }
        }
    }

    fn of(&self, subject: Subject<'_>, scope: Scope, out: &mut Vec<u8>) -> Result<(), NameFault> {
        self.made.set(self.made.get() + 1);
        self.view.render_marked(subject, scope, self.corpus, out)
    }

    /// Whether the sample's name is not as it was stored.
    pub(super) fn is_escaped(&self, ordinal: u32) -> bool {
        let mut name = Vec::new();
        self.plain(ordinal, Scope::Name, &mut name).is_ok() && unmarked(&name).1
    }

    /// As [`Names::plain`], with the suffix when the sample is one of `suffixed`. The name, as it is
    /// shown, has no [`MARK`]; folders have.
    pub(super) fn stem(
        &self,
        ordinal: u32,
        scope: Scope,
        suffixed: &[u32],
        out: &mut Vec<u8>,
    ) -> Result<(), NameFault> {
        self.plain(ordinal, scope, out)?;
        let start = match scope {
            Scope::Name => 0,
            Scope::Path => name_start(out),
        };
        if out.get(start) == Some(&MARK) {
            out.remove(start);
        }
        if suffixed.binary_search(&ordinal).is_err() {
            return Ok(());
        }
        let Some(subject) = self.corpus.subject(ordinal) else {
            return Ok(());
        };
        let suffix = format!("~{}-{}", subject.entry.cache_id, subject.sample);
        let room = match self.view.template().ends_in_ext() {
            false => NAME_MAX,
            true => NAME_MAX - 1 - self.corpus.extension(subject).len(),
        };
        if out.len() - start + suffix.len() > room {
            shorten(out, start, room - suffix.len());
        }
        let name = out.get(start..).unwrap_or_default();
        let dot = name
            .iter()
            .rposition(|byte| *byte == b'.')
            .filter(|at| *at > 0);
        let at = match dot {
            Some(dot) if !self.view.template().ends_in_ext() => start + dot,
            _ => out.len(),
        };
        let ending = out.split_off(at.min(out.len()));
        out.extend_from_slice(suffix.as_bytes());
        out.extend_from_slice(&ending);
        Ok(())
    }

    /// The names of samples in a row, of which none has a suffix.
    pub(super) fn series(&self) -> NameSeries<'a> {
        NameSeries::new(self.view, self.corpus)
    }

    /// As [`Names::full`], spelled by `series`.
    pub(super) fn full_in_series(
        &self,
        series: &mut NameSeries<'_>,
        subject: Subject<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), NameFault> {
        self.made.set(self.made.get() + 1);
        series.name(subject, out)?;
        self.push_ext(subject, out);
        Ok(())
    }

    /// Puts the whole path or name into `out`.
    pub(super) fn full(
        &self,
        ordinal: u32,
        scope: Scope,
        suffixed: &[u32],
        out: &mut Vec<u8>,
    ) -> Result<(), NameFault> {
        self.stem(ordinal, scope, suffixed, out)?;
        if let Some(subject) = self.corpus.subject(ordinal) {
            self.push_ext(subject, out);
        }
        Ok(())
    }

    /// Appends the extension when the template ends in it.
    fn push_ext(&self, subject: Subject<'_>, out: &mut Vec<u8>) {
        if self.view.template().ends_in_ext() {
            out.push(b'.');
            out.extend_from_slice(self.corpus.extension(subject).as_bytes());
        }
    }
}

/// Where the last component of a path starts.
pub(super) fn name_start(path: &[u8]) -> usize {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    slash.map_or(0, |at| at + 1)
}

impl ViewIndex {
    /// What is shown as `name` in `folder`.
    pub(super) fn find(&self, names: &Names<'_>, folder: u32, name: &[u8]) -> Option<Named> {
        let subfolder = self.find_folder(names, folder, name).map(Named::Folder);
        subfolder
            .or_else(|| self.find_file(names, folder, name).map(Named::File))
            .or_else(|| self.find_marked(names, folder, name).map(Named::Folder))
    }

    /// The folder whose component of a path is `name`, with its [`MARK`] if it has one.
    pub(super) fn find_folder(&self, names: &Names<'_>, folder: u32, name: &[u8]) -> Option<u32> {
        let mut path = Vec::new();
        self.folders.find(folder, name, |number| {
            self.component(names, number, &mut path) == Some(name)
        })
    }

    /// The folder that is shown as `name`, which is not how it was stored.
    fn find_marked(&self, names: &Names<'_>, folder: u32, name: &[u8]) -> Option<u32> {
        let mut shown = Vec::new();
        let mut is_shown_so = |component: &[u8]| {
            let found = self.find_folder(names, folder, &marked(component))?;
            self.folder_name(names, found, &mut shown)?;
            (shown == name).then_some(found)
        };
        is_shown_so(name).or_else(|| {
            let tilde = name.iter().rposition(|byte| *byte == b'~')?;
            is_shown_so(name.get(..tilde)?)
        })
    }

    pub(super) fn find_file(&self, names: &Names<'_>, folder: u32, name: &[u8]) -> Option<u32> {
        let (stem, ext) = match names.view.template().ends_in_ext() {
            false => (name, None),
            true => {
                let dot = name.iter().rposition(|byte| *byte == b'.')?;
                (name.get(..dot)?, Some(name.get(dot + 1..)?))
            }
        };
        let hash = self.folders.hash(folder, stem);
        let start = self.lookup.partition_point(|key| hash_of(*key) < hash);
        let keys = self.lookup.get(start..).unwrap_or_default().iter();
        let candidates = keys
            .take_while(|key| hash_of(**key) == hash)
            .map(|key| ordinal_of(*key));
        let in_folder = self.files_of(folder);
        let is_trusted = |ordinal: &u32| {
            let subject = names.corpus.subject(*ordinal);
            subject.is_none_or(|subject| subject.entry.cache.table().is_ok())
        };
        let mut found = Vec::new();
        candidates
            .filter(|ordinal| in_folder.binary_search(ordinal).is_ok() && is_trusted(ordinal))
            .find(|ordinal| {
                let made = names.stem(*ordinal, Scope::Name, &self.suffixed, &mut found);
                if made.is_err() || found != stem {
                    return false;
                }
                let subject = names.corpus.subject(*ordinal);
                ext.is_none_or(|ext| {
                    subject.is_some_and(|s| names.corpus.extension(s).as_bytes() == ext)
                })
            })
    }

    /// Ordinals of the samples in a folder, in order.
    pub(super) fn files_of(&self, folder: u32) -> &[u32] {
        self.files
            .get(self.folders.files(folder))
            .unwrap_or_default()
    }

    /// The component that leads to a folder in paths, made in `path`. The top folder has none.
    fn component<'p>(
        &self,
        names: &Names<'_>,
        folder: u32,
        path: &'p mut Vec<u8>,
    ) -> Option<&'p [u8]> {
        let (sample, depth) = self.folders.path(folder).filter(|_| folder != TOP)?;
        if names.plain(sample, Scope::Path, path).is_err() {
            // Another of its samples may be of a cache that can be believed.
            let below = |sample| names.plain(sample, Scope::Path, path);
            self.first_below(folder, below)?;
        }
        path.split(|byte| *byte == b'/').nth(depth.checked_sub(1)?)
    }

    /// Puts the name that a folder is shown under into `out`; the top folder has none in the view.
    /// One that is not as it was stored gives way to all that are: it gets the first of `~1`, `~2`,
    /// ... that is free.
    pub(super) fn folder_name<'p>(
        &self,
        names: &Names<'_>,
        folder: u32,
        out: &'p mut Vec<u8>,
    ) -> Option<&'p [u8]> {
        let mut path = Vec::new();
        let (component, is_marked) = unmarked(self.component(names, folder, &mut path)?);
        out.clear();
        out.extend_from_slice(component);
        if is_marked {
            let parent = self.folders.parent(folder);
            let is_taken = |name: &[u8]| {
                self.find_folder(names, parent, name).is_some()
                    || self.find_file(names, parent, name).is_some()
            };
            let mut tries = 0_u64;
            while is_taken(out)
                || tries > 0 && self.find_folder(names, parent, &marked(out)).is_some()
            {
                tries += 1;
                out.truncate(component.len());
                out.extend_from_slice(format!("~{tries}").as_bytes());
            }
        }
        Some(out)
    }

    /// Replaces the folders of a sample's path by the names that they are shown under.
    pub(super) fn show_folders(&self, names: &Names<'_>, path: &mut Vec<u8>) {
        if !path.contains(&MARK) {
            return;
        }
        let mut folder = Some(TOP);
        let mut shown = Vec::with_capacity(path.len());
        let mut name = Vec::new();
        for component in path.split_inclusive(|byte| *byte == b'/') {
            let Some(component) = component.strip_suffix(b"/") else {
                shown.extend_from_slice(component);
                break;
            };
            folder = folder.and_then(|parent| self.find_folder(names, parent, component));
            let known = folder.and_then(|folder| self.folder_name(names, folder, &mut name));
            shown.extend_from_slice(known.unwrap_or(unmarked(component).0));
            shown.push(b'/');
        }
        *path = shown;
    }

    /// The first sample below a folder for which `make` does it.
    fn first_below<E>(
        &self,
        folder: u32,
        mut make: impl FnMut(u32) -> Result<(), E>,
    ) -> Option<u32> {
        let mut folders = vec![folder];
        while let Some(folder) = folders.pop() {
            let found = self.files_of(folder).iter();
            if let Some(found) = found.copied().find(|sample| make(*sample).is_ok()) {
                return Some(found);
            }
            folders.extend_from_slice(self.folders.children(folder));
        }
        None
    }

    /// Bytes that the index holds.
    pub(super) fn memory(&self) -> usize {
        self.files.capacity() * size_of::<u32>()
            + self.lookup.capacity() * size_of::<u64>()
            + self.suffixed.capacity() * size_of::<u32>()
            + self.folders.memory()
    }
}

fn marked(component: &[u8]) -> Vec<u8> {
    [&[MARK], component].concat()
}
