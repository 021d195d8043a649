//! File handles (name_to_handle_at, NFS): the kernel makes them of inode numbers, which are the same on each
//! mount of the same list, and asks for the node of one that it has forgotten by the name `.`.

use std::ffi::OsStr;

use super::{Attr, Ino, Node, Vfs, VfsError};

impl Vfs {
    /// What the kernel looks up: a name, `.` in any node, or `..` in a folder. `None` for a name that there
    /// is not and never will be. For the process `caller`, 0 when it is of another PID namespace.
    ///
    /// # Errors
    /// As [`Vfs::lookup`].
    pub fn find(&self, caller: u32, dir: Ino, name: &OsStr) -> Result<Option<Attr>, VfsError> {
        let node = match name.as_encoded_bytes() {
            b"." => Some(self.node(dir)?),
            b".." => Some(self.parent_of(self.node(dir)?)?),
            _ => None,
        };
        let found = match node {
            None => self.lookup_by(Some(caller), dir, name),
            Some(node) => self.attr(node).map(|attr| self.sealed(Some(node), attr)),
        };
        match found {
            Ok(attr) => Ok(Some(attr)),
            Err(VfsError::NotFound) if node.is_none() && self.is_static_dir(dir) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The folder that a folder is in; the root is in itself.
    pub(super) fn parent_of(&self, folder: Node) -> Result<Node, VfsError> {
        Ok(match folder {
            Node::Root
            | Node::Samples
            | Node::Caches
            | Node::ByName
            | Node::Control
            | Node::Views => Node::Root,
            Node::SampleDir(_) => Node::Samples,
            Node::CacheDir(_) => Node::Caches,
            Node::ViewDir(view, folder) => self.view_parent(view, folder)?,
            _ => return Err(VfsError::NotADirectory),
        })
    }
}
