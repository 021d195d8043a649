//! Listings of the folders of a view.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::super::{DirEntry, FileKind, Node, Vfs, VfsError};
use super::folders::TOP;
use super::{Built, LINES_FILE};
use crate::view::Scope;

impl Vfs {
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
        if folder == TOP && self.has_lines(index) {
            fixed.push((LINES_FILE, Node::ViewLines(view)));
        }
        let children = index.folders.children(folder);
        let files = index.files_of(folder);
        let names = self.views.names(shown);
        let sniffs = shown.view.template().ends_in_ext();
        let mut name = Vec::new();
        let total = fixed.len() + children.len() + files.len();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        for position in start..total {
            let child = position.checked_sub(fixed.len());
            let file = child.and_then(|child| child.checked_sub(children.len()));
            let (node, kind, name) = if let Some(file) = file {
                let rest = files.get(file..).unwrap_or_default();
                let Some(&ordinal) = rest.first() else {
                    break;
                };
                if sniffs {
                    self.views.corpus.look_ahead(rest);
                }
                // The name was made before, so it fits.
                let made = names.full(ordinal, Scope::Name, &index.suffixed, &mut name);
                match self.sample_node(ordinal).filter(|_| made.is_ok()) {
                    Some(node) => (node, FileKind::File, name.as_slice()),
                    None => continue,
                }
            } else if let Some(child) = child {
                let Some(&number) = children.get(child) else {
                    break;
                };
                match index.folder_name(&names, number, &mut name) {
                    Some(name) => (Node::ViewDir(view, number), FileKind::Directory, name),
                    None => continue,
                }
            } else {
                let Some(&(name, node)) = fixed.get(position) else {
                    break;
                };
                let kind = match node {
                    Node::ViewLines(_) => FileKind::File,
                    _ => FileKind::Directory,
                };
                (node, kind, name.as_bytes())
            };
            let entry = DirEntry {
                ino: node.ino(),
                next_offset: position as u64 + 1,
                kind,
                name: OsStr::from_bytes(name),
            };
            if !sink(entry) {
                break;
            }
        }
        self.counters.note_names(names.made());
        Ok(())
    }
}
