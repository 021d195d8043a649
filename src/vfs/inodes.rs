//! Inode numbers of nodes, and back: running sums over the caches and views, never a table of nodes.
//!
//! ```text
//! 1 ..               nodes that every mount has
//! 64 ..              a block for each cache of the list: its own nodes, then its samples
//! after these        a block for each view: its own file, then its folders, up to a limit
//! after these        a block for each cache that joined
//! 2^32 - 2^27 - 2^20 control files that take commands, one for each process and state
//! 2^32 - 2^20        texts of control files, in the order in which they were taken
//! 2^32 - 2^10        logs, in the order in which they started
//! 2^32 ..            blocks that do not fit below
//! 2^52 .. 2^53       folders beyond the limit of their view
//! ```
//!
//! Programs of 32 bits and the format of cpio know numbers below 2^32 only, JavaScript those below
//! 2^53. A folder of a view has its number before the view is built, which is why the limit is one
//! that the list alone gives. Files of views are the samples' own nodes.

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::node::{ControlFile, Ino, Node};
use crate::dataset::{Dataset, Entry};
use crate::error::{Error, Result};

/// Views that have numbers.
pub(super) const MAX_VIEWS: usize = 1 << 20;

const FIRST_CONTROL: u64 = 32;
const FIRST_BLOCK: u64 = 64;
/// Nodes of a cache before its samples.
const CACHE_NODES: u64 = 6;
/// The file of a view, before its folders.
const VIEW_NODES: u64 = 1;

/// Numbers of 32 bits end here.
const END_32: u64 = 1 << 32;
/// Texts that have a number of their own at the same time; many more than are kept.
pub(super) const SNAPSHOTS: u64 = (1 << 20) - LOGS;
const FIRST_SNAPSHOT: u64 = FIRST_LOG - SNAPSHOTS;
/// Logs that have a number of their own at the same time.
pub(super) const LOGS: u64 = 1 << 10;
const FIRST_LOG: u64 = END_32 - LOGS;
/// The system gives processes numbers below this one (`PID_MAX_LIMIT`).
const CALLERS: u64 = 1 << 22;
/// For each process, two states of each file from 0 on; for each look-up of a process that nobody knows, one
/// of each file from the end on.
const STATES: u64 = 32;
const COMMANDS: u64 = CALLERS * STATES;
const FIRST_COMMAND: u64 = FIRST_SNAPSHOT - COMMANDS;
const _: () = assert!(ControlFile::ALL.len() as u64 * 3 <= STATES);
/// Folders beyond the limit of their view: the view's number above 32 bits for the folder's.
const FIRST_SURPLUS: u64 = 1 << 52;
/// Folders of views get at most what is left below this number, so that caches can join below 2^32.
const END_OF_VIEWS: u64 = 1 << 31;

/// Which numbers each cache and view has. Blocks are added and never change.
#[derive(Debug)]
pub(super) struct Inodes(ArcSwap<Blocks>);

#[derive(Clone, Debug, Default)]
struct Blocks {
    /// In the order of their numbers.
    all: Vec<Block>,
    /// First number of each cache, by slot; 0 for a slot without one.
    caches: Vec<u64>,
    /// First number of each view, and how many of its folders have numbers in its block.
    views: Vec<(u64, u64)>,
    /// The first number that is free.
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    start: u64,
    len: u64,
    owner: Owner,
}

#[derive(Clone, Copy, Debug)]
enum Owner {
    Cache { slot: u64 },
    View { number: u32 },
}

impl Inodes {
    /// Numbers for the caches of a list, also for those that were left out, and for no view.
    ///
    /// # Errors
    /// [`Error::Refused`] for a cache that has too many nodes before it.
    pub(super) fn new(dataset: &Dataset) -> Result<Self> {
        let mut blocks = Blocks {
            next: FIRST_BLOCK,
            ..Blocks::default()
        };
        for (slot, samples) in dataset.sample_counts().iter().enumerate() {
            if blocks.add_cache(slot, *samples).is_none() {
                let mut entries = dataset.entries().iter();
                let entry = entries.find(|entry| entry.position >= slot);
                return Err(too_many(entry));
            }
        }
        Ok(Self(ArcSwap::from_pointee(blocks)))
    }

