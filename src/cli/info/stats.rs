//! What the samples of a cache are like: their sizes and the values of their fields, gathered on all
//! cores in memory that does not grow with the samples.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::cache::Cache;
use crate::error::Result;
use crate::format::metadata::{FieldKind, ValueRef};
use crate::parallel::in_parallel;
use crate::storage::with_window;

/// Distinct values of one field that are counted; a field with more is not counted by value.
pub(super) const MOST_DISTINCT: usize = 1 << 16;
/// Bytes that the distinct texts of one field may have together.
const MOST_TEXT: usize = 8 << 20;
/// Most frequent values that are kept.
const TOP: usize = 30;
/// Pieces that the samples are cut into, so that cores stay busy. The number does not depend on the
/// cores, so that sums of floats do not either.
const PIECES: u64 = 256;
/// Fewest samples of a piece.
const PIECE_SAMPLES: u64 = 4096;
/// One bin for zero and one for each power of two.
pub(super) const BINS: usize = 65;

/// Sizes of decoded payloads, in bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Sizes {
    /// Bin 0 counts empty payloads, bin n those of at least 2^(n-1) and less than 2^n bytes.
    pub(super) bins: [u64; BINS],
    pub(super) smallest: Option<u64>,
    pub(super) largest: Option<u64>,
    pub(super) sum: u128,
    pub(super) known: u64,
    /// Samples whose size cannot be known.
    pub(super) damaged: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            bins: [0; BINS],
            smallest: None,
            largest: None,
            sum: 0,
            known: 0,
            damaged: 0,
        }
    }
}

impl Sizes {
    fn take(&mut self, size: Result<u64>) {
        let Ok(size) = size else {
            self.damaged += 1;
            return;
        };
        let bin = usize::try_from(u64::BITS - size.leading_zeros()).unwrap_or(0);
        if let Some(count) = self.bins.get_mut(bin) {
            *count += 1;
        }
        self.smallest = Some(self.smallest.map_or(size, |least| least.min(size)));
        self.largest = Some(self.largest.map_or(size, |most| most.max(size)));
        self.sum += u128::from(size);
        self.known += 1;
    }

    fn merge(&mut self, other: &Self) {
        for (count, more) in self.bins.iter_mut().zip(&other.bins) {
            *count += more;
        }
        self.smallest = self.smallest.into_iter().chain(other.smallest).min();
        self.largest = self.largest.into_iter().chain(other.largest).max();
        self.sum += other.sum;
        self.known += other.known;
        self.damaged += other.damaged;
    }

    /// Mean in bytes, when any size is known.
    pub(super) fn mean(&self) -> Option<f64> {
        // A mean is shown with a few digits.
        #[allow(clippy::cast_precision_loss)]
        (self.known > 0).then(|| self.sum as f64 / self.known as f64)
    }
}

/// Smallest, largest and mean of a field's numbers, and what is no number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Numbers {
    /// Of the finite values; for integers as far as a float can tell them apart.
    pub(super) least: Option<f64>,
    pub(super) most: Option<f64>,
    sum: f64,
    /// Exact least and most of integers.
    pub(super) least_int: Option<i64>,
    pub(super) most_int: Option<i64>,
    sum_int: i128,
    count: u64,
    pub(super) nan: u64,
    pub(super) infinite: u64,
}

impl Numbers {
    fn int(&mut self, value: i64) {
        self.least_int = Some(self.least_int.map_or(value, |least| least.min(value)));
        self.most_int = Some(self.most_int.map_or(value, |most| most.max(value)));
        self.sum_int += i128::from(value);
        self.count += 1;
    }

    fn float(&mut self, value: f64) {
        if value.is_nan() {
            self.nan += 1;
        } else if value.is_infinite() {
            self.infinite += 1;
        } else {
            self.least = Some(self.least.map_or(value, |least| least.min(value)));
            self.most = Some(self.most.map_or(value, |most| most.max(value)));
            self.sum += value;
            self.count += 1;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.least = self.least.into_iter().chain(other.least).reduce(f64::min);
        self.most = self.most.into_iter().chain(other.most).reduce(f64::max);
        self.sum += other.sum;
        self.least_int = self.least_int.into_iter().chain(other.least_int).min();
        self.most_int = self.most_int.into_iter().chain(other.most_int).max();
        self.sum_int += other.sum_int;
        self.count += other.count;
        self.nan += other.nan;
        self.infinite += other.infinite;
    }

    /// Mean of the finite values, when there are any.
    pub(super) fn mean(&self) -> Option<f64> {
        // A mean is shown with a few digits.
        #[allow(clippy::cast_precision_loss)]
        (self.count > 0).then(|| (self.sum + self.sum_int as f64) / self.count as f64)
    }
}

/// How often each value of a field occurs; gives up when there are too many.
#[derive(Clone, Debug)]
struct Counts<K> {
    of: HashMap<K, u64>,
    text: usize,
    over: bool,
}

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self {
            of: HashMap::new(),
            text: 0,
            over: false,
        }
    }
}

