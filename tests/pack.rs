//! `datasetrt pack` as a program: what it makes of each kind of source, what it refuses, and what it
//! leaves behind when it is stopped.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "pack/interruptions.rs"]
mod interruptions;
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
