//! The caches: can they be opened, as a mount would.

use std::path::{Path, PathBuf};

use super::Check;
use crate::cli::output::{bytes, count, counted};
use crate::dataset::{self, Dataset};
use crate::error::Error;
use crate::format::manifest::FormatVersion;
use crate::fuse;

const NAME: &str = "caches";
const FIX: &str = "look closer with `datasetrt verify`; mount the others with --skip-invalid";

/// File systems whose files live on other machines.
const REMOTE: [&str; 10] = [
    "nfs", "nfs4", "lustre", "cifs", "smb3", "ceph", "gpfs", "beegfs", "9p", "virtiofs",
];

/// Checks of the given caches, and the caches themselves when all can be opened.
pub(super) fn checks(given: &[PathBuf]) -> (Vec<Check>, Option<Dataset>) {
    if given.is_empty() {
        return (Vec::new(), None);
    }
    let mut checks = Vec::new();
    let mut paths = Vec::new();
    for path in given {
        match dataset::expand(std::slice::from_ref(path)) {
            Ok(expanded) => paths.extend(expanded),
            Err(error) => checks.extend(refusals(error)),
        }
    }
    if paths.is_empty() {
        return (checks, None);
    }
    let opened = match Dataset::open(&paths) {
        Ok(dataset) => {
            checks.push(summary(&dataset));
            checks.extend(positions(&dataset));
            Some(dataset)
        }
        Err(error) => {
            checks.extend(refusals(error));
            None
        }
    };
    checks.extend(given.iter().filter_map(|path| remote(path)));
    (checks, opened)
}

fn refusals(error: Error) -> Vec<Check> {
    match error {
        Error::Several(errors) => errors.into_iter().flat_map(refusals).collect(),
        error => vec![Check::fail(NAME, error.chain(), FIX)],
    }
}

fn summary(dataset: &Dataset) -> Check {
    let (mut samples, mut decoded) = (0_u64, 0_u64);
    for entry in dataset.entries() {
        samples = samples.saturating_add(entry.cache.sample_count());
        decoded = decoded.saturating_add(entry.cache.manifest().decoded_len());
    }
    let found = format!(
        "{} can be opened: {}, {} (checksums not compared)",
        counted(dataset.entries().len() as u64, "cache"),
        counted(samples, "sample"),
        bytes(decoded)
    );
    Check::ok(NAME, found)
}

/// Format 2 has no ids of its own.
fn positions(dataset: &Dataset) -> Option<Check> {
    let old = dataset
        .entries()
        .iter()
        .filter(|entry| entry.cache.manifest().version == FormatVersion::V2)
        .count();
    if old == 0 || dataset.entries().len() == 1 {
        return None;
    }
    let found = format!(
        "{} of format 2: their ids are their positions in this list, so its order must never change",
        count(old as u64)
    );
    let fix = "write the ids into the caches, once: datasetrt migrate --to 3, with the same list";
    Some(Check::warn("identity", found, fix))
}

fn remote(path: &Path) -> Option<Check> {
    let resolved = path.canonicalize().ok()?;
    let around = fuse::around(&resolved).ok().flatten()?;
    let fstype = around.fstype.to_string_lossy();
    if !REMOTE.contains(&fstype.as_ref()) && !fstype.starts_with("fuse") {
        return None;
    }
    let found = format!("{} lies on {fstype}", path.display());
    Some(Check::ok(
        "storage",
        found + ": more --threads help, see docs/operations.md",
    ))
}