impl<K: Eq + Hash> Counts<K> {
    fn add<Q>(&mut self, value: &Q, count: u64, text: usize)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned + ?Sized,
        Q::Owned: Into<K>,
    {
        if self.over {
            return;
        }
        if let Some(seen) = self.of.get_mut(value) {
            *seen += count;
            return;
        }
        self.text = self.text.saturating_add(text);
        if self.of.len() >= MOST_DISTINCT || self.text > MOST_TEXT {
            self.give_up();
            return;
        }
        self.of.insert(value.to_owned().into(), count);
    }

    fn give_up(&mut self) {
        self.of = HashMap::new();
        self.over = true;
    }

    fn distinct(&self) -> Distinct {
        match self.over {
            true => Distinct::TooMany,
            false => Distinct::Exactly(self.of.len()),
        }
    }

    /// The most frequent values, most frequent first, equally frequent ones in order.
    fn top<T: Ord>(&self, value: impl Fn(&K) -> T, text: impl Fn(T) -> String) -> Vec<Frequent> {
        let mut all: Vec<(u64, T)> = self.of.iter().map(|(k, &n)| (n, value(k))).collect();
        all.sort_unstable_by(|(a, x), (b, y)| b.cmp(a).then_with(|| x.cmp(y)));
        all.truncate(TOP);
        all.into_iter()
            .map(|(count, value)| Frequent {
                value: text(value),
                count,
            })
            .collect()
    }
}

/// A value and how often it occurs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Frequent {
    pub(super) value: String,
    pub(super) count: u64,
}

/// How many distinct values there are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Distinct {
    Exactly(usize),
    /// More than are counted.
    TooMany,
    /// Nobody counts the values of this kind.
    NotCounted,
}

/// What is known of the values of one field.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FieldStats {
    pub(super) nulls: u64,
    pub(super) numbers: Numbers,
    pub(super) distinct: Distinct,
    pub(super) top: Vec<Frequent>,
}

/// Values of one field that many threads count together.
#[derive(Debug)]
enum Shared {
    Bool(Mutex<Counts<bool>>),
    Int(Mutex<Counts<i64>>),
    String(Mutex<Counts<Box<str>>>),
    Float,
}

/// Values of one field in one piece.
enum Local {
    Bool(Counts<bool>),
    Int(Counts<i64>),
    String(Counts<Box<str>>),
    Float,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn new(kind: FieldKind) -> Self {
        match kind {
            FieldKind::Bool => Self::Bool(Mutex::default()),
            FieldKind::Int => Self::Int(Mutex::default()),
            FieldKind::String => Self::String(Mutex::default()),
            FieldKind::Float => Self::Float,
        }
    }

    /// An empty count, which gives up at once when the shared one has.
    fn local(&self) -> Local {
        fn like<K>(shared: &Mutex<Counts<K>>) -> Counts<K> {
            Counts {
                over: locked(shared).over,
                ..Counts::default()
            }
        }
        match self {
            Self::Bool(shared) => Local::Bool(like(shared)),
            Self::Int(shared) => Local::Int(like(shared)),
            Self::String(shared) => Local::String(like(shared)),
            Self::Float => Local::Float,
        }
    }

    fn merge(&self, local: Local) {
        fn all<K, Q>(shared: &Mutex<Counts<K>>, local: &Counts<K>, text: impl Fn(&Q) -> usize)
        where
            K: Borrow<Q> + Eq + Hash,
            Q: Eq + Hash + ToOwned + ?Sized,
            Q::Owned: Into<K>,
        {
            let mut shared = locked(shared);
            if local.over {
                shared.give_up();
            }
            for (value, &count) in &local.of {
                let value = value.borrow();
                shared.add(value, count, text(value));
            }
        }
        match (self, local) {
            (Self::Bool(shared), Local::Bool(local)) => all(shared, &local, |_: &bool| 0),
            (Self::Int(shared), Local::Int(local)) => all(shared, &local, |_: &i64| 0),
            (Self::String(shared), Local::String(local)) => all(shared, &local, str::len),
            _ => {}
        }
    }

    fn finish(&self, numbers: Numbers, nulls: u64) -> FieldStats {
        let (distinct, top) = match self {
            Self::Bool(counts) => {
                let counts = locked(counts);
                (counts.distinct(), counts.top(|&k| k, |k| k.to_string()))
            }
            Self::Int(counts) => {
                let counts = locked(counts);
                (counts.distinct(), counts.top(|&k| k, |k| k.to_string()))
            }
            Self::String(counts) => {
                let counts = locked(counts);
                (counts.distinct(), counts.top(Clone::clone, String::from))
            }
            Self::Float => (Distinct::NotCounted, Vec::new()),
        };
        FieldStats {
            nulls,
            numbers,
            distinct,
            top,
        }
    }
}