    /// Gives numbers to more caches, after all that were given. Calls must not overlap. Those for
    /// which there are none left come back as [`Error::Refused`].
    pub(super) fn join<'a>(&self, entries: &'a [Entry]) -> Vec<Result<&'a Entry>> {
        let mut blocks = Blocks::clone(&self.0.load());
        let added = entries.iter();
        let added = added.map(|entry| {
            let added = blocks.add_cache(entry.position, entry.cache.sample_count());
            added.map(|()| entry).ok_or_else(|| too_many(Some(entry)))
        });
        let added = added.collect();
        self.0.store(Arc::new(blocks));
        added
    }

    /// Gives numbers to the views, each of which has at most so many folders as `bounds` says. To be
    /// called once, when all caches of the list have numbers.
    pub(super) fn add_views(&self, bounds: &[u64]) {
        let mut blocks = Blocks::clone(&self.0.load());
        blocks.add_views(bounds);
        self.0.store(Arc::new(blocks));
    }

    /// The number of a node whose cache or view has numbers.
    pub(super) fn number(&self, node: Node) -> Ino {
        Ino(match node {
            Node::Root => 1,
            Node::Samples => 2,
            Node::Caches => 3,
            Node::ByName => 4,
            Node::Control => 5,
            Node::ControlLink => 6,
            Node::Views => 7,
            Node::JoinedTable => 8,
            Node::ControlFile(file) => FIRST_CONTROL + file.number(),
            Node::Command { file, caller, busy } => {
                let state = file.number() << 1 | u64::from(busy);
                FIRST_COMMAND + (state * CALLERS + u64::from(caller) % CALLERS)
            }
            Node::Visit { file, number } => {
                let state = STATES - 1 - file.number();
                FIRST_COMMAND + (state * CALLERS + u64::from(number) % CALLERS)
            }
            Node::Snapshot(n) => FIRST_SNAPSHOT + n % SNAPSHOTS,
            Node::Log(n) => FIRST_LOG + n % LOGS,
            Node::SampleDir(slot) => self.in_cache(slot, 0),
            Node::CacheDir(slot) => self.in_cache(slot, 1),
            Node::Manifest(slot) => self.in_cache(slot, 2),
            Node::Metadata(slot) => self.in_cache(slot, 3),
            Node::NameLink(slot) => self.in_cache(slot, 4),
            Node::Migrated(slot) => self.in_cache(slot, 5),
            Node::Sample(slot, sample) => self.in_cache(slot, CACHE_NODES + sample),
            Node::ViewLines(view) => self.view(view).0,
            Node::ViewDir(view, folder) => {
                let (start, folders) = self.view(view);
                let folder = u64::from(folder);
                match folder < folders {
                    true => start + VIEW_NODES + folder,
                    false => FIRST_SURPLUS + (u64::from(view) << 32 | folder),
                }
            }
        })
    }

    fn in_cache(&self, slot: u64, node: u64) -> u64 {
        let blocks = self.0.load();
        let slot = usize::try_from(slot).ok();
        let start = slot.and_then(|slot| blocks.caches.get(slot));
        start.map_or(0, |start| start + node)
    }

    fn view(&self, view: u32) -> (u64, u64) {
        let blocks = self.0.load();
        let view = usize::try_from(view).ok();
        view.and_then(|view| blocks.views.get(view).copied())
            .unwrap_or_default()
    }

    /// The node that has this number, whether or not the folder of a view exists.
    pub(super) fn node(&self, ino: Ino) -> Option<Node> {
        let number = ino.0;
        match number {
            1 => return Some(Node::Root),
            2 => return Some(Node::Samples),
            3 => return Some(Node::Caches),
            4 => return Some(Node::ByName),
            5 => return Some(Node::Control),
            6 => return Some(Node::ControlLink),
            7 => return Some(Node::Views),
            8 => return Some(Node::JoinedTable),
            ..FIRST_CONTROL => return None,
            FIRST_CONTROL..FIRST_BLOCK => {
                return ControlFile::of(number - FIRST_CONTROL).map(Node::ControlFile);
            }
            FIRST_COMMAND..FIRST_SNAPSHOT => {
                let (state, caller) = (
                    (number - FIRST_COMMAND) / CALLERS,
                    (number - FIRST_COMMAND) % CALLERS,
                );
                let takes_commands = |file: &ControlFile| file.takes_commands();
                if let Some(file) = ControlFile::of(STATES - 1 - state) {
                    return Some(Node::Visit {
                        file: Some(file).filter(takes_commands)?,
                        number: u32::try_from(caller).ok()?,
                    });
                }
                return Some(Node::Command {
                    file: ControlFile::of(state >> 1).filter(takes_commands)?,
                    caller: u32::try_from(caller).ok()?,
                    busy: state & 1 != 0,
                });
            }
            FIRST_SNAPSHOT..FIRST_LOG => {
                return Some(Node::Snapshot(number - FIRST_SNAPSHOT));
            }
            FIRST_LOG..END_32 => return Some(Node::Log(number - FIRST_LOG)),
            FIRST_SURPLUS.. => return self.surplus(number - FIRST_SURPLUS),
            _ => {}
        }
        let blocks = self.0.load();
        let after = blocks.all.partition_point(|block| block.start <= number);
        let block = blocks.all.get(after.checked_sub(1)?)?;
        let inside = number - block.start;
        if inside >= block.len {
            return None;
        }
        Some(match block.owner {
            Owner::View { number } => match inside.checked_sub(VIEW_NODES) {
                None => Node::ViewLines(number),
                Some(folder) => Node::ViewDir(number, u32::try_from(folder).ok()?),
            },
            Owner::Cache { slot } => match inside {
                0 => Node::SampleDir(slot),
                1 => Node::CacheDir(slot),
                2 => Node::Manifest(slot),
                3 => Node::Metadata(slot),
                4 => Node::NameLink(slot),
                5 => Node::Migrated(slot),
                n => Node::Sample(slot, n - CACHE_NODES),
            },
        })
    }

    /// A folder beyond the limit of its view; one within it has its other number only.
    fn surplus(&self, place: u64) -> Option<Node> {
        let view = u32::try_from(place >> 32).ok()?;
        let folder = place & u64::from(u32::MAX);
        let (start, folders) = self.view(view);
        if start == 0 || folder < folders {
            return None;
        }
        Some(Node::ViewDir(view, u32::try_from(folder).ok()?))
    }
}

