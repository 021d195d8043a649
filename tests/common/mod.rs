//! What the integration tests share: tiny caches and ways to damage them ([`fixture`]), the golden
//! data ([`golden`]), and reading a whole cache the way a mount does ([`deliver`]).

#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "each test binary uses a part of this, and a test may panic"
)]

pub mod acl;
pub mod arrow_rewrite;
pub mod faulty;
pub mod fixture;
pub mod golden;
pub mod json;
pub mod lz4;
pub mod memory_group;
pub mod mount;
pub mod mutate;
pub mod noise;
mod reading;
pub mod test_cache;

pub use reading::{Delivered, deliver, deliver_all, payload, same_rows};

/// The bytes that pairs of hexadecimal digits stand for.
#[must_use]
pub fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "half a byte in {text:?}");
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}
