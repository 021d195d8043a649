//! Listings of the folders of a view.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::super::inodes::Inodes;
use super::super::{DirEntry, FileKind, Node, Vfs, VfsError};
use super::folders::TOP;
use super::index::{Names, ViewIndex};
use super::{Built, LINES_FILE};
use crate::view::Scope;

impl Vfs {
    /// The folder that a folder of a view is in.
    pub(in crate::vfs) fn view_parent(&self, view: u32, folder: u32) -> Result<Node, VfsError> {
        if folder == TOP {
            return Ok(Node::Views);
        }
        let folders = &self.built(view)?.index.folders;
        if !folders.exists(folder) {
            return Err(VfsError::NotFound);
        }
        Ok(Node::ViewDir(view, folders.parent(folder)))
    }

    /// [`Vfs::readdir`] of a folder of a view: `.`, `..`, the view's own file, subfolders, files in
    /// the order of the caches and samples.
    pub(in crate::vfs) fn read_view_dir(
        &self,
        view: u32,
        folder: u32,
        offset: u64,
        sink: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<(), VfsError> {
        let Built { shown, index } = self.built(view)?;
        if !index.folders.exists(folder) {
            return Err(VfsError::NotFound);
        }
        let parent = match folder {
            TOP => Node::Views,
            _ => Node::ViewDir(view, index.folders.parent(folder)),
        };
        let mut fixed = vec![(".", Node::ViewDir(view, folder)), ("..", parent)];
        if folder == TOP && index.has_lines {
            fixed.push((LINES_FILE, Node::ViewLines(view)));
        }
        let mut listing = Listing {
            inodes: &self.inodes,
            position: 0,
            start: offset,
            sink,
        };
        for (name, node) in fixed {
            let kind = match node {
                Node::ViewLines(_) => FileKind::File,
                _ => FileKind::Directory,
            };
            if !listing.give(name.as_bytes(), node, kind) {
                return Ok(());
            }
        }
        let names = self.views.names(shown);
        let mut name = Vec::new();
        let children = index.folders.children(folder);
        let mut goes_on = true;
        for &number in listing.rest(children) {
            goes_on = match index.folder_name(&names, number, &mut name) {
                Some(name) => listing.give(name, Node::ViewDir(view, number), FileKind::Directory),
                None => listing.skip(),
            };
            if !goes_on {
                break;
            }
        }
        if goes_on {
            self.list_files(&names, &index, folder, &mut listing);
        }
        self.counters.note_names(names.made());
        Ok(())
    }

    fn list_files(
        &self,
        names: &Names<'_>,
        index: &ViewIndex,
        folder: u32,
        listing: &mut Listing<'_>,
    ) {
        let corpus = &self.views.corpus;
        let sniffs = names.view.template().ends_in_ext();
        let files = listing.rest(index.files_of(folder));
        let mut name = Vec::new();
        let mut series = names.series();
        let untrusted = corpus.untrusted();
        for (n, (subject, &ordinal)) in corpus.subjects(files).zip(files).enumerate() {
            if untrusted.contains(&subject.cache) {
                listing.skip();
                continue;
            }
            if sniffs && !corpus.is_known(subject) {
                corpus.look_ahead(files.get(n..).unwrap_or_default());
            }
            let made = match index.suffixed.is_empty() {
                true => names.full_in_series(&mut series, subject, &mut name),
                false => names.full(ordinal, Scope::Name, &index.suffixed, &mut name),
            };
            let node = Node::Sample(subject.entry.position as u64, subject.sample);
            let goes_on = match made {
                Ok(()) => listing.give(&name, node, FileKind::File),
                // The name was made when the view was built, so the file has changed since.
                Err(_) => listing.skip(),
            };
            if !goes_on {
                return;
            }
        }
    }
}

/// A listing that is under way.
struct Listing<'a> {
    inodes: &'a Inodes,
    /// Position of the next entry.
    position: u64,
    /// Entries before this position are not wanted.
    start: u64,
    sink: &'a mut dyn FnMut(DirEntry<'_>) -> bool,
}

impl Listing<'_> {
    /// What is wanted of `entries`, which come next.
    fn rest<'e>(&mut self, entries: &'e [u32]) -> &'e [u32] {
        let unwanted = self.start.saturating_sub(self.position);
        let unwanted = unwanted.min(entries.len() as u64);
        self.position += unwanted;
        let unwanted = usize::try_from(unwanted).unwrap_or(entries.len());
        entries.get(unwanted..).unwrap_or_default()
    }

    /// Gives the next entry and says whether more are wanted.
    fn give(&mut self, name: &[u8], node: Node, kind: FileKind) -> bool {
        self.position += 1;
        if self.position <= self.start {
            return true;
        }
        (self.sink)(DirEntry {
            ino: self.inodes.number(node),
            next_offset: self.position,
            kind,
            name: OsStr::from_bytes(name),
        })
    }

    /// Leaves a position without an entry.
    fn skip(&mut self) -> bool {
        self.position += 1;
        true
    }
}
