//! Control files that take commands. A write is one whole command, whatever its offset: appending is
//! as good as replacing. Reading gives the state, or the result of the last command, as it was when
//! the file was looked up: whoever has it open reads one text to its end, unless he writes a command.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::in_flight::takes_long;
use super::node::{ControlFile, Node};
use super::{Attr, FileKind, Ino, SetAttr, Ttl, Vfs, VfsError, Work, Written};

/// Texts that are kept for those who looked them up. Whose text is kept no longer reads the present
/// one.
const KEPT: usize = 256;

/// A text and the time since which the file has it.
type Text = (Arc<[u8]>, SystemTime);

/// What control files that take commands held when they were looked up.
#[derive(Debug, Default)]
pub(super) struct SeenTexts(Mutex<VecDeque<(Node, Text)>>);

impl SeenTexts {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(Node, Text)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, node: Node, text: Text) {
        let mut kept = self.lock();
        kept.retain(|(other, _)| *other != node);
        kept.push_back((node, text));
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }

    fn forget(&self, node: Node) {
        self.lock().retain(|(other, _)| *other != node);
    }

    fn get(&self, node: Node) -> Option<Text> {
        let kept = self.lock();
        let found = kept.iter().find(|(other, _)| *other == node);
        found.map(|(_, text)| text.clone())
    }
}

/// A write that is to be taken: see [`Vfs::write_at`].
pub struct Command {
    ino: Ino,
    offset: u64,
    data: Vec<u8>,
    /// What is left to do once the command was taken.
    work: Option<Work>,
}

impl Command {
    /// A write of `data` to the file `ino`.
    #[must_use]
    pub fn new(ino: Ino, offset: u64, data: &[u8]) -> Self {
        Self {
            ino,
            offset,
            data: data.to_vec(),
            work: None,
        }
    }

    /// Takes the command and does what it asks for. After [`VfsError::TakesLong`] it is to be called
    /// again on a thread that may take long.
    ///
    /// # Errors
    /// As [`Vfs::write_at`], and as the work.
    pub fn run(&mut self, vfs: &Arc<Vfs>) -> Result<(), VfsError> {
        let work = match self.work.take() {
            Some(work) => work,
            None => match vfs.write_at(self.ino, self.offset, &self.data)? {
                Written::All => return Ok(()),
                Written::Later(work) => work,
            },
        };
        if let Err(later) = takes_long() {
            self.work = Some(work);
            return Err(later);
        }
        work()
    }
}

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
        let node = self.node(ino)?;
        // The writer's next look is at what came of it.
        self.seen_texts.forget(node);
        match control_file(node) {
            Some(ControlFile::Caches) => self.command_rescan(data),
            Some(ControlFile::Migrate) => self.start_migration(data),
            Some(ControlFile::Prefetch) => Ok(self.start_prefetch(ino, offset, data)),
            Some(ControlFile::LogLevel) => self.log_level.set(data).map(|()| Written::All),
            Some(ControlFile::Verify) => self.command_scrub(data),
            _ => {
                self.note_refused_write(ino, node);
                Err(VfsError::ReadOnly)
            }
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
        self.command_attr(node).ok_or(VfsError::ReadOnly)
    }

    /// Attributes of a control file that takes commands; `None` for all other nodes.
    pub(super) fn command_attr(&self, node: Node) -> Option<Attr> {
        let (text, changed) = self.command_text(node)?;
        Some(Attr {
            perm: 0o600,
            ttl: Ttl::Never,
            ..self.plain(self.ino(node), FileKind::File, text.len() as u64, changed)
        })
    }

    /// What such a file holds, and since when.
    pub(super) fn command_text(&self, node: Node) -> Option<Text> {
        let file = control_file(node)?;
        let seen = self.seen_texts.get(node);
        seen.or_else(|| self.present_text(file))
    }

    fn present_text(&self, file: ControlFile) -> Option<Text> {
        match file {
            ControlFile::Caches => Some(self.rescan.result()),
            ControlFile::LogLevel => Some(self.log_level.text()),
            ControlFile::Migrate => Some(self.migration.result()),
            ControlFile::Prefetch => Some(self.prefetch.result()),
            ControlFile::Verify => Some(self.scrub.text()),
            _ => None,
        }
    }

    /// The node of a control file for the process that looks it up.
    pub(super) fn control_node(&self, file: ControlFile, caller: u32) -> Node {
        let busy = file == ControlFile::Migrate && self.migration.is_running();
        if !file.takes_commands() || !busy && caller == 0 {
            return Node::ControlFile(file);
        }
        let node = Node::Command { file, caller, busy };
        if caller != 0
            && let Some(text) = self.present_text(file)
        {
            self.seen_texts.keep(node, text);
        }
        node
    }
}

/// A time for a text that follows one of `before`, whatever the clock does: by it the kernel knows to
/// drop its pages.
pub(super) fn later_than(before: SystemTime) -> SystemTime {
    SystemTime::now().max(before + Duration::from_nanos(1))
}

fn control_file(node: Node) -> Option<ControlFile> {
    match node {
        Node::ControlFile(file) | Node::Command { file, .. } => Some(file),
        _ => None,
    }
}
