//! DatasetRT caches: read, write, check, migrate and mount them.

// A message that cannot be written must not panic: results go through `cli::output`, messages through
// `cli::say`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

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
