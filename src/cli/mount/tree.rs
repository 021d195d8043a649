//! From the list of caches to the tree that is mounted.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};

use super::{MountConfig, Validate};
use crate::dataset::{self, Dataset, Entry, Newcomers, Receipts, Refusals};
use crate::error::{Error, Result};
use crate::vfs::{LogLines, Vfs, VfsOptions};

/// Nobody means so few bytes.
const LITTLE_MEMORY: u64 = 64 << 10;

/// Opens and checks the caches and makes the tree over them.
///
/// # Errors
/// When a cache is refused; each is named. When the mountpoint, or that of the control files, overlaps
/// with a cache.
pub(super) fn open(
    config: &MountConfig,
    mountpoint: &Path,
    control_at: Option<&Path>,
    log: &Arc<LogLines>,
) -> Result<Vfs> {
    let paths = dataset::expand(&config.caches)?;
    let mut dataset = if config.skip_invalid {
        Dataset::open_skipping(&paths)
    } else if config.watch.is_some() {
        // What a neighbour publishes must not take the mount of all away, now as later.
        Dataset::open_distinct(&paths)?
    } else {
        Dataset::open(&paths)?
    };
    check(config, &mut dataset, config.skip_invalid)?;
    for error in dataset.skipped() {
        log::warn!("skipped: {}", error.chain());
    }
    if dataset.entries().is_empty() {
        return Err(Error::refused(
            mountpoint,
            "nothing to mount: every cache was skipped (the warnings say why)",
        ));
    }
    check_apart(&dataset, mountpoint, &config.mountpoint)?;
    if let Some(control_at) = control_at {
        check_apart(&dataset, control_at, control_at)?;
    }
    if config.cache_memory < LITTLE_MEMORY {
        let bytes = config.cache_memory;
        log::warn!("--cache-memory {bytes} is {bytes} bytes; with a unit it is {bytes}MiB");
    }
    let options = VfsOptions {
        mountpoint: mountpoint.to_path_buf(),
        control_at: control_at.map(Path::to_path_buf),
        // Of whoever mounts, not of whom the daemon becomes.
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        groups: supplementary_groups(),
        show_uid: config.uid,
        show_gid: config.gid,
        umask: config.umask.map(u32::from),
        cache_memory: config.cache_memory,
        temp_disk: config.temp_disk,
        views: config.views.clone(),
        auto_views: config.auto_views,
        on_collision: config.on_collision,
        view_metadata: config.view_metadata,
        xattrs: config.xattrs,
        log: Arc::clone(log),
        scrub_rate: config.scrub_rate,
    };
    Vfs::new(dataset, options)
}

/// Those of whoever mounts; none where they cannot be told.
fn supplementary_groups() -> Vec<u32> {
    let groups = rustix::process::getgroups().unwrap_or_default();
    groups
        .into_iter()
        .map(rustix::process::Gid::as_raw)
        .collect()
}

/// Looks for caches that were published after `dataset` was opened, and checks them as those were.
pub(super) fn look_again(
    config: &MountConfig,
    mountpoint: &Path,
    control_at: Option<&Path>,
    dataset: &Dataset,
    known: &[Entry],
    refusals: &Refusals,
) -> Newcomers {
    let mut found = dataset.newcomers(&config.caches, known);
    found.refuse(|entry| {
        check_entry_apart(entry, mountpoint, &config.mountpoint)?;
        control_at.map_or(Ok(()), |at| check_entry_apart(entry, at, at))
    });
    let checked = found.check_changed(refusals, |dataset| check(config, dataset, true));
    if let Err(error) = checked {
        // Each cache's own errors leave that cache out; this is about all of them.
        found.refuse(|entry| Err(Error::refused(entry.cache.dir(), error.chain())));
    }
    found
}

/// Compares checksums as far as was asked for. Caches that fail leave the list if `skip` is set.
fn check(config: &MountConfig, dataset: &mut Dataset, skip: bool) -> Result<()> {
    let Some(how) = config.validate else {
        return Ok(());
    };
    let mut receipts = config.receipts.as_deref().map(Receipts::new);
    if let Some(receipts) = &mut receipts {
        receipts.honour(dataset);
    }
    match how {
        Validate::Startup => validate(dataset, skip)?,
        Validate::Access => dataset.validate_on_access(skip)?,
    }
    if let Some(receipts) = &mut receipts {
        receipts.leave(dataset);
    }
    Ok(())
}

/// Checks that `mountpoint`, which is resolved and was given as `named`, and the caches do not overlap.
///
/// # Errors
/// When they do: the daemon would wait for itself, or the mount would hide what it serves.
pub(in crate::cli) fn check_apart(
    dataset: &Dataset,
    mountpoint: &Path,
    named: &Path,
) -> Result<()> {
    let mut entries = dataset.entries().iter();
    entries.try_for_each(|entry| check_entry_apart(entry, mountpoint, named))
}

/// Checks that neither of the two mounts would hide the other.
pub(super) fn check_mountpoints(mountpoint: &Path, control_at: &Path) -> Result<()> {
    if control_at.starts_with(mountpoint) || mountpoint.starts_with(control_at) {
        let reason =
            "--control-at: one mountpoint is or contains the other; choose two that lie apart";
        return Err(Error::refused(control_at, reason));
    }
    Ok(())
}

fn check_entry_apart(entry: &Entry, mountpoint: &Path, named: &Path) -> Result<()> {
    let members = entry.cache.real_paths();
    match overlap(mountpoint, entry.cache.dir(), &members) {
        Some(reason) => Err(Error::refused(named, reason)),
        None => Ok(()),
    }
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

/// Why a mountpoint that is, lies in, or contains a folder or file of the cache at `dir` is refused:
/// the daemon would wait for itself, or the mount would hide what it serves.
fn overlap(mountpoint: &Path, dir: &Path, members: &[PathBuf]) -> Option<String> {
    // The first one is the folder itself.
    members.iter().enumerate().find_map(|(n, member)| {
        let how = if mountpoint == member {
            "is"
        } else if mountpoint.starts_with(member) {
            "lies inside"
        } else if member.starts_with(mountpoint) {
            "contains"
        } else {
            return None;
        };
        let what = match n {
            0 => "the cache folder".to_owned(),
            _ => format!("{} of the cache", member.display()),
        };
        Some(format!(
            "the mountpoint {how} {what} {}; choose one outside it",
            dir.display()
        ))
    })
}
