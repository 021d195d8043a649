//! The sums of decoded lengths, which the manifest has one of for each shard.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Cache;
use crate::error::{Error, Fault, FaultKind, Result};
use crate::format::record::{
    Compression, HEADER_LEN, LZ4_MAX_EXPANSION, LZ4_PREFIX_LEN, decoded_len, metadata_len,
};
use crate::storage::with_window;

/// Sums of decoded payload lengths, one for each shard, gathered from any number of threads.
#[derive(Debug)]
pub struct DecodedSums(Vec<ShardSum>);

#[derive(Debug, Default)]
struct ShardSum {
    /// Of the payloads whose lengths are known.
    known: AtomicU64,
    /// Of those whose records' headers are damaged, as long as they are likely to have been.
    likely: AtomicU64,
    /// The most that all others can have.
    slack: AtomicU64,
}

/// Of a payload whose length cannot be known.
enum Guess {
    Likely(u64),
    AtMost(u64),
}

impl ShardSum {
    /// Whether the sum can be `decoded_len`, with all damaged headers counted or none.
    fn can_be(&self, decoded_len: u64) -> bool {
        let [known, likely, slack] = self.values();
        [known, known.saturating_add(likely)]
            .iter()
            .any(|least| (*least..=least.saturating_add(slack)).contains(&decoded_len))
    }

    fn values(&self) -> [u64; 3] {
        [&self.known, &self.likely, &self.slack].map(|sum| sum.load(Ordering::Relaxed))
    }
}

/// Saturates, so that a sum can never come back to the right value by wrapping.
fn add(sum: &AtomicU64, len: u64) {
    let more = |sum: u64| Some(sum.saturating_add(len));
    let _ = sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
}

impl DecodedSums {
    /// Nothing summed yet.
    #[must_use]
    pub fn new(cache: &Cache) -> Self {
        let shards = cache.manifest.shards.iter();
        Self(shards.map(|_| ShardSum::default()).collect())
    }

    /// Adds the payload of one sample, or `None` when its length cannot be known.
    ///
    /// # Errors
    /// [`Error::NoSuchSample`], or [`Error::Damaged`] when the index was changed in place.
    pub fn add(&self, cache: &Cache, sample: u64, decoded_len: Option<u64>) -> Result<()> {
        let (_, shard) = cache.row(sample)?;
        if let Some(sum) = self.0.get(shard) {
            match decoded_len {
                Some(len) => add(&sum.known, len),
                None => match cache.guess_len(sample)? {
                    Guess::Likely(len) => add(&sum.likely, len),
                    Guess::AtMost(len) => add(&sum.slack, len),
                },
            }
        }
        Ok(())
    }

    /// Adds the payloads of `samples`, whose lengths are read from their records' headers.
    ///
    /// # Errors
    /// As [`DecodedSums::add`].
    pub fn add_headers(&self, cache: &Cache, samples: Range<u64>) -> Result<()> {
        with_window(|| {
            for sample in samples {
                self.add(cache, sample, cache.payload_len(sample).ok())?;
            }
            Ok(())
        })
    }

    /// Compares with the manifest, once all samples were added.
    ///
    /// # Errors
    /// [`FaultKind::DecodedSum`] for the first shard that differs.
    pub fn compare(&self, cache: &Cache) -> Result<()> {
        self.mismatches(cache).next().map_or(Ok(()), Err)
    }

    /// A [`FaultKind::DecodedSum`] for each shard that differs, once all samples were added.
    pub fn mismatches<'a>(&'a self, cache: &'a Cache) -> impl Iterator<Item = Error> + 'a {
        let shards = self.0.iter().zip(&cache.manifest.shards).enumerate();
        shards.filter_map(|(n, (sum, shard))| {
            if sum.can_be(shard.decoded_len) {
                return None;
            }
            let [known, likely, slack] = sum.values();
            let found = match known.saturating_add(likely).saturating_add(slack) {
                most if most == known => most.to_string(),
                most => format!("{known} to {most}"),
            };
            let fault = Fault::new(
                FaultKind::DecodedSum,
                format!("{} bytes (uncompressed_byte_len)", shard.decoded_len),
                format!("{found} bytes, decoded as {}", shard.compression.name()),
            );
            Some(fault.in_file(&cache.shards.path(n)))
        })
    }
}

impl Cache {
    /// What there is to say of the length of a payload for which [`Cache::payload_len`] fails. Where
    /// the record's header is damaged, the payload is likely to start after the usual spelling of its
    /// metadata.
    #[cold]
    fn guess_len(&self, sample: u64) -> Result<Guess> {
        let (row, shard) = self.row(sample)?;
        let most = row.length.saturating_sub(HEADER_LEN);
        let most = match self.compression(sample)? {
            Compression::None => most,
            Compression::Lz4 => most.saturating_mul(LZ4_MAX_EXPANSION),
        };
        let header_is_damaged = || {
            let mut header = [0; 8];
            let file = self.shards.get(shard).ok()?;
            self.read_at(shard, &file, &mut header, row.offset).ok()?;
            metadata_len(header, row.length).is_err().then_some(file)
        };
        let mut usual = Vec::new();
        let (Some(file), Ok(())) = (
            header_is_damaged(),
            self.write_metadata_json(sample, &mut usual),
        ) else {
            return Ok(Guess::AtMost(most));
        };
        let payload_at = HEADER_LEN.saturating_add(usual.len() as u64);
        let stored_len = row.length.saturating_sub(payload_at);
        let Some(entry) = self.manifest.shards.get(shard) else {
            return Ok(Guess::AtMost(most));
        };
        let mut prefix = [0; 4];
        let offset = row.offset.saturating_add(payload_at);
        if entry.compression == Compression::Lz4
            && stored_len >= LZ4_PREFIX_LEN
            && self.read_at(shard, &file, &mut prefix, offset).is_err()
        {
            return Ok(Guess::AtMost(most));
        }
        let len = decoded_len(entry.compression, &prefix, stored_len, entry.decoded_len);
        Ok(len.map_or(Guess::AtMost(most), Guess::Likely))
    }
}
