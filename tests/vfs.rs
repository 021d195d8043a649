//! The tree without a mount, held against a plain map of what it should show.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

mod common;

#[path = "common/alloc.rs"]
mod alloc;
#[path = "common/metrics.rs"]
mod metrics;

#[path = "vfs/attributes.rs"]
mod attributes;
#[path = "vfs/changed.rs"]
mod changed;
#[path = "vfs/control.rs"]
mod control;
#[path = "vfs/damage.rs"]
mod damage;
#[path = "vfs/inodes.rs"]
mod inodes;
#[path = "vfs/migrate.rs"]
mod migrate;
#[path = "vfs/model.rs"]
mod model;
#[path = "vfs/names.rs"]
mod names;
#[path = "vfs/observe.rs"]
mod observe;
#[path = "vfs/permissions.rs"]
mod permissions;
#[path = "vfs/prefetch.rs"]
mod prefetch;
#[path = "vfs/reads.rs"]
mod reads;
#[path = "vfs/scrub.rs"]
mod scrub;
#[path = "vfs/steady.rs"]
mod steady;
#[path = "vfs/wrong_table.rs"]
mod wrong_table;

use std::path::PathBuf;
use std::sync::Arc;

use common::fixture::TestCache;
use datasetrt::dataset::Dataset;
use datasetrt::vfs::{Attr, Ino, Vfs, VfsError, VfsOptions};

/// The tree over these caches, in this order.
fn tree_of(caches: &[&TestCache]) -> Arc<Vfs> {
    tree_with(caches, VfsOptions::default())
}

fn tree_with(caches: &[&TestCache], options: VfsOptions) -> Arc<Vfs> {
    let paths: Vec<PathBuf> = caches.iter().map(|cache| cache.dir.clone()).collect();
    let dataset = Dataset::open(&paths).unwrap_or_else(|error| panic!("{}", error.chain()));
    Arc::new(Vfs::new(dataset, options).unwrap())
}

/// Attributes of what `path` names, step by step as the kernel asks.
fn look(vfs: &Vfs, path: &str) -> Result<Attr, VfsError> {
    let mut attr = vfs.getattr(Ino::ROOT)?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        attr = vfs.lookup(attr.ino, name.as_ref())?;
    }
    Ok(attr)
}

/// What `path` holds: more is asked for than its size says, so that a wrong size shows.
fn read(vfs: &Vfs, path: &str) -> Result<Vec<u8>, VfsError> {
    let attr = look(vfs, path)?;
    read_node(vfs, attr)
}

fn read_node(vfs: &Vfs, attr: Attr) -> Result<Vec<u8>, VfsError> {
    let mut bytes = vec![0; usize::try_from(attr.size).unwrap() + 64];
    let len = vfs.read(attr.ino, 0, &mut bytes)?;
    bytes.truncate(len);
    assert_eq!(bytes.len() as u64, attr.size, "size and bytes differ");
    Ok(bytes)
}

/// Bytes of `ino` in a given piece; what lies behind them stays as it was.
fn piece(vfs: &Vfs, ino: Ino, offset: u64, len: usize) -> Result<Vec<u8>, VfsError> {
    let mut bytes = vec![0xA5; len + 8];
    let (room, guard) = bytes.split_at_mut(len);
    let n = vfs.read(ino, offset, room)?;
    assert_eq!(guard, [0xA5; 8]);
    bytes.truncate(n);
    Ok(bytes)
}

/// The text of a control file.
fn text(vfs: &Vfs, path: &str) -> String {
    String::from_utf8(read(vfs, path).unwrap()).unwrap()
}

/// `/.control/status`, parsed.
fn status(vfs: &Vfs) -> serde_json::Value {
    serde_json::from_str(&text(vfs, ".control/status")).unwrap()
}
