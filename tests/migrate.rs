//! Migration of manifests: the library, `datasetrt migrate`, and the examples of docs/migration.md.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;

#[path = "migrate/attributes.rs"]
mod attributes;

#[path = "migrate/files.rs"]
mod files;

#[path = "migrate/library.rs"]
mod library;

#[path = "migrate/refusals.rs"]
mod refusals;

#[path = "migrate/golden.rs"]
mod golden;

#[path = "migrate/cli.rs"]
mod cli;

#[path = "migrate/docs.rs"]
mod docs;
