//! The JSON copy of a sample's metadata inside its record (docs/format.md, "The envelope").
//!
//! Comparison is by bytes against the spelling that writers use; only an envelope spelled otherwise
//! is parsed. Both ways compare exactly: floats by bits (but -0.0 equals 0.0), kinds by JSON token.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};

use super::metadata::{Field, Row, Table, ValueRef};
use crate::error::{Fault, FaultKind};

/// An envelope may be this many times as long as its usual spelling (escapes such as `\u0061` take
/// six bytes for one) plus [`SLACK`].
const MAX_STRETCH: u64 = 8;
/// Bytes that any envelope may have for white space.
const SLACK: u64 = 64 << 10;

/// By how much another spelling of a number or truth value may be shorter than the usual one.
const NUMBER_LEN: usize = 32;

/// Writes and compares the envelopes of one schema.
#[derive(Clone, Debug)]
pub struct Envelope {
    fields: Vec<Field>,
    /// `"name":` of each field, escaped, after `{` or `,`.
    keys: Vec<Vec<u8>>,
    /// The column of each name.
    columns: HashMap<String, usize>,
}

impl Envelope {
    /// For the fields of `schema`, in its order.
    #[must_use]
    pub fn new(schema: &[Field]) -> Self {
        let keys = schema
            .iter()
            .enumerate()
            .map(|(n, field)| {
                let mut key = vec![if n == 0 { b'{' } else { b',' }];
                write_json(&mut key, &field.name);
                key.push(b':');
                key
            })
            .collect();
        let columns = schema.iter().enumerate();
        Self {
            columns: columns.map(|(n, field)| (field.name.clone(), n)).collect(),
            fields: schema.to_vec(),
            keys,
        }
    }

    /// Appends the usual spelling of a row of values to `out`: keys in schema order, no spaces,
    /// shortest floats that round-trip, `null` for floats that are not finite.
    pub fn write<'v>(&self, values: impl IntoIterator<Item = ValueRef<'v>>, out: &mut Vec<u8>) {
        if self.keys.is_empty() {
            out.push(b'{');
        }
        for (key, value) in self.keys.iter().zip(values) {
            out.extend_from_slice(key);
            write_value(value, out);
        }
        out.push(b'}');
    }

    /// Puts the usual spelling of `sample`'s row into `out`, which is cleared first.
    ///
    /// # Errors
    /// [`FaultKind::Envelope`] for a null; [`FaultKind::Table`] when there is no such row.
    pub fn write_row(&self, table: &Table, sample: u64, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.write_row_within(table, sample, u64::MAX, out)
            .map_err(|error| match error {
                RowError::Fault(fault) => fault,
                RowError::TooLong | RowError::NoMemory => {
                    mismatch("a row that memory suffices for", "a longer one")
                }
            })
    }

    /// [`Envelope::write_row`] of a row whose envelope, in whatever spelling, has at most `most` bytes.
    /// No more memory is taken than such a row may need, whatever the table says.
    ///
    /// # Errors
    /// As there, and the others of [`RowError`].
    pub fn write_row_within(
        &self,
        table: &Table,
        sample: u64,
        most: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), RowError> {
        out.clear();
        let row = row_of(table, sample)?;
        let slack = self.keys.len().saturating_mul(NUMBER_LEN);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut out = Bounded {
            out,
            most: most.saturating_add(slack),
            refused: None,
        };
        let written = self.write_values(&row, &mut out);
        match (out.refused, written) {
            (Some(refused), _) => Err(refused),
            (None, Ok(written)) => Ok(written?),
            // Writing a scalar fails for no other reason.
            (None, Err(_)) => Err(RowError::TooLong),
        }
    }

    fn write_values(&self, row: &Row<'_>, out: &mut Bounded<'_>) -> io::Result<Result<(), Fault>> {
        if self.keys.is_empty() {
            out.write_all(b"{")?;
        }
        for (n, (key, field)) in self.keys.iter().zip(&self.fields).enumerate() {
            out.write_all(key)?;
            match stored(row, n, field) {
                Ok(ValueRef::String(text)) => {
                    out.check_room(text.len())?;
                    serde_json::to_writer(&mut *out, text)?;
                }
                Ok(ValueRef::Bool(value)) => serde_json::to_writer(&mut *out, &value)?,
                Ok(ValueRef::Int(value)) => serde_json::to_writer(&mut *out, &value)?,
                Ok(ValueRef::Float(value)) => serde_json::to_writer(&mut *out, &value)?,
                Err(fault) => return Ok(Err(fault)),
            }
        }
        out.write_all(b"}")?;
        Ok(Ok(()))
    }

    /// Whether an envelope of `len` bytes can belong to a row whose usual spelling is `usual`.
    ///
    /// # Errors
    /// [`FaultKind::Envelope`] for a length that no spelling of the row needs; nothing may be
    /// allocated by such a length.
    pub fn check_len(&self, len: u64, usual: &[u8]) -> Result<(), Fault> {
        let most = (usual.len() as u64)
            .saturating_mul(MAX_STRETCH)
            .saturating_add(SLACK);
        if len <= most {
            return Ok(());
        }
        Err(mismatch(
            format!("at most {most} bytes of JSON"),
            format!("{len} bytes"),
        ))
    }

    /// Whether `json` is a JSON object and nothing else, whatever it says.
    #[must_use]
    pub fn is_object(json: &[u8]) -> bool {
        serde_json::from_slice::<&serde_json::value::RawValue>(json)
            .is_ok_and(|value| value.get().starts_with('{'))
    }

    /// Whether `json` says what `sample`'s row says, in whatever spelling.
    ///
    /// # Errors
    /// [`FaultKind::Envelope`] naming the first difference.
    pub fn compare(&self, json: &[u8], table: &Table, sample: u64) -> Result<(), Fault> {
        let comparison = Comparison {
            fields: &self.fields,
            columns: &self.columns,
            row: row_of(table, sample)?,
        };
        let mut parser = serde_json::Deserializer::from_slice(json);
        parser
            .deserialize_map(comparison)
            .and_then(|()| parser.end())
            .map_err(|error| mismatch("the row of metadata.arrow", error.to_string()))
    }
}

