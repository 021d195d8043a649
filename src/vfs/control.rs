//! Control files that take commands. A write is one whole command, whatever its offset: appending is
//! as good as replacing. Reading gives the state, or the result of the last command.

use std::sync::Arc;
use std::time::SystemTime;

use super::node::{ControlFile, Node};
use super::{Attr, FileKind, Ino, SetAttr, Ttl, Vfs, VfsError, Written};

impl Vfs {
    /// Takes a command for a control file.
    ///
    /// # Errors
    /// As [`Vfs::write_at`].
    pub fn write(self: &Arc<Self>, ino: Ino, data: &[u8]) -> Result<Written, VfsError> {
        self.write_at(ino, 0, data)
    }

    /// Takes a command for a control file. Only a list of samples to read ahead may come in pieces,
    /// each at the offset where the one before it ended.
    ///
    /// # Errors
    /// [`VfsError::ReadOnly`] for all other files; [`VfsError::BadControlWord`], [`VfsError::Busy`].
    pub fn write_at(
        self: &Arc<Self>,
        ino: Ino,
        offset: u64,
        data: &[u8],
    ) -> Result<Written, VfsError> {
        match self.node(ino)? {
            Node::ControlFile(ControlFile::Migrate) | Node::Migrating => self.start_migration(data),
            Node::ControlFile(ControlFile::LogLevel) => {
                self.log_level.set(data).map(|()| Written::All)
            }
            Node::ControlFile(ControlFile::Caches) => self.command_rescan(data),
            Node::ControlFile(ControlFile::Prefetch) => Ok(self.start_prefetch(ino, offset, data)),
            Node::ControlFile(ControlFile::Verify) => self.command_scrub(data),
            Node::Snapshot(number) => {
                let snapshot = self.snapshots.get(number).ok_or(VfsError::Stale)?;
                if snapshot.file != ControlFile::Verify {
                    return Err(VfsError::ReadOnly);
                }
                self.snapshots.note_write(number);
                self.command_scrub(data)
            }
            _ => Err(VfsError::ReadOnly),
        }
    }

    /// Changes nothing: the tree is read-only. Cutting a control file that takes commands is
    /// accepted, since a shell does that before it writes, and changes nothing either.
    ///
    /// # Errors
    /// [`VfsError::ReadOnly`].
    pub fn setattr(&self, ino: Ino, change: SetAttr) -> Result<Attr, VfsError> {
        let SetAttr { mode, uid, gid, .. } = change;
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return Err(VfsError::ReadOnly);
        }
        let node = self.node(ino)?;
        if let Node::Snapshot(number) = node {
            let snapshot = self.snapshots.get(number).ok_or(VfsError::Stale)?;
            return match snapshot.file {
                ControlFile::Verify => Ok(self.snapshot_attr(&snapshot)),
                _ => Err(VfsError::ReadOnly),
            };
        }
        self.command_attr(node).ok_or(VfsError::ReadOnly)
    }

    /// Attributes of a control file that takes commands; `None` for all other nodes.
    pub(super) fn command_attr(&self, node: Node) -> Option<Attr> {
        let (text, changed) = self.command_text(node)?;
        Some(Attr {
            perm: 0o600,
            ttl: Ttl::Never,
            ..self.plain(node.ino(), FileKind::File, text.len() as u64, changed)
        })
    }

    /// What such a file holds, and since when.
    pub(super) fn command_text(&self, node: Node) -> Option<(Arc<[u8]>, SystemTime)> {
        match node {
            Node::ControlFile(ControlFile::Migrate) | Node::Migrating => {
                Some(self.migration.result())
            }
            Node::ControlFile(ControlFile::Caches) => Some(self.rescan.result()),
            Node::ControlFile(ControlFile::LogLevel) => Some(self.log_level.text()),
            Node::ControlFile(ControlFile::Prefetch) => Some(self.prefetch.result()),
            _ => None,
        }
    }
}
