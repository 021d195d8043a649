//! Inode numbers: a fixed function of the node, both ways, never a table.

/// An inode number of the tree.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ino(pub u64);

impl Ino {
    /// The root of the tree.
    pub const ROOT: Self = Self(1);
}
