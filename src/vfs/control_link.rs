//! `/.control` where the control files have a mount of their own: a link to it.

use std::os::unix::ffi::OsStrExt;

use super::node::Node;
use super::{Attr, FileKind, Ino, Vfs};

impl Vfs {
    /// The folder of control files: the root of their own mount, where they have one.
    #[must_use]
    pub fn control_dir(&self) -> Ino {
        self.ino(Node::Control)
    }

    /// What the root shows for `node`.
    pub(super) fn in_root(&self, node: Node, kind: FileKind) -> (Node, FileKind) {
        match node {
            Node::Control if self.options.control_at.is_some() => {
                (Node::ControlLink, FileKind::Symlink)
            }
            _ => (node, kind),
        }
    }

    pub(super) fn control_target(&self) -> &[u8] {
        let at = self.options.control_at.as_ref();
        at.map_or(&[], |at| at.as_os_str().as_bytes())
    }

    pub(super) fn control_link_attr(&self) -> Attr {
        let (ino, len) = (self.ino(Node::ControlLink), self.control_target().len());
        let attr = self.plain(ino, FileKind::Symlink, len as u64, self.started);
        Attr {
            perm: 0o777,
            ..attr
        }
    }
}
