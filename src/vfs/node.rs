//! Nodes and their inode numbers: a fixed function both ways, never a table.
//!
//! ```text
//! bit 63  62        61    60 .......... 40   39 .................. 0
//!      0   snapshot  view  cache slot + 1     node inside the cache
//!                          view number        node inside the view
//! ```
//!
//! Files of views are the samples' own nodes; only folders have numbers there. Numbers below 2^40 are the nodes that every mount has. Snapshots of changing files are numbered
//! in the order in which they were taken. A cache's slot is its position in the list, so that a
//! mount of the same list gives the same numbers.

/// An inode number of the tree.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ino(pub u64);

impl Ino {
    /// The root of the tree.
    pub const ROOT: Self = Self(1);
}

/// Positions of caches that have a number of their own.
pub(super) const MAX_SLOTS: u64 = (1 << 21) - 1;
/// Views that have a number of their own.
pub(super) const MAX_VIEWS: usize = 1 << 21;
/// Samples of one cache that have a number of their own.
pub(super) const MAX_SAMPLES: u64 = (1 << SLOT_SHIFT) - FIRST_SAMPLE;

const SLOT_SHIFT: u32 = 40;
const SNAPSHOT: u64 = 1 << 62;
const VIEW: u64 = 1 << 61;
/// Below [`SLOT_SHIFT`]: a control file that takes commands, the file's number, and who asked for it.
const COMMAND: u64 = 1 << 39;
const COMMAND_BUSY: u64 = 1 << 38;
const COMMAND_SHIFT: u32 = 32;
/// Number of a view's first folder inside the view; 0 is its own file.
const FIRST_FOLDER: u64 = 1;
/// Numbers of the first control file and of the first sample inside a cache.
const FIRST_CONTROL: u64 = 32;
const FIRST_SAMPLE: u64 = 16;

/// A file in `/.control`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum ControlFile {
    Caches,
    Damaged,
    Log,
    LogLevel,
    Metrics,
    Migrate,
    Prefetch,
    Status,
    Verify,
}

impl ControlFile {
    /// All of them, in the order in which the folder lists them.
    pub(super) const ALL: [Self; 9] = [
        Self::Caches,
        Self::Damaged,
        Self::Log,
        Self::LogLevel,
        Self::Metrics,
        Self::Migrate,
        Self::Prefetch,
        Self::Status,
        Self::Verify,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Caches => "caches",
            Self::Damaged => "damaged",
            Self::Log => "log",
            Self::LogLevel => "log-level",
            Self::Metrics => "metrics",
            Self::Migrate => "migrate",
            Self::Prefetch => "prefetch",
            Self::Status => "status",
            Self::Verify => "verify",
        }
    }

    /// Whether writing it is a command.
    pub(super) fn takes_commands(self) -> bool {
        matches!(
            self,
            Self::Caches | Self::LogLevel | Self::Migrate | Self::Prefetch | Self::Verify
        )
    }

    fn number(self) -> u64 {
        let n = Self::ALL.iter().position(|other| *other == self);
        n.unwrap_or(0) as u64
    }

    fn of(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

/// A node of the tree.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Node {
    /// `/`
    Root,
    /// `/samples`
    Samples,
    /// `/caches`
    Caches,
    /// `/by-name`
    ByName,
    /// `/.control`
    Control,
    /// `/views`
    Views,
    /// `/metadata.arrow`
    JoinedTable,
    /// Folder number n of view number v; 0 is `/views/<name>`
    ViewDir(u32, u32),
    /// `/views/<name>/metadata.jsonl`
    ViewLines(u32),
    /// `/.control/<file>`, as the folder lists it
    ControlFile(ControlFile),
    /// `/.control/<file>`, one that takes commands, as the process that looked it up has it. Each
    /// has a node of its own, because the kernel puts what is written into the pages that readers of
    /// the same node see. While a command runs it is another one again: the kernel lets one writer at
    /// a time at a node, and the next would wait instead of hearing that it is busy.
    Command {
        file: ControlFile,
        caller: u32,
        busy: bool,
    },
    /// `/.control/<file>`, as it was at one moment
    Snapshot(u64),
    /// `/samples/<cache_id>`
    SampleDir(u64),
    /// `/samples/<cache_id>/<sample_id>`
    Sample(u64, u64),
    /// `/caches/<cache_id>`
    CacheDir(u64),
    /// `/caches/<cache_id>/manifest.json`
    Manifest(u64),
    /// `/caches/<cache_id>/manifest.json` after a migration: another file, as rename(2) makes it
    Migrated(u64),
    /// `/caches/<cache_id>/metadata.arrow`
    Metadata(u64),
    /// `/by-name/<source_name>`
    NameLink(u64),
}

