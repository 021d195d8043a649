//! The rows of an index against the manifest: which records they say there are, and that these lie
//! inside their shards.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, Fault, FaultKind, Result};
use crate::format::index::{IndexRow, IndexView, ROW_LEN_U64};
use crate::format::manifest::{Manifest, ShardEntry};
use crate::format::record::HEADER_LEN;
use crate::parallel::in_parallel;

/// Rows that one core looks at before it takes the next ones: 6 MiB of the index.
const AT_ONCE: u64 = 1 << 18;

/// The first thing that is wrong with an index.
pub(super) fn check(path: &Path, bytes: &[u8], manifest: &Manifest) -> Result<()> {
    if let Some(error) = wrong_len(path, bytes, manifest) {
        return Err(error);
    }
    let rows = manifest.sample_count;
    let pieces = usize::try_from(rows.div_ceil(AT_ONCE)).unwrap_or(usize::MAX);
    // Pieces after one with a fault are not looked at: an index may be as long as disks are not.
    let first_bad = AtomicUsize::new(pieces);
    let first_faults = in_parallel(pieces, |n| {
        if n > first_bad.load(Ordering::Relaxed) {
            return None;
        }
        let start = (n as u64).saturating_mul(AT_ONCE);
        let piece = start..start.saturating_add(AT_ONCE).min(rows);
        let fault = bad_rows(path, bytes, piece, manifest).next()?;
        first_bad.fetch_min(n, Ordering::Relaxed);
        Some(fault)
    });
    first_faults
        .into_iter()
        .flatten()
        .next()
        .map_or(Ok(()), Err)
}

/// Everything that is wrong with an index: its length, or else each bad row.
pub(super) fn faults<'a>(
    path: &'a Path,
    bytes: &'a [u8],
    manifest: &'a Manifest,
) -> impl Iterator<Item = Error> + 'a {
    let wrong_len = wrong_len(path, bytes, manifest);
    // Rows of an index of another length belong to nobody knows which samples.
    let rows = match wrong_len {
        Some(_) => 0,
        None => manifest.sample_count,
    };
    let bad_rows = bad_rows(path, bytes, 0..rows, manifest);
    wrong_len.into_iter().chain(bad_rows)
}

fn wrong_len(path: &Path, bytes: &[u8], manifest: &Manifest) -> Option<Error> {
    let len = bytes.len() as u64;
    if manifest.sample_count.checked_mul(ROW_LEN_U64) == Some(len) {
        return None;
    }
    let fault = Fault::new(
        FaultKind::RowCount,
        format!(
            "{} rows of {ROW_LEN_U64} bytes (sample_count of the manifest)",
            manifest.sample_count
        ),
        format!("{len} bytes, {} rows", len / ROW_LEN_U64),
    );
    Some(fault.in_file(path))
}

/// Those of the rows of `samples` that are wrong.
fn bad_rows<'a>(
    path: &'a Path,
    bytes: &'a [u8],
    samples: Range<u64>,
    manifest: &'a Manifest,
) -> impl Iterator<Item = Error> + 'a {
    let first = samples.start;
    let rows = IndexView::new(bytes).range(samples);
    (first..)
        .zip(rows)
        .filter(|(_, row)| !row_fits(*row, manifest))
        .map(|(sample, row)| {
            let fault = row_fault(row, manifest);
            fault.at(sample * ROW_LEN_U64).in_sample(path, sample)
        })
}

/// A row names a shard of the manifest and a record that lies inside it.
pub(super) fn row_fits(row: IndexRow, manifest: &Manifest) -> bool {
    shard_of_row(row, manifest).is_some_and(|shard| {
        let inside = row.end().is_some_and(|end| end <= shard.byte_len);
        inside && row.length >= HEADER_LEN
    })
}

fn shard_of_row(row: IndexRow, manifest: &Manifest) -> Option<&ShardEntry> {
    manifest.shards.get(usize::try_from(row.shard).ok()?)
}

/// What is wrong with a row that does not fit.
#[cold]
fn row_fault(row: IndexRow, manifest: &Manifest) -> Fault {
    let Some(shard) = shard_of_row(row, manifest) else {
        return Fault::new(
            FaultKind::IndexRow,
            format!("a shard number below {}", manifest.shards.len()),
            row.shard.to_string(),
        );
    };
    Fault::new(
        FaultKind::IndexRow,
        format!(
            "a record of at least {HEADER_LEN} bytes inside the {} bytes of shard {}",
            shard.byte_len, row.shard
        ),
        format!("offset {} and length {}", row.offset, row.length),
    )
}