/// Why there is no spelling of a row.
#[derive(Debug)]
pub enum RowError {
    /// A null, or no such row.
    Fault(Fault),
    /// No spelling of it is as short as it should be.
    TooLong,
    /// There is no memory for it.
    NoMemory,
}

impl From<Fault> for RowError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// A text that does not grow beyond a bound.
struct Bounded<'a> {
    out: &'a mut Vec<u8>,
    most: usize,
    refused: Option<RowError>,
}

impl Bounded<'_> {
    /// Refuses `len` more bytes that do not fit, before any of them is looked at.
    fn check_room(&mut self, len: usize) -> io::Result<()> {
        if len > self.most.saturating_sub(self.out.len()) {
            self.refused = Some(RowError::TooLong);
            return Err(io::ErrorKind::WriteZero.into());
        }
        if self.out.try_reserve(len).is_err() {
            self.refused = Some(RowError::NoMemory);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(())
    }
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check_room(bytes.len())?;
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_value(value: ValueRef<'_>, out: &mut Vec<u8>) {
    match value {
        ValueRef::Bool(value) => write_json(out, &value),
        ValueRef::Int(value) => write_json(out, &value),
        ValueRef::Float(value) => write_json(out, &value),
        ValueRef::String(value) => write_json(out, value),
    }
}

fn write_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Writing a scalar into memory does not fail.
    let _ = serde_json::to_writer(out, value);
}

fn mismatch(expected: impl Into<String>, found: impl Into<String>) -> Fault {
    Fault::new(FaultKind::Envelope, expected, found)
}

fn row_of(table: &Table, sample: u64) -> Result<Row<'_>, Fault> {
    table.row(sample).ok_or_else(|| {
        Fault::new(
            FaultKind::Table,
            format!("a row {sample}"),
            format!("{} rows", table.rows().unwrap_or(0)),
        )
    })
}

fn stored<'a>(row: &Row<'a>, column: usize, field: &Field) -> Result<ValueRef<'a>, Fault> {
    row.value(column)?
        .ok_or_else(|| mismatch(format!("a value of field {:?}", field.name), "a null"))
}

struct Comparison<'a> {
    fields: &'a [Field],
    columns: &'a HashMap<String, usize>,
    row: Row<'a>,
}