impl Blocks {
    /// A block of `len` numbers after all that were given: before the numbers of control files, or
    /// else behind them. `None` when there are not so many.
    fn add(&mut self, len: u64, owner: Owner) -> Option<u64> {
        let fits = |start: u64, limit: u64| {
            let end = start.checked_add(len)?;
            (end <= limit).then_some(start)
        };
        let start = fits(self.next, FIRST_COMMAND)
            .or_else(|| fits(self.next.max(END_32), FIRST_SURPLUS))?;
        self.next = start + len;
        self.all.push(Block { start, len, owner });
        Some(start)
    }

    fn add_cache(&mut self, slot: usize, samples: u64) -> Option<()> {
        let owner = Owner::Cache { slot: slot as u64 };
        let start = self.add(samples.checked_add(CACHE_NODES)?, owner)?;
        if self.caches.len() <= slot {
            self.caches.resize(slot.checked_add(1)?, 0);
        }
        *self.caches.get_mut(slot)? = start;
        Some(())
    }

    /// Each view has the same share of what is left, so that no view's numbers depend on how many
    /// folders another has.
    fn add_views(&mut self, bounds: &[u64]) {
        let left = END_OF_VIEWS.saturating_sub(self.next);
        let share = left / (bounds.len() as u64).max(1);
        for (number, bound) in (0..).zip(bounds) {
            let folders = (*bound).min(share.saturating_sub(VIEW_NODES));
            let block = self.add(folders + VIEW_NODES, Owner::View { number });
            // Without room, a number that no block starts at: the folders are all beyond the limit.
            self.views.push(match block {
                Some(start) => (start, folders),
                None => (0, 0),
            });
        }
    }
}

