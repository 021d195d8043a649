//! From payload and metadata to a record, without any file: this half of writing runs on as many
//! threads as one likes, each with its own [`Encoder`].

use std::fmt;
use std::sync::Arc;

use crate::format::envelope::Envelope;
use crate::format::metadata::{Field, Value};
use crate::format::record::{Compression, RecordEncoder, put_envelope};

/// Why a sample cannot be stored: the field, when it is about one, and the reason.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// The metadata field.
    pub field: Option<String>,
    /// What is wrong with it.
    pub reason: String,
}

impl Refusal {
    pub(super) fn field(name: &str, reason: impl Into<String>) -> Self {
        Self {
            field: Some(name.to_owned()),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(field) = &self.field {
            write!(f, "field {field:?}: ")?;
        }
        f.write_str(&self.reason)
    }
}

/// Lengths of one encoded record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    /// The whole record, in bytes.
    pub(super) record: usize,
    /// Its decoded payload, in bytes.
    pub(super) payload: usize,
}

/// Encoded samples, in order, ready for `CacheWriter::append`.
#[derive(Debug, Default)]
pub struct EncodedBatch {
    /// The records, one after another.
    pub(super) bytes: Vec<u8>,
    pub(super) lengths: Vec<Lengths>,
    /// The metadata, row by row, in schema order.
    pub(super) values: Vec<Value>,
}

impl EncodedBatch {
    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Bytes of all records.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Makes records for one cache.
#[derive(Debug)]
pub struct Encoder {
    fields: Arc<[Field]>,
    envelope: Arc<Envelope>,
    compression: Compression,
    json: Vec<u8>,
    record: RecordEncoder,
}

impl Clone for Encoder {
    fn clone(&self) -> Self {
        Self {
            fields: Arc::clone(&self.fields),
            envelope: Arc::clone(&self.envelope),
            compression: self.compression,
            json: Vec::new(),
            record: RecordEncoder::default(),
        }
    }
}

impl Encoder {
    /// For `fields`, already in schema order.
    pub(super) fn new(fields: Vec<Field>, compression: Compression) -> Self {
        Self {
            envelope: Arc::new(Envelope::new(&fields)),
            fields: fields.into(),
            compression,
            json: Vec::new(),
            record: RecordEncoder::default(),
        }
    }

    /// The fields, in schema order.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Whether a payload of `len` bytes can be stored, so that it need not be read to find out.
    ///
    /// # Errors
    /// A [`Refusal`] for an lz4 payload of 4 GiB or more.
    pub fn check_len(&self, len: u64) -> Result<(), Refusal> {
        if self.compression == Compression::None || u32::try_from(len).is_ok() {
            return Ok(());
        }
        Err(Refusal {
            field: None,
            reason: format!(
                "expected an lz4 payload below 4 GiB, found {len} bytes (uncompressed caches have \
                 no such limit)"
            ),
        })
    }

    /// Appends a sample with the metadata `values` (in schema order) to `batch`, which is left as
    /// it was on an error.
    ///
    /// # Errors
    /// A [`Refusal`] for a missing, further or wrong-kind value, a float that is not finite, and an
    /// lz4 payload of 4 GiB or more.
    pub fn encode(
        &mut self,
        payload: &[u8],
        values: Vec<Value>,
        batch: &mut EncodedBatch,
    ) -> Result<(), Refusal> {
        self.check(&values)?;
        self.json.clear();
        self.envelope
            .write(values.iter().map(Value::borrowed), &mut self.json);
        let start = batch.bytes.len();
        self.record
            .append(&self.json, payload, self.compression, &mut batch.bytes)
            .map_err(|fault| Refusal {
                field: None,
                reason: format!("expected {}, found {}", fault.expected, fault.found),
            })?;
        batch.lengths.push(Lengths {
            record: batch.bytes.len() - start,
            payload: payload.len(),
        });
        batch.values.extend(values);
        Ok(())
    }

    /// Whether payloads are stored as they are, so that a long one need not be in memory.
    pub(super) fn stores_plainly(&self) -> bool {
        self.compression == Compression::None
    }

    /// What makes its records.
    pub(super) fn record(&mut self) -> &mut RecordEncoder {
        &mut self.record
    }

    /// What stands before the payload of a sample with these metadata.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub(super) fn head(&self, values: &[Value]) -> Result<Vec<u8>, Refusal> {
        self.check(values)?;
        let mut json = Vec::new();
        self.envelope
            .write(values.iter().map(Value::borrowed), &mut json);
        let mut head = Vec::new();
        put_envelope(&json, &mut head);
        Ok(head)
    }

    fn check(&self, values: &[Value]) -> Result<(), Refusal> {
        if values.len() > self.fields.len() {
            return Err(Refusal {
                field: None,
                reason: format!(
                    "expected {} metadata values, found {}",
                    self.fields.len(),
                    values.len()
                ),
            });
        }
        for (n, field) in self.fields.iter().enumerate() {
            match values.get(n) {
                None => return Err(Refusal::field(&field.name, "no value")),
                Some(value) if value.kind() != field.kind => {
                    return Err(Refusal::field(
                        &field.name,
                        format!(
                            "expected a value of type {}, found {}",
                            field.kind.name(),
                            value.kind().name()
                        ),
                    ));
                }
                Some(Value::Float(value)) if !value.is_finite() => {
                    return Err(Refusal::field(
                        &field.name,
                        format!(
                            "{value} is not a finite number, and the format's JSON has no spelling for it"
                        ),
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::manifest::FieldKind;

    fn encoder(compression: Compression) -> Encoder {
        let field = |name: &str, kind| Field {
            name: name.to_owned(),
            kind,
        };
        Encoder::new(
            vec![field("a", FieldKind::Int), field("b", FieldKind::Float)],
            compression,
        )
    }

    #[test]
    fn a_refused_sample_leaves_the_batch_as_it_was() {
        let mut encoder = encoder(Compression::None);
        let mut batch = EncodedBatch::default();
        let good = vec![Value::Int(1), Value::Float(0.5)];
        encoder.encode(b"x", good, &mut batch).unwrap();
        let len = batch.byte_len();
        for (bad, field) in [
            (vec![Value::Int(1)], Some("b")),
            (vec![], Some("a")),
            (vec![Value::Float(1.0), Value::Float(1.0)], Some("a")),
            (vec![Value::Int(1), Value::Float(f64::NAN)], Some("b")),
            (vec![Value::Int(1), Value::Float(-f64::INFINITY)], Some("b")),
            (vec![Value::Int(1), Value::Float(1.0), Value::Int(2)], None),
        ] {
            let refusal = encoder.encode(b"y", bad, &mut batch).unwrap_err();
            assert_eq!(refusal.field.as_deref(), field);
            assert_eq!(
                (batch.len(), batch.byte_len(), batch.values.len()),
                (1, len, 2)
            );
        }
    }
}
