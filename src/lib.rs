//! DatasetRT caches: read, write, check, migrate and mount them.

pub mod error;
pub mod format;
pub mod vfs;
