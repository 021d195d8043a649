//! Control files that take commands. A write is one whole command, whatever its offset: appending is
//! as good as replacing. Reading gives the state, or the result of the last command, as it was when
//! the file was looked up: whoever has it open reads one text to its end, unless he writes a command.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::in_flight::takes_long;
use super::node::{ControlFile, Node};
use super::{Attr, FileKind, Ino, SetAttr, Ttl, Vfs, VfsError, Work, Written};

/// Texts that are kept for those who looked them up. Whose text is kept no longer, and who has begun it, gets
/// an error for the rest.
const KEPT: usize = 1024;

/// Look-ups that have a number of their own at the same time.
const VISITS: u32 = 1 << 22;

/// A text and the time since which the file has it.
type Text = (Arc<[u8]>, SystemTime);

/// What a node of a control file holds.
pub(super) enum Seen {
    Text(Text),
    /// It was looked up so long ago that its text is not kept any more.
    Gone,
}

/// What control files that take commands held when they were looked up.
#[derive(Debug, Default)]
pub(super) struct SeenTexts {
    /// `None` for a node that was written: the next look takes what came of it.
    kept: Mutex<VecDeque<(Node, Option<Text>)>>,
    /// Look-ups by processes of other PID namespaces.
    visits: AtomicU32,
}

impl SeenTexts {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(Node, Option<Text>)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, node: Node, text: Option<Text>) {
        let mut kept = self.lock();
        kept.retain(|(other, _)| *other != node);
        kept.push_back((node, text));
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }

    fn get(&self, node: Node) -> Option<Option<Text>> {
        let kept = self.lock();
        let found = kept.iter().rev().find(|(other, _)| *other == node);
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
        self.seen_texts.keep(node, None);
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
        let (text, changed) = match self.command_text(node)? {
            Seen::Text(text) => text,
            Seen::Gone => self.see_present(node)?,
        };
        Some(Attr {
            perm: 0o600,
            ttl: Ttl::Never,
            ..self.plain(self.ino(node), FileKind::File, text.len() as u64, changed)
        })
    }

    /// What such a file holds, and since when.
    pub(super) fn command_text(&self, node: Node) -> Option<Seen> {
        let file = control_file(node).filter(|file| file.takes_commands())?;
        if let Node::ControlFile(_) | Node::Command { caller: 0, .. } = node {
            return self.present_text(file).map(Seen::Text);
        }
        match self.seen_texts.get(node) {
            Some(Some(text)) => Some(Seen::Text(text)),
            Some(None) => self.see_present(node).map(Seen::Text),
            None => Some(Seen::Gone),
        }
    }

    /// The present text, from now on that of `node`.
    pub(super) fn see_present(&self, node: Node) -> Option<Text> {
        let text = self.present_text(control_file(node)?)?;
        self.seen_texts.keep(node, Some(text.clone()));
        Some(text)
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

    /// The node of a control file for the process that looks it up; without one, of nobody.
    pub(super) fn control_node(&self, file: ControlFile, caller: Option<u32>) -> Node {
        if !file.takes_commands() {
            return Node::ControlFile(file);
        }
        let busy = file == ControlFile::Migrate && self.migration.is_running();
        let node = match caller {
            None if !busy => return Node::ControlFile(file),
            None => {
                return Node::Command {
                    file,
                    caller: 0,
                    busy,
                };
            }
            Some(0) => {
                let number = self.seen_texts.visits.fetch_add(1, Ordering::Relaxed);
                Node::Visit {
                    file,
                    number: number % VISITS,
                }
            }
            Some(caller) => Node::Command { file, caller, busy },
        };
        self.see_present(node);
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
        Node::ControlFile(file) | Node::Command { file, .. } | Node::Visit { file, .. } => {
            Some(file)
        }
        _ => None,
    }
}
