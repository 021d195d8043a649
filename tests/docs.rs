//! The documents: what they tell people to type is typed here, and what they say of errors is so.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "common/mod.rs"]
mod common;
#[path = "docs/errors.rs"]
mod errors;
#[path = "docs/inspect.rs"]
mod inspect;
#[path = "docs/reliability.rs"]
mod reliability;
#[path = "docs/snippets.rs"]
mod snippets;

use std::fs;
use std::path::Path;

fn document(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect(name)
}
