//! How the records of a cache lie in its shards: which bytes belong to no record, which to two.
//!
//! One pass over the index is enough while the records of each shard come in the order of their
//! offsets, as writers put them. Only the rows of shards that are out of order are sorted, in
//! windows of bounded size, whatever the number of samples.

use std::collections::HashSet;
use std::ops::Range;

use super::finding::{Finding, Kind, Severity, Subject};
use crate::cache::Cache;

/// Samples that are checked as one piece of work.
const SLICE_SAMPLES: u64 = 1 << 12;
/// A piece of work also ends when its records have this many bytes, so that cores stay busy.
const SLICE_BYTES: u64 = 32 << 20;
/// Rows that are sorted at once, 64 MiB of them at most.
const WINDOW: usize = 1 << 20;

/// Consecutive samples that are checked as one piece of work.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Slice {
    /// The shard in which all of them lie; 0 when the samples are not grouped by shard.
    pub(super) shard: usize,
    pub(super) samples: Range<u64>,
}

/// What one pass over the index tells.
#[derive(Debug)]
pub(super) struct Layout {
    /// All samples. Grouped by shard, then by sample, if `grouped`; by sample alone otherwise.
    pub(super) slices: Vec<Slice>,
    /// Whether each slice lies in one shard.
    pub(super) grouped: bool,
    shards: Vec<ShardUse>,
}

impl Layout {
    /// Reads the index of `cache` once.
    pub(super) fn scan(cache: &Cache) -> Self {
        let mut shards = vec![ShardUse::default(); cache.manifest().shards.len()];
        for key in keys(cache) {
            if let Some(shard) = shards.get_mut(key.shard) {
                shard.take(key);
            }
        }
        // An index that jumps between shards is cut by samples alone, else each sample would be a
        // piece of its own.
        let most = shards.len().saturating_mul(4).saturating_add(1024);
        let mut slices = slices(cache, true, Some(most));
        let grouped = slices.is_some();
        if let Some(slices) = &mut slices {
            slices.sort_by_key(|slice| slice.shard);
        }
        Self {
            slices: slices
                .or_else(|| self::slices(cache, false, None))
                .unwrap_or_default(),
            grouped,
            shards,
        }
    }

    /// The warnings of the layout, shard by shard, and then those of files that no shard is.
    pub(super) fn findings(&self, cache: &Cache, subject: Subject<'_>) -> Vec<Finding> {
        self.findings_by(cache, subject, WINDOW)
    }

    fn findings_by(&self, cache: &Cache, subject: Subject<'_>, window: usize) -> Vec<Finding> {
        let mut shards = self.shards.clone();
        let unordered: Vec<bool> = shards.iter().map(|shard| shard.overlaps > 0).collect();
        if unordered.contains(&true) {
            for (shard, _) in shards.iter_mut().zip(&unordered).filter(|(_, bad)| **bad) {
                *shard = ShardUse::default();
            }
            let chosen = |key: &Key| unordered.get(key.shard) == Some(&true);
            in_order(
                || keys(cache).filter(chosen),
                window,
                |key| {
                    if let Some(shard) = shards.get_mut(key.shard) {
                        shard.take(key);
                    }
                },
            );
        }
        let mut findings = Vec::new();
        for (n, shard) in shards.iter().enumerate() {
            shard.report(n, cache, subject, &mut findings);
        }
        unlisted(cache, subject, &mut findings);
        findings
    }
}

/// One row of the index, ordered by where its record lies.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Key {
    shard: usize,
    offset: u64,
    end: u64,
    sample: u64,
}

/// Every sample has a key. Rows that were changed in place since they were checked get one that is
/// in range; the check of their sample finds them.
fn keys(cache: &Cache) -> impl Iterator<Item = Key> + '_ {
    let last_shard = cache.manifest().shards.len().saturating_sub(1);
    let rows = (0_u64..).zip(cache.index().rows());
    rows.map(move |(sample, row)| Key {
        shard: usize::try_from(row.shard).map_or(last_shard, |shard| shard.min(last_shard)),
        offset: row.offset,
        end: row.offset.saturating_add(row.length),
        sample,
    })
}

/// Cuts the samples into slices, each inside one shard if `grouped`. `None` when there would be
/// more than `most` beyond those that size alone asks for.
fn slices(cache: &Cache, grouped: bool, most: Option<usize>) -> Option<Vec<Slice>> {
    let mut slices = Vec::new();
    let mut jumps = 0;
    let mut open: Option<(Slice, u64)> = None;
    for key in keys(cache) {
        let len = key.end - key.offset;
        match &mut open {
            Some((slice, bytes))
                if (slice.shard == key.shard || !grouped)
                    && slice.samples.end == key.sample
                    && slice.samples.end - slice.samples.start < SLICE_SAMPLES
                    && *bytes < SLICE_BYTES =>
            {
                slice.samples.end += 1;
                *bytes = bytes.saturating_add(len);
            }
            _ => {
                let jumped = open.take().map(|(slice, _)| {
                    let jumped = slice.shard != key.shard;
                    slices.push(slice);
                    jumped
                });
                jumps += usize::from(jumped == Some(true));
                if most.is_some_and(|most| jumps > most) {
                    return None;
                }
                let slice = Slice {
                    shard: if grouped { key.shard } else { 0 },
                    samples: key.sample..key.sample + 1,
                };
                open = Some((slice, len));
            }
        }
    }
    slices.extend(open.map(|(slice, _)| slice));
    Some(slices)
}

