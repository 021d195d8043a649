//! What the integration tests share: tiny caches and ways to damage them ([`fixture`]), the golden
//! data ([`golden`]), and reading a whole cache the way a mount does.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "each test binary uses a part of this, and a test may panic"
)]

pub mod arrow_rewrite;
pub mod fixture;
pub mod golden;
pub mod json;
pub mod lz4;
pub mod memory_group;
pub mod mount;
pub mod mutate;
pub mod noise;
pub mod test_cache;

use datasetrt::cache::Cache;
use datasetrt::error::Result;
use datasetrt::format::metadata::Value;
use datasetrt::format::record::Compression;

/// What a cache gives for one sample.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// The decoded payload.
    pub payload: Vec<u8>,
    /// Its metadata in schema order; `None` is a null.
    pub metadata: Vec<Option<Value>>,
}

impl Delivered {
    /// Equal in every byte and in every bit of every float.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        self.payload == other.payload && same_rows(&self.metadata, &other.metadata)
    }
}

/// Equal rows, floats by their bits: NaN equals the same NaN, -0.0 is not 0.0.
#[must_use]
pub fn same_rows(a: &[Option<Value>], b: &[Option<Value>]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|pair| match pair {
            (Some(Value::Float(a)), Some(Value::Float(b))) => a.to_bits() == b.to_bits(),
            (a, b) => a == b,
        })
}

/// Reads one sample in all the ways there are and holds them against each other: the length asked
/// for alone, the length in the record, the payload decoded whole, and pieces of it.
///
/// # Errors
/// What the cache gives.
pub fn deliver(cache: &Cache, sample: u64) -> Result<Delivered> {
    let len = cache.payload_len(sample)?;
    let payload = payload(cache, sample)?;
    assert_eq!(payload.len() as u64, len, "two lengths of sample {sample}");
    let metadata = cache.metadata(sample)?;
    Ok(Delivered { payload, metadata })
}

/// The decoded payload of `sample`, read whole; of an uncompressed one also two pieces, one with
/// and one without reading ahead.
///
/// # Errors
/// What the cache gives.
pub fn payload(cache: &Cache, sample: u64) -> Result<Vec<u8>> {
    let whole = cache.with_record(sample, u64::MAX, |record| {
        let mut out = vec![0; usize::try_from(record.decoded_len()).unwrap()];
        record.decode(&mut out).map(|()| out)
    })??;
    for wanted in [0, 64] {
        cache.with_record(sample, wanted, |record| {
            if record.compression() == Compression::None {
                let mut piece = vec![0; whole.len() / 2];
                record.read(whole.len() as u64 / 3, &mut piece)?;
                assert_eq!(piece, whole[whole.len() / 3..][..piece.len()]);
            }
            Ok::<(), datasetrt::error::Error>(())
        })??;
    }
    Ok(whole)
}

/// [`deliver`] for every sample.
#[must_use]
pub fn deliver_all(cache: &Cache) -> Vec<Result<Delivered>> {
    (0..cache.sample_count())
        .map(|sample| deliver(cache, sample))
        .collect()
}

/// The bytes that pairs of hexadecimal digits stand for.
#[must_use]
pub fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "half a byte in {text:?}");
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}
