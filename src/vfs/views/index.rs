//! One view, built: which folder has which samples. Names are made anew when they are asked for.
//!
//! Twelve bytes for each sample: its ordinal in the list of files, and its ordinal with a hash of
//! its folder and name in the table for look-ups.

use std::cell::Cell;

use super::corpus::Corpus;
use super::folders::{Folders, TOP};
use crate::view::{
    Extensions, MAX_EXTENSION_LEN, NAME_MAX, NameFault, NameSeries, Scope, Subject, View,
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
    /// Whether a folder at the top is called like the view's own file, which it then hides.
    pub(super) hides_lines: bool,
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
    /// of the template.
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
        self.view.render(subject, scope, self.corpus, out)
    }

    /// As [`Names::plain`], with the suffix when the sample is one of `suffixed`.
    pub(super) fn stem(
        &self,
        ordinal: u32,
        scope: Scope,
        suffixed: &[u32],
        out: &mut Vec<u8>,
    ) -> Result<(), NameFault> {
        self.plain(ordinal, scope, out)?;
        if suffixed.binary_search(&ordinal).is_err() {
            return Ok(());
        }
        let Some(subject) = self.corpus.subject(ordinal) else {
            return Ok(());
        };
        let suffix = format!("~{}-{}", subject.entry.cache_id, subject.sample);
        let start = out
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(0, |at| at + 1);
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
        let name = out.get(start..).unwrap_or_default();
        match name.len() <= NAME_MAX {
            true => Ok(()),
            false => Err(NameFault::too_long(name)),
        }
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

    /// Whether the sample's name, which is `stem` and perhaps an extension, fits.
    pub(super) fn check_len(&self, ordinal: u32, stem: &[u8]) -> Result<(), NameFault> {
        if !self.view.template().ends_in_ext() || stem.len() + MAX_EXTENSION_LEN < NAME_MAX {
            return Ok(());
        }
        let mut name = stem.to_vec();
        if let Some(subject) = self.corpus.subject(ordinal) {
            self.push_ext(subject, &mut name);
        }
        match name.len() <= NAME_MAX {
            true => Ok(()),
            false => Err(NameFault::too_long(&name)),
        }
    }
}

impl ViewIndex {
    /// What is called `name` in `folder`.
    pub(super) fn find(&self, names: &Names<'_>, folder: u32, name: &[u8]) -> Option<Named> {
        let subfolder = self.find_folder(names, folder, name).map(Named::Folder);
        subfolder.or_else(|| self.find_file(names, folder, name).map(Named::File))
    }

    pub(super) fn find_folder(&self, names: &Names<'_>, folder: u32, name: &[u8]) -> Option<u32> {
        let mut path = Vec::new();
        self.folders.find(folder, name, |number| {
            self.folder_name(names, number, &mut path) == Some(name)
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
        let mut found = Vec::new();
        candidates
            .filter(|ordinal| in_folder.binary_search(ordinal).is_ok())
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

    /// The name of a folder, made in `path`. The top folder has none in the view.
    pub(super) fn folder_name<'p>(
        &self,
        names: &Names<'_>,
        folder: u32,
        path: &'p mut Vec<u8>,
    ) -> Option<&'p [u8]> {
        let (sample, depth) = self.folders.path(folder).filter(|_| folder != TOP)?;
        names.plain(sample, Scope::Path, path).ok()?;
        path.split(|byte| *byte == b'/').nth(depth.checked_sub(1)?)
    }

    /// Bytes that the index holds.
    pub(super) fn memory(&self) -> usize {
        self.files.capacity() * size_of::<u32>()
            + self.lookup.capacity() * size_of::<u64>()
            + self.suffixed.capacity() * size_of::<u32>()
            + self.folders.memory()
    }
}
