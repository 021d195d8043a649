//! From the list of caches to the tree that is mounted.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};

use super::{MountConfig, Validate};
use crate::dataset::{self, Dataset};
use crate::error::{Error, Result};
use crate::vfs::{Vfs, VfsOptions};

/// Opens and checks the caches and makes the tree over them.
///
/// # Errors
/// When a cache is refused; each is named. When the mountpoint overlaps with a cache.
pub(super) fn open(config: &MountConfig, mountpoint: &Path) -> Result<Vfs> {
    let paths = dataset::expand(&config.caches)?;
    let mut dataset = if config.skip_invalid {
        Dataset::open_valid(&paths)?
    } else {
        Dataset::open(&paths)?
    };
    match config.validate {
        None => {}
        Some(Validate::Startup) => validate(&mut dataset, config.skip_invalid)?,
        Some(Validate::Access) => dataset.validate_on_access(config.skip_invalid)?,
    }
    for error in dataset.skipped() {
        log::warn!("skipped: {}", error.chain());
    }
    if dataset.entries().is_empty() {
        return Err(Error::refused(
            mountpoint,
            "nothing to mount: every cache was skipped (the warnings say why)",
        ));
    }
    for entry in dataset.entries() {
        refuse_overlap(mountpoint, entry.cache.dir(), &entry.cache.real_paths()?)?;
    }
    let options = VfsOptions {
        mountpoint: mountpoint.to_path_buf(),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        show_uid: config.uid,
        show_gid: config.gid,
        umask: config.umask.map(u32::from),
        cache_memory: config.cache_memory,
    };
    Vfs::new(&dataset, options)
}

/// Compares all checksums, with a bar when somebody is watching.
fn validate(dataset: &mut Dataset, skip: bool) -> Result<()> {
    if !std::io::stderr().is_terminal() {
        return dataset.validate(skip, &|_| ());
    }
    let bar = ProgressBar::new(dataset.validation_len());
    let template = "checking {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    let result = dataset.validate(skip, &|bytes| bar.inc(bytes));
    bar.finish_and_clear();
    result
}

/// Refuses a mountpoint that is, lies in, or contains a folder or file of the cache at `dir`: the
/// daemon would wait for itself, or the mount would hide what it serves.
fn refuse_overlap(mountpoint: &Path, dir: &Path, members: &[PathBuf]) -> Result<()> {
    for member in members {
        let how = if mountpoint == member {
            "is"
        } else if mountpoint.starts_with(member) {
            "lies inside"
        } else if member.starts_with(mountpoint) {
            "contains"
        } else {
            continue;
        };
        let reason = format!(
            "the mountpoint {how} {} of the cache {}; choose one outside it",
            member.display(),
            dir.display()
        );
        return Err(Error::refused(mountpoint, reason));
    }
    Ok(())
}