/// Calls `take` with all keys in ascending order; holds at most twice `window` of them.
fn in_order<I: Iterator<Item = Key>>(
    keys: impl Fn() -> I,
    window: usize,
    mut take: impl FnMut(Key),
) {
    let window = window.max(1);
    let mut done: Option<Key> = None;
    loop {
        let mut kept: Vec<Key> = Vec::new();
        let mut cut: Option<Key> = None;
        for key in keys() {
            let wanted = done.is_none_or(|done| key > done) && cut.is_none_or(|cut| key < cut);
            if !wanted {
                continue;
            }
            kept.push(key);
            if kept.len() >= window.saturating_mul(2) {
                let (_, &mut middle, _) = kept.select_nth_unstable(window);
                cut = Some(middle);
                kept.truncate(window);
            }
        }
        kept.sort_unstable();
        kept.iter().copied().for_each(&mut take);
        done = kept.last().copied().or(done);
        if cut.is_none() {
            return;
        }
    }
}

/// What the records of one shard leave unused and use twice, taken in the order of their offsets.
#[derive(Clone, Debug, Default)]
struct ShardUse {
    records: u64,
    /// The furthest end of a record so far, and that record's sample.
    end: u64,
    last: u64,
    gaps: u64,
    gap_bytes: u64,
    first_gap: Option<u64>,
    /// Records that start before the end of an earlier one.
    overlaps: u64,
    first_overlap: Option<(u64, u64, u64)>,
}

impl ShardUse {
    fn take(&mut self, key: Key) {
        if key.offset > self.end {
            self.gaps += 1;
            self.gap_bytes += key.offset - self.end;
            self.first_gap.get_or_insert(self.end);
        } else if key.offset < self.end {
            self.overlaps += 1;
            self.first_overlap
                .get_or_insert((self.last, key.sample, key.offset));
        }
        self.records += 1;
        if key.end > self.end {
            self.end = key.end;
            self.last = key.sample;
        }
    }

    fn report(&self, n: usize, cache: &Cache, subject: Subject<'_>, to: &mut Vec<Finding>) {
        let Some(shard) = cache.manifest().shards.get(n) else {
            return;
        };
        let mut warn = |kind, offset, expected: &str, found: String| {
            to.push(Finding {
                offset,
                expected: expected.to_owned(),
                found,
                ..subject.finding(Severity::Warning, kind, cache.shard_path(n))
            });
        };
        if self.records == 0 {
            let found = format!("none in {} bytes", shard.byte_len);
            warn(
                Kind::UnreferencedShard,
                None,
                "a row of index.bin that names it",
                found,
            );
            return;
        }
        if let Some((first, second, offset)) = self.first_overlap {
            let found = format!(
                "{} that start inside another, such as sample {second} inside sample {first}",
                self.overlaps
            );
            warn(
                Kind::Overlap,
                Some(offset),
                "records beside one another",
                found,
            );
        }
        let every = "every byte to belong to a record";
        if let Some(offset) = self.first_gap {
            let found = format!("{} bytes unused in {} gaps", self.gap_bytes, self.gaps);
            warn(Kind::UnusedBytes, Some(offset), every, found);
        }
        let tail = shard.byte_len.saturating_sub(self.end);
        if tail > 0 {
            let found = format!("{tail} bytes unused at the end");
            warn(Kind::UnusedBytes, Some(self.end), every, found);
        }
    }
}

/// Warns of each entry of the shards folder that the manifest does not name.
fn unlisted(cache: &Cache, subject: Subject<'_>, to: &mut Vec<Finding>) {
    let paths = match cache.list_shards() {
        Ok(paths) => paths,
        Err(error) => return subject.add(error, None, to),
    };
    let shards = cache.manifest().shards.iter();
    let known: HashSet<&[u8]> = shards.map(|shard| shard.name.as_str().as_bytes()).collect();
    for path in paths {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if !known.contains(name) {
            to.push(Finding {
                expected: "only the shards of the manifest".to_owned(),
                found: "another file".to_owned(),
                ..subject.finding(Severity::Warning, Kind::UnlistedFile, path)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(offset: u64, end: u64, sample: u64) -> Key {
        Key {
            shard: 0,
            offset,
            end,
            sample,
        }
    }

    #[test]
    fn windows_of_any_size_give_every_key_in_order() {
        let scrambled: Vec<Key> = (0..997_u64)
            .map(|n| (n * 389) % 997)
            .map(|n| key(n / 2, n, n))
            .collect();
        let mut sorted = scrambled.clone();
        sorted.sort_unstable();
        for window in [1, 2, 3, 100, 498, 499, 996, 997, 5000] {
            let mut seen = Vec::new();
            in_order(|| scrambled.iter().copied(), window, |key| seen.push(key));
            assert_eq!(seen, sorted, "window {window}");
        }
    }

    #[test]
    fn gaps_and_overlaps_are_counted_with_their_first_place() {
        let mut shard = ShardUse::default();
        for key in [
            key(4, 10, 0),
            key(10, 20, 1),
            key(12, 14, 2),
            key(30, 31, 3),
        ] {
            shard.take(key);
        }
        assert_eq!(
            (shard.gaps, shard.gap_bytes, shard.first_gap),
            (2, 14, Some(0))
        );
        assert_eq!((shard.overlaps, shard.first_overlap), (1, Some((1, 2, 12))));
        assert_eq!((shard.records, shard.end), (4, 31));
    }
}
