//! The tree of the mount on our own types: lookup, getattr, readdir, read, write.
//!
//! Nothing here knows FUSE; an adapter (`crate::fuse`) translates requests into these calls and
//! [`VfsError`]s into errno values. docs/semantics.md says what each call does.

pub mod attr;
mod node;
mod stub;

pub use attr::{Attr, DirEntry, FileKind, SetAttr, StatFs, Ttl, VfsError};
pub use node::Ino;
pub use stub::Vfs;
