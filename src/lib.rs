//! DatasetRT caches: read, write, check, migrate and mount them.

pub mod cli;
pub mod error;
pub mod fuse;
pub mod vfs;
