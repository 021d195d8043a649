//! Real mounts by the built daemon: what programs see, what the kernel asks, what damage does.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test fails by panicking"
)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/metrics.rs"]
mod metrics;

mod changed;
mod copies;
mod counted;
mod counts;
mod cut;
mod damage;
mod faulty_disk;
mod golden;
mod hanging;
mod hung_disk;
mod index;
mod killed;
mod limits;
mod listing;
mod live;
mod loader;
mod locks;
mod mapping;
mod memory;
mod migrate;
mod migrate_disk;
mod migrate_many;
mod observe;
mod places;
mod reading;
mod receipts;
mod renumbered;
mod resources;
mod scrub;
mod statfs;
mod sweep;
mod tables;
mod worker;
