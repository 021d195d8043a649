//! Damaged caches without golden data: what is refused, with which error, and what is never done
//! (panic, allocate by a length from the disk, deliver other bytes).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test may panic"
)]

#[path = "../common/mod.rs"]
mod common;

#[path = "../common/alloc.rs"]
mod alloc;
mod arrow;
mod envelope;
mod files;
mod in_place;
mod index;
mod lz4;
mod names;
mod store;
mod sweep;
mod table;

use std::path::Path;

use datasetrt::error::{Error, FaultKind};

use common::deliver;
use common::fixture::TestCache;

/// An error in one line: what, which file, which sample.
fn describe(error: &Error, dir: &Path) -> String {
    let relative = |path: &Path| {
        let path = path.strip_prefix(dir).unwrap_or(path);
        path.display().to_string()
    };
    match error {
        Error::Damaged {
            path,
            sample: None,
            fault,
        } => format!("{:?} {}", fault.kind, relative(path)),
        Error::Damaged {
            path,
            sample: Some(sample),
            fault,
        } => format!("{:?} {} ({sample})", fault.kind, relative(path)),
        Error::Io { path, source, .. } => format!("{:?} {}", source.kind(), relative(path)),
        Error::Incomplete { .. } => "Incomplete".to_owned(),
        Error::UnsupportedVersion { found, .. } => format!("Version {found}"),
        Error::Refused { path, .. } => format!("Refused {}", relative(path)),
        Error::Several(errors) => {
            let each: Vec<_> = errors.iter().map(|error| describe(error, dir)).collect();
            each.join(", ")
        }
        other => format!("{other:?}"),
    }
}

/// What becomes of a cache: where it is refused ("open", "validate", "read"), or "right".
fn outcome(cache: &TestCache) -> String {
    let mut dataset = match cache.dataset() {
        Ok(dataset) => dataset,
        Err(error) => return format!("open: {}", describe(&error, &cache.dir)),
    };
    if let Err(error) = dataset.validate(false, &|_| ()) {
        return format!("validate: {}", describe(&error, &cache.dir));
    }
    let refused = refused_samples(cache);
    match refused.is_empty() {
        true => "right".to_owned(),
        false => format!("read: {}", refused.join(", ")),
    }
}

/// The errors of a cache that opens; every sample without one is as it was written.
fn refused_samples(cache: &TestCache) -> Vec<String> {
    let open = cache.open().unwrap_or_else(|e| panic!("{}", e.chain()));
    let mut refused = Vec::new();
    for sample in 0..open.sample_count() {
        match deliver(&open, sample) {
            Err(error) => refused.push(describe(&error, &cache.dir)),
            Ok(found) => assert!(found.same(&cache.expected(sample)), "sample {sample}"),
        }
    }
    refused
}

/// The kind of fault with which the cache is refused when it is opened.
fn fault_at_open(cache: &TestCache) -> FaultKind {
    let Err(error) = cache.open() else {
        panic!("the cache opens");
    };
    error
        .fault()
        .unwrap_or_else(|| panic!("no damage: {}", error.chain()))
        .kind
}
