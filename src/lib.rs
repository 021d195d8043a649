//! DatasetRT caches: read, write, check, migrate and mount them.

pub mod cache;
pub mod cli;
pub mod dataset;
pub mod error;
pub mod format;
pub mod fuse;
pub mod migrate;
mod parallel;
pub mod storage;
pub mod verify;
pub mod vfs;
pub mod view;
pub mod writer;
