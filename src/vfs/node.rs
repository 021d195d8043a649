//! The nodes of the tree.

/// An inode number of the tree.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ino(pub u64);

impl Ino {
    /// The root of the tree.
    pub const ROOT: Self = Self(1);
}

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

    /// Its place in [`ControlFile::ALL`].
    pub(super) fn number(self) -> u64 {
        let n = Self::ALL.iter().position(|other| *other == self);
        n.unwrap_or(0) as u64
    }

    pub(super) fn of(number: u64) -> Option<Self> {
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
    /// `/.control` where the control files have a mount of their own: a link to it
    ControlLink,
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
    /// The same for one look-up by a process that has no number here (of another PID namespace): nobody knows
    /// whether it is the same as another one.
    Visit { file: ControlFile, number: u32 },
    /// `/.control/<file>`, as it was at one moment
    Snapshot(u64),
    /// `/.control/log`, from one of its starts on
    Log(u64),
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