fn too_many(entry: Option<&Entry>) -> Error {
    let dir = entry.map_or(Path::new(""), |entry| entry.cache.dir());
    Error::refused(
        dir,
        "expected fewer than 2^52 samples in one mount, found more",
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn numbers(samples: &[u64], bounds: &[u64]) -> Inodes {
        let mut blocks = Blocks {
            next: FIRST_BLOCK,
            ..Blocks::default()
        };
        for (slot, samples) in samples.iter().enumerate() {
            blocks.add_cache(slot, *samples).unwrap();
        }
        blocks.add_views(bounds);
        Inodes(ArcSwap::from_pointee(blocks))
    }

    fn of_cache(slot: u64, samples: u64) -> Vec<Node> {
        let mut nodes = vec![
            Node::SampleDir(slot),
            Node::CacheDir(slot),
            Node::Manifest(slot),
            Node::Migrated(slot),
            Node::Metadata(slot),
            Node::NameLink(slot),
        ];
        let ends = [0, samples / 2, samples.saturating_sub(1)];
        let ends: HashSet<u64> = ends.into_iter().filter(|n| *n < samples).collect();
        nodes.extend(ends.into_iter().map(|n| Node::Sample(slot, n)));
        nodes
    }

    /// The numbers of `nodes`, each of which leads back.
    fn distinct(inodes: &Inodes, nodes: &[Node]) -> Vec<u64> {
        let mut seen = HashSet::new();
        let numbers = nodes.iter().map(|node| {
            let ino = inodes.number(*node);
            assert_eq!(inodes.node(ino), Some(*node), "{ino:?}");
            assert!(seen.insert(ino), "{node:?}: {ino:?}");
            assert!(ino.0 < 1 << 53, "{node:?}: {ino:?}");
            ino.0
        });
        numbers.collect()
    }

    fn fixed() -> Vec<Node> {
        let mut nodes = vec![
            Node::Root,
            Node::Samples,
            Node::Caches,
            Node::ByName,
            Node::Control,
            Node::ControlLink,
            Node::Views,
            Node::JoinedTable,
            Node::Snapshot(0),
            Node::Snapshot(SNAPSHOTS - 1),
            Node::Log(0),
            Node::Log(LOGS - 1),
        ];
        nodes.extend(ControlFile::ALL.map(Node::ControlFile));
        let commands = ControlFile::ALL.into_iter();
        for file in commands.filter(|file| file.takes_commands()) {
            for (caller, busy) in [(0, true), (1, false), ((1 << 22) - 1, true)] {
                nodes.push(Node::Command { file, caller, busy });
            }
            for number in [0, 1, (1 << 22) - 1] {
                nodes.push(Node::Visit { file, number });
            }
        }
        nodes
    }

    #[test]
    fn numbers_are_dense_and_lead_back() {
        let samples = [0, 1, 5, 100_000_000, 3];
        let inodes = numbers(&samples, &[1, 4, u64::MAX]);
        let mut nodes = fixed();
        for (slot, samples) in (0..).zip(samples) {
            nodes.extend(of_cache(slot, samples));
        }
        for (view, folder) in [(0, 0), (1, 0), (1, 3), (2, 0), (2, 600_000_000)] {
            nodes.extend([Node::ViewDir(view, folder)]);
        }
        nodes.extend([0, 1, 2].map(Node::ViewLines));
        assert!(distinct(&inodes, &nodes).iter().all(|n| *n < 1 << 32));
        let last_of_list = inodes.number(Node::Sample(4, 2)).0;
        assert_eq!(last_of_list, 63 + 5 * 6 + 100_000_009);
        for free in [0, 9, 31, 63, FIRST_COMMAND - 1, FIRST_COMMAND + CALLERS * 2] {
            assert_eq!(inodes.node(Ino(free)), None, "{free}");
        }
    }

    #[test]
    fn what_does_not_fit_in_32_bits_fits_in_53() {
        let samples = [3_000_000_000, 2_000_000_000, 1 << 50, 7];
        let inodes = numbers(&samples, &[1 << 40, 2]);
        let mut nodes = fixed();
        for (slot, samples) in (0..).zip(samples) {
            nodes.extend(of_cache(slot, samples));
        }
        for folder in [0, 1, 1 << 31, u32::MAX] {
            nodes.extend([0, 1].map(|view| Node::ViewDir(view, folder)));
        }
        nodes.extend([0, 1].map(Node::ViewLines));
        let all = distinct(&inodes, &nodes);
        let below = nodes.iter().zip(all).filter(|(_, n)| *n < 1 << 32);
        assert_eq!(
            below.count(),
            fixed().len() + of_cache(0, 3_000_000_000).len()
        );
        assert_eq!(Blocks::default().add_cache(0, u64::MAX), None);
        assert_eq!(Blocks::default().add_cache(0, 1 << 52), None);
    }

    #[test]
    fn newcomers_come_behind_and_change_nothing() {
        let inodes = numbers(&[5, 6], &[10]);
        let view = inodes.number(Node::ViewDir(0, 9));
        let mut blocks = Blocks::clone(&inodes.0.load());
        // Its place in the list need not be the next one.
        blocks.add_cache(7, 3).unwrap();
        inodes.0.store(Arc::new(blocks));
        assert_eq!(inodes.number(Node::ViewDir(0, 9)), view);
        assert_eq!(inodes.number(Node::SampleDir(7)).0, view.0 + 1);
        let mut nodes = of_cache(0, 5);
        nodes.extend(of_cache(7, 3));
        distinct(&inodes, &nodes);
        assert_eq!(inodes.node(Ino(view.0 + 1 + CACHE_NODES + 3)), None);
    }
}