/// What one pass over the samples of a cache tells.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stats {
    pub(super) sizes: Sizes,
    /// In the order of the schema.
    pub(super) fields: Vec<FieldStats>,
}

impl Stats {
    /// Reads the header of each record and each row of `metadata.arrow`.
    ///
    /// # Errors
    /// [`crate::error::Error::Damaged`] when a file was changed in place meanwhile.
    pub(super) fn gather(cache: &Cache) -> Result<Self> {
        let kinds = cache.manifest().schema.iter().map(|field| field.kind);
        let shared: Vec<Shared> = kinds.map(Shared::new).collect();
        let count = cache.sample_count();
        let piece = count.div_ceil(PIECES).max(PIECE_SAMPLES);
        let pieces = usize::try_from(count.div_ceil(piece)).unwrap_or(0);
        let parts = in_parallel(pieces, |n| {
            let start = n as u64 * piece;
            with_window(|| part(cache, start..count.min(start + piece), &shared))
        });
        let mut sizes = Sizes::default();
        let mut numbers = vec![(Numbers::default(), 0); shared.len()];
        for part in parts {
            let (more, columns) = part?;
            sizes.merge(&more);
            for ((sum, nulls), (more, more_nulls)) in numbers.iter_mut().zip(&columns) {
                sum.merge(more);
                *nulls += more_nulls;
            }
        }
        let fields = shared.iter().zip(numbers);
        Ok(Self {
            sizes,
            fields: fields
                .map(|(shared, (numbers, nulls))| shared.finish(numbers, nulls))
                .collect(),
        })
    }
}

/// Sizes, and for each field its numbers and nulls.
type Part = (Sizes, Vec<(Numbers, u64)>);

fn part(cache: &Cache, samples: Range<u64>, shared: &[Shared]) -> Result<Part> {
    let mut sizes = Sizes::default();
    let mut columns: Vec<(Local, Numbers, u64)> = shared
        .iter()
        .map(|shared| (shared.local(), Numbers::default(), 0))
        .collect();
    for sample in samples {
        sizes.take(cache.payload_len(sample));
        cache.for_each_value(sample, |n, value| {
            if let Some((counts, numbers, nulls)) = columns.get_mut(n) {
                take(value, counts, numbers, nulls);
            }
        })?;
    }
    let mut numbers = Vec::with_capacity(columns.len());
    for ((local, column, nulls), shared) in columns.into_iter().zip(shared) {
        shared.merge(local);
        numbers.push((column, nulls));
    }
    Ok((sizes, numbers))
}

fn take(value: Option<ValueRef<'_>>, counts: &mut Local, numbers: &mut Numbers, nulls: &mut u64) {
    match (value, counts) {
        (None, _) => *nulls += 1,
        (Some(ValueRef::Bool(value)), Local::Bool(counts)) => counts.add(&value, 1, 0),
        (Some(ValueRef::Int(value)), Local::Int(counts)) => {
            counts.add(&value, 1, 0);
            numbers.int(value);
        }
        (Some(ValueRef::String(value)), Local::String(counts)) => {
            counts.add(value, 1, value.len());
        }
        (Some(ValueRef::Float(value)), _) => numbers.float(value),
        // A column has values of its kind only.
        (Some(_), _) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fall_into_bins_by_powers_of_two() {
        let mut sizes = Sizes::default();
        for size in [0, 1, 2, 3, 4, u64::MAX] {
            sizes.take(Ok(size));
        }
        let mut expected = [0; BINS];
        (
            expected[0],
            expected[1],
            expected[2],
            expected[3],
            expected[64],
        ) = (1, 1, 2, 1, 1);
        assert_eq!(sizes.bins, expected);
        assert_eq!((sizes.smallest, sizes.largest), (Some(0), Some(u64::MAX)));
    }

    #[test]
    fn counting_gives_up_at_too_many_values_or_too_much_text() {
        let mut counts = Counts::<i64>::default();
        for value in 0..MOST_DISTINCT as i64 {
            counts.add(&value, 1, 0);
        }
        assert_eq!(counts.distinct(), Distinct::Exactly(MOST_DISTINCT));
        counts.add(&-1, 1, 0);
        assert_eq!(counts.distinct(), Distinct::TooMany);

        let mut counts = Counts::<Box<str>>::default();
        counts.add("seldom", 1, 6);
        counts.add("also", 1, 4);
        counts.add("often", 2, 5);
        let top = counts.top(Clone::clone, String::from);
        let values: Vec<_> = top.iter().map(|top| top.value.as_str()).collect();
        assert_eq!(values, ["often", "also", "seldom"]);
        let long = "x".repeat(MOST_TEXT);
        counts.add(long.as_str(), 1, long.len());
        assert_eq!(counts.distinct(), Distinct::TooMany);
    }
}
