//! Writers of files that never change. The kernel puts what a process writes, by write(2) or through
//! a mapping, into the pages that all readers see, and only then asks us. So most files cannot be
//! opened for writing at all ([`Attr::sealed`]); of the others the pages are dropped at each attempt.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::node::Node;
use super::{Attr, FileKind, Ino, Stale, Vfs};

/// Files that are remembered as logged; more are only counted.
const MAX_LOGGED: usize = 1024;
/// Files whose pages wait to be dropped. The kernel bounds its requests in flight far below this.
const MAX_WAITING: usize = 65_536;

/// Attempts to write files that never change.
#[derive(Debug, Default)]
pub(super) struct Tamper(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    refused: u64,
    logged: HashSet<Ino>,
    /// Nodes whose pages are to be dropped.
    waiting: HashSet<Ino>,
    /// Whether a thread is dropping them.
    dropping: bool,
}

impl Tamper {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes that were refused.
    pub(super) fn refused(&self) -> u64 {
        self.lock().refused
    }

    /// The next node whose pages are to be dropped; `None` ends the thread that drops them.
    fn next(&self) -> Option<Ino> {
        let mut state = self.lock();
        let next = state.waiting.iter().next().copied();
        match next {
            Some(ino) => state.waiting.remove(&ino),
            None => std::mem::take(&mut state.dropping),
        };
        next
    }
}

impl Vfs {
    /// `attr`, sealed where that takes no right from anybody. A file without a group that the kernel
    /// knows is read by its owner and by others; a privileged process has no privilege over it.
    /// So everybody must be allowed to read it, and nobody have asked for a group. Control files
    /// answer writers themselves.
    pub(super) fn sealed(&self, node: Option<Node>, attr: Attr) -> Attr {
        let shared = matches!(
            node,
            Some(
                Node::Sample(..)
                    | Node::Manifest(_)
                    | Node::Migrated(_)
                    | Node::Metadata(_)
                    | Node::JoinedTable
                    | Node::ViewLines(_)
            )
        );
        let readable_by_all = attr.kind == FileKind::File && attr.perm == 0o444;
        Attr {
            sealed: shared && readable_by_all && self.options.show_gid.is_none(),
            ..attr
        }
    }

    /// Notes that a process wrote to the file `node` of number `ino`, which never changes, and has the kernel drop
    /// the pages of it that all readers see.
    pub(super) fn note_refused_write(self: &Arc<Self>, ino: Ino, node: Node) {
        let mut state = self.tamper.lock();
        state.refused = state.refused.saturating_add(1);
        let log = state.logged.len() < MAX_LOGGED && state.logged.insert(ino);
        if state.waiting.len() < MAX_WAITING {
            state.waiting.insert(ino);
        }
        let start = !std::mem::replace(&mut state.dropping, true);
        drop(state);
        if log {
            let file = self.path_of(ino, node);
            log::warn!("{file}: a process wrote to it: refused, and what it wrote is dropped");
        }
        if start && let Err(error) = self.start_dropping() {
            self.tamper.lock().dropping = false;
            log::error!("cannot start the thread that drops written pages: {error}");
        }
    }

    /// Drops pages on a thread of its own: the kernel holds a page that is being written until the
    /// request about it is answered.
    fn start_dropping(self: &Arc<Self>) -> io::Result<()> {
        let vfs = Arc::clone(self);
        let dropper = thread::Builder::new().name("drop-pages".to_owned());
        let drop_all = move || {
            while let Some(ino) = vfs.tamper.next() {
                vfs.forget.forget(ino, Stale::Everything);
            }
        };
        dropper.spawn(drop_all).map(drop)
    }

    /// Where `node` is in the mount, whose number is `ino`, for a log line.
    fn path_of(&self, ino: Ino, node: Node) -> String {
        let id = |slot| {
            self.at_slot(slot)
                .map_or(0, |mounted| mounted.entry.cache_id)
        };
        match node {
            Node::Sample(slot, sample) => format!("/samples/{}/{sample}", id(slot)),
            Node::Manifest(slot) | Node::Migrated(slot) => {
                format!("/caches/{}/manifest.json", id(slot))
            }
            Node::Metadata(slot) => format!("/caches/{}/metadata.arrow", id(slot)),
            Node::JoinedTable => "/metadata.arrow".to_owned(),
            _ => format!("inode {}", ino.0),
        }
    }
}
