//! `datasetrt pack` as a program: what it makes of each kind of source, what it refuses, and what it
//! leaves behind when it is stopped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test may panic"
)]

#[path = "pack/durability.rs"]
mod durability;
#[path = "pack/hosts.rs"]
mod hosts;
#[path = "pack/interruptions.rs"]
mod interruptions;
#[path = "pack/memory.rs"]
mod memory;
#[path = "pack/metadata.rs"]
mod metadata;
#[path = "pack/names.rs"]
mod names;
#[path = "pack/refusals.rs"]
mod refusals;
#[path = "pack/sources.rs"]
mod sources;
#[path = "pack/support.rs"]
mod support;
