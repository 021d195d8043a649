//! Reading a whole cache the way a mount does.

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
