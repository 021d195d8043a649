//! Migrations that are stopped: by a failing step, by SIGKILL at each step, at a random moment. After
//! each, every manifest is whole, the list opens with its identities, and a retry does the rest.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;

#[allow(dead_code, reason = "shared with tests/migrate.rs")]
#[path = "migrate/files.rs"]
mod files;

#[path = "migrate_crash/list.rs"]
mod list;

#[path = "migrate_crash/steps.rs"]
mod steps;

#[path = "migrate_crash/syscalls.rs"]
mod syscalls;

#[path = "migrate_crash/chaos.rs"]
mod chaos;