impl<'de> Visitor<'de> for Comparison<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = vec![false; self.fields.len()];
        // Keys mostly come in schema order.
        let mut next = 0;
        while let Some(column) = map.next_key_seed(KeyOf {
            columns: self.columns,
            next: self
                .fields
                .get(next)
                .map(|field| (field.name.as_str(), next)),
        })? {
            next = column + 1;
            let (Some(field), Some(seen)) = (self.fields.get(column), seen.get_mut(column)) else {
                return Err(A::Error::custom("unknown key"));
            };
            if std::mem::replace(seen, true) {
                return Err(A::Error::custom(format!("key {:?} twice", field.name)));
            }
            let expected = stored(&self.row, column, field)
                .map_err(|fault| A::Error::custom(fault.to_string()))?;
            map.next_value_seed(ValueIs { field, expected })?;
        }
        match seen.iter().position(|seen| !seen) {
            None => Ok(()),
            Some(column) => Err(A::Error::custom(format!(
                "no key {:?}",
                self.fields.get(column).map_or("", |field| &field.name)
            ))),
        }
    }
}

/// Finds the column that a key names.
struct KeyOf<'a> {
    columns: &'a HashMap<String, usize>,
    /// The likely one.
    next: Option<(&'a str, usize)>,
}

impl<'de> DeserializeSeed<'de> for KeyOf<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyOf<'_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a metadata field's name")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<usize, E> {
        match self.next {
            Some((name, column)) if name == key => Ok(column),
            _ => {
                let column = self.columns.get(key).copied();
                column.ok_or_else(|| E::custom(format!("unknown key {key:?}")))
            }
        }
    }
}

/// Succeeds on exactly one value.
struct ValueIs<'a> {
    field: &'a Field,
    expected: ValueRef<'a>,
}

impl ValueIs<'_> {
    fn verdict<E: serde::de::Error>(&self, same: bool, found: impl fmt::Display) -> Result<(), E> {
        if same {
            return Ok(());
        }
        Err(E::custom(format!(
            "field {:?}: {found} where metadata.arrow has {}",
            self.field.name,
            Shown(self.expected)
        )))
    }
}

impl<'de> DeserializeSeed<'de> for ValueIs<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for ValueIs<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a {} in field {:?}",
            self.field.kind.name(),
            self.field.name
        )
    }

    fn visit_bool<E: serde::de::Error>(self, found: bool) -> Result<(), E> {
        self.verdict(self.expected == ValueRef::Bool(found), found)
    }

    fn visit_i64<E: serde::de::Error>(self, found: i64) -> Result<(), E> {
        self.verdict(self.expected == ValueRef::Int(found), found)
    }

    fn visit_u64<E: serde::de::Error>(self, found: u64) -> Result<(), E> {
        let same = i64::try_from(found).is_ok_and(|found| self.expected == ValueRef::Int(found));
        self.verdict(same, found)
    }

    fn visit_f64<E: serde::de::Error>(self, found: f64) -> Result<(), E> {
        let same = matches!(self.expected, ValueRef::Float(expected)
            if expected.to_bits() == found.to_bits() || (expected == 0.0 && found == 0.0));
        self.verdict(same, format_args!("{found:?}"))
    }

    fn visit_str<E: serde::de::Error>(self, found: &str) -> Result<(), E> {
        self.verdict(
            self.expected == ValueRef::String(found),
            Shown(ValueRef::String(found)),
        )
    }

    /// What JSON writers make of a float that is not finite.
    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        let same = matches!(self.expected, ValueRef::Float(expected) if !expected.is_finite());
        self.verdict(same, "null")
    }
}

/// A value in a message, cut when it is long.
struct Shown<'a>(ValueRef<'a>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ValueRef::Bool(value) => write!(f, "{value}"),
            ValueRef::Int(value) => write!(f, "{value}"),
            ValueRef::Float(value) => write!(f, "{value:?}"),
            ValueRef::String(value) => match value.char_indices().nth(40) {
                None => write!(f, "{value:?}"),
                Some((cut, _)) => write!(f, "{:?}...", value.get(..cut).unwrap_or_default()),
            },
        }
    }
}

#[cfg(test)]
mod tests;