impl Node {
    pub(super) fn ino(self) -> Ino {
        let inside = |slot: u64, node: u64| ((slot + 1) << SLOT_SHIFT) | node;
        Ino(match self {
            Self::Root => 1,
            Self::Samples => 2,
            Self::Caches => 3,
            Self::ByName => 4,
            Self::Control => 5,
            Self::Views => 7,
            Self::JoinedTable => 8,
            Self::ViewDir(view, folder) => {
                VIEW | u64::from(view) << SLOT_SHIFT | (FIRST_FOLDER + u64::from(folder))
            }
            Self::ViewLines(view) => VIEW | u64::from(view) << SLOT_SHIFT,
            Self::ControlFile(file) => FIRST_CONTROL + file.number(),
            Self::Command { file, caller, busy } => {
                let busy = if busy { COMMAND_BUSY } else { 0 };
                COMMAND | busy | file.number() << COMMAND_SHIFT | u64::from(caller)
            }
            Self::Snapshot(n) => SNAPSHOT | n,
            Self::SampleDir(slot) => inside(slot, 0),
            Self::CacheDir(slot) => inside(slot, 1),
            Self::Manifest(slot) => inside(slot, 2),
            Self::Metadata(slot) => inside(slot, 3),
            Self::NameLink(slot) => inside(slot, 4),
            Self::Migrated(slot) => inside(slot, 5),
            Self::Sample(slot, sample) => inside(slot, FIRST_SAMPLE + sample),
        })
    }

    /// The node that has this number, whether or not the cache or sample exists.
    pub(super) fn of(ino: Ino) -> Option<Self> {
        if ino.0 & SNAPSHOT != 0 {
            return Some(Self::Snapshot(ino.0 & !SNAPSHOT));
        }
        let inside = ino.0 & ((1 << SLOT_SHIFT) - 1);
        if ino.0 & VIEW != 0 {
            let view = u32::try_from((ino.0 & !VIEW) >> SLOT_SHIFT).ok()?;
            return Some(match inside.checked_sub(FIRST_FOLDER) {
                None => Self::ViewLines(view),
                Some(folder) => Self::ViewDir(view, u32::try_from(folder).ok()?),
            });
        }
        let Some(slot) = (ino.0 >> SLOT_SHIFT).checked_sub(1) else {
            if inside & COMMAND != 0 {
                let number = (inside & !(COMMAND | COMMAND_BUSY)) >> COMMAND_SHIFT;
                return Some(Self::Command {
                    file: ControlFile::of(number).filter(|file| file.takes_commands())?,
                    caller: u32::try_from(inside & u64::from(u32::MAX)).ok()?,
                    busy: inside & COMMAND_BUSY != 0,
                });
            }
            return Some(match inside {
                1 => Self::Root,
                2 => Self::Samples,
                3 => Self::Caches,
                4 => Self::ByName,
                5 => Self::Control,
                7 => Self::Views,
                8 => Self::JoinedTable,
                n => Self::ControlFile(ControlFile::of(n.checked_sub(FIRST_CONTROL)?)?),
            });
        };
        Some(match inside {
            0 => Self::SampleDir(slot),
            1 => Self::CacheDir(slot),
            2 => Self::Manifest(slot),
            3 => Self::Metadata(slot),
            4 => Self::NameLink(slot),
            5 => Self::Migrated(slot),
            n => Self::Sample(slot, n.checked_sub(FIRST_SAMPLE)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_nodes_go_both_ways() {
        let mut nodes = vec![
            Node::Root,
            Node::Samples,
            Node::Caches,
            Node::ByName,
            Node::Control,
            Node::Views,
            Node::JoinedTable,
            Node::ViewDir(0, 0),
            Node::ViewDir((1 << 21) - 1, u32::MAX),
            Node::ViewLines(0),
            Node::ViewLines((1 << 21) - 1),
            Node::Snapshot(0),
            Node::Snapshot(1 << 50),
        ];
        nodes.extend(ControlFile::ALL.map(Node::ControlFile));
        for file in ControlFile::ALL
            .into_iter()
            .filter(|file| file.takes_commands())
        {
            for (caller, busy) in [(0, true), (1, false), (u32::MAX, true), (u32::MAX, false)] {
                nodes.push(Node::Command { file, caller, busy });
            }
        }
        for slot in [0, 1, MAX_SLOTS - 1] {
            nodes.extend([
                Node::SampleDir(slot),
                Node::CacheDir(slot),
                Node::Manifest(slot),
                Node::Migrated(slot),
                Node::Metadata(slot),
                Node::NameLink(slot),
                Node::Sample(slot, 0),
                Node::Sample(slot, MAX_SAMPLES - 1),
            ]);
        }
        let mut seen = std::collections::HashSet::new();
        for node in nodes {
            assert_eq!(Node::of(node.ino()), Some(node));
            assert!(seen.insert(node.ino()), "{node:?}");
        }
        assert_eq!(Node::Root.ino(), Ino::ROOT);
        for free in [
            0,
            6,
            9,
            99,
            COMMAND | 1 << COMMAND_SHIFT,
            COMMAND | 9 << COMMAND_SHIFT,
            (1 << SLOT_SHIFT) | 9,
        ] {
            assert_eq!(Node::of(Ino(free)), None);
        }
    }
}
