//! Views without a mount: names, folders, files over all samples, attributes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "common/tiny_views.rs"]
mod tiny_views;

#[path = "views/evicted.rs"]
mod evicted;
#[path = "views/manual.rs"]
mod manual;
#[path = "views/names.rs"]
mod names;
#[path = "views/stored.rs"]
mod stored;
#[path = "views/tables.rs"]
mod tables;
#[path = "views/tree.rs"]
mod tree;
#[path = "views/walk.rs"]
mod walk;
