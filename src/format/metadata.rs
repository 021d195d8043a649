//! `metadata.arrow`: one row of metadata per sample (docs/format.md, "metadata.arrow"). The only
//! user of arrow.
//!
//! A table borrows the bytes of its file (a mapping, as a rule): columns are not copied. arrow
//! validates lengths, offsets and UTF-8 when the table is opened, but the file may change under a
//! mapping later, so each access checks its bounds again and never trusts the first validation.

mod cell;
mod flat;
mod foreign;
mod joined;
mod table_file;
mod writer;

use std::ops::{ControlFlow, Range};

use arrow_array::{
    Array, BooleanArray, Float64Array, Int64Array, LargeStringArray, RecordBatch, StringArray,
    StringViewArray,
};
use arrow_schema::DataType;
use bytes::Bytes;

pub use super::manifest::{Field, FieldKind};
pub use cell::Cell;
pub use foreign::ForeignTable;
pub use joined::{JOINED_COLUMNS, JoinedRow, JoinedWriter};
pub use writer::TableWriter;

use crate::error::{Fault, FaultKind};

/// One metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A boolean.
    Bool(bool),
    /// A signed 64-bit integer.
    Int(i64),
    /// A 64-bit float.
    Float(f64),
    /// UTF-8 text.
    String(String),
}

/// One metadata value that borrows its text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueRef<'a> {
    /// A boolean.
    Bool(bool),
    /// A signed 64-bit integer.
    Int(i64),
    /// A 64-bit float.
    Float(f64),
    /// UTF-8 text.
    String(&'a str),
}

impl Value {
    /// The type of the value.
    #[must_use]
    pub fn kind(&self) -> FieldKind {
        self.borrowed().kind()
    }

    /// The same value, borrowing its text.
    #[must_use]
    pub fn borrowed(&self) -> ValueRef<'_> {
        match self {
            Self::Bool(value) => ValueRef::Bool(*value),
            Self::Int(value) => ValueRef::Int(*value),
            Self::Float(value) => ValueRef::Float(*value),
            Self::String(value) => ValueRef::String(value),
        }
    }
}

impl ValueRef<'_> {
    /// The type of the value.
    #[must_use]
    pub fn kind(self) -> FieldKind {
        match self {
            Self::Bool(_) => FieldKind::Bool,
            Self::Int(_) => FieldKind::Int,
            Self::Float(_) => FieldKind::Float,
            Self::String(_) => FieldKind::String,
        }
    }

    /// The same value, owning its text.
    #[must_use]
    pub fn to_owned(self) -> Value {
        match self {
            Self::Bool(value) => Value::Bool(value),
            Self::Int(value) => Value::Int(value),
            Self::Float(value) => Value::Float(value),
            Self::String(value) => Value::String(value.to_owned()),
        }
    }
}

/// The metadata of all samples of a cache.
#[derive(Debug)]
pub struct Table {
    schema: Vec<Field>,
    batches: Vec<Batch>,
    rows: u64,
}

#[derive(Debug)]
struct Batch {
    /// Number of the first row.
    start: u64,
    columns: Vec<Column>,
}

#[derive(Debug)]
enum Column {
    Bool(BooleanArray),
    Int(Int64Array),
    Float(Float64Array),
    Utf8(StringArray),
    LargeUtf8(LargeStringArray),
    Utf8View(StringViewArray),
}

impl Table {
    /// Reads the table in `bytes`, whose first columns must be those of `schema`, by name and kind,
    /// in its order. Further columns are ignored. With an empty schema nothing but the file's
    /// frame is read and [`Table::rows`] is `None`.
    ///
    /// # Errors
    /// [`FaultKind::Table`] for everything that is not such a file: cut, malformed, dictionary or
    /// compressed columns (named), other names or kinds.
    pub fn open(bytes: Bytes, schema: &[Field]) -> Result<Self, Fault> {
        let file = table_file::TableFile::open(bytes)?;
        let mut table = Self {
            schema: schema.to_vec(),
            batches: Vec::new(),
            rows: 0,
        };
        if !schema.is_empty() {
            for batch in file.batches(schema)? {
                table.add(&batch)?;
            }
        }
        Ok(table)
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<(), Fault> {
        let columns = batch
            .columns()
            .iter()
            .zip(&self.schema)
            .map(|(array, field)| Column::new(array, field))
            .collect::<Result<_, _>>()?;
        self.batches.push(Batch {
            start: self.rows,
            columns,
        });
        self.rows = self.rows.saturating_add(batch.num_rows() as u64);
        Ok(())
    }

    /// Number of rows; `None` when there are no fields, as then only the manifest knows it.
    #[must_use]
    pub fn rows(&self) -> Option<u64> {
        (!self.schema.is_empty()).then_some(self.rows)
    }

    /// The fields, in order.
    #[must_use]
    pub fn schema(&self) -> &[Field] {
        &self.schema
    }

    /// The row of `sample`; with no fields every row exists and is empty.
    #[must_use]
    pub fn row(&self, sample: u64) -> Option<Row<'_>> {
        if self.schema.is_empty() {
            return Some(Row {
                columns: &[],
                index: 0,
            });
        }
        if sample >= self.rows {
            return None;
        }
        let after = self.batches.partition_point(|batch| batch.start <= sample);
        let batch = self.batches.get(after.checked_sub(1)?)?;
        Some(Row {
            columns: &batch.columns,
            index: usize::try_from(sample - batch.start).ok()?,
        })
    }

    /// Gives `visitor` the values of column `column` in `rows`, row after row and without nulls,
    /// until it breaks. A value that [`Row::value`] would not give ends them as well.
    pub fn visit<'a>(
        &'a self,
        column: usize,
        rows: &Range<u64>,
        visitor: &mut impl Visitor<'a>,
    ) -> ControlFlow<()> {
        for batch in &self.batches {
            let Some(column) = batch.columns.get(column) else {
                continue;
            };
            let place = |row: u64| {
                let row = usize::try_from(row.saturating_sub(batch.start)).unwrap_or(usize::MAX);
                row.min(column.array().len())
            };
            let (start, end) = (place(rows.start), place(rows.end));
            let len = end.saturating_sub(start);
            match column {
                Column::Bool(array) => {
                    let part = array.slice(start, len);
                    (part.iter().flatten()).try_for_each(|value| visitor.bool(value))?;
                }
                Column::Int(array) => {
                    let part = array.slice(start, len);
                    (part.iter().flatten()).try_for_each(|value| visitor.int(value))?;
                }
                Column::Float(array) => {
                    let part = array.slice(start, len);
                    (part.iter().flatten()).try_for_each(|value| visitor.float(value))?;
                }
                Column::Utf8(_) | Column::LargeUtf8(_) | Column::Utf8View(_) => {
                    let values = (start..end).map_while(|row| column.value(row)).flatten();
                    for value in values {
                        if let ValueRef::String(text) = value {
                            visitor.text(text)?;
                        }
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Takes the values of a column ([`Table::visit`]): the kind is looked at once a column, not once a
/// value. What breaks is given no more.
pub trait Visitor<'a> {
    /// A value of kind bool.
    fn bool(&mut self, value: bool) -> ControlFlow<()>;
    /// A value of kind int.
    fn int(&mut self, value: i64) -> ControlFlow<()>;
    /// A value of kind float.
    fn float(&mut self, value: f64) -> ControlFlow<()>;
    /// A value of kind string.
    fn text(&mut self, value: &'a str) -> ControlFlow<()>;
}

/// One row of a [`Table`].
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    columns: &'a [Column],
    index: usize,
}

impl<'a> Row<'a> {
    /// The value in column `column`; `None` for a null.
    ///
    /// # Errors
    /// [`FaultKind::Table`] when there is no such column or the mapped bytes have changed so that
    /// they no longer hold a value.
    pub fn value(&self, column: usize) -> Result<Option<ValueRef<'a>>, Fault> {
        self.columns
            .get(column)
            .and_then(|column| column.value(self.index))
            .ok_or_else(|| {
                Fault::new(
                    FaultKind::Table,
                    format!("a value in column {column}"),
                    "bytes outside the column: metadata.arrow was changed in place",
                )
            })
    }
}

impl Column {
    fn new(array: &dyn Array, field: &Field) -> Result<Self, Fault> {
        let array = array.as_any();
        let column = match field.kind {
            FieldKind::Bool => array.downcast_ref().cloned().map(Self::Bool),
            FieldKind::Int => array.downcast_ref().cloned().map(Self::Int),
            FieldKind::Float => array.downcast_ref().cloned().map(Self::Float),
            FieldKind::String => array
                .downcast_ref()
                .cloned()
                .map(Self::Utf8)
                .or_else(|| array.downcast_ref().cloned().map(Self::LargeUtf8))
                .or_else(|| array.downcast_ref().cloned().map(Self::Utf8View)),
        };
        column.ok_or_else(|| {
            Fault::new(
                FaultKind::Table,
                format!("column {:?} of kind {}", field.name, field.kind.name()),
                "another type",
            )
        })
    }

    fn array(&self) -> &dyn Array {
        match self {
            Self::Bool(array) => array,
            Self::Int(array) => array,
            Self::Float(array) => array,
            Self::Utf8(array) => array,
            Self::LargeUtf8(array) => array,
            Self::Utf8View(array) => array,
        }
    }

    /// `Some(None)` is a null; `None` means that the bytes do not hold a value.
    fn value(&self, index: usize) -> Option<Option<ValueRef<'_>>> {
        let array = self.array();
        if index >= array.len() {
            return None;
        }
        if array.is_null(index) {
            return Some(None);
        }
        let value = match self {
            Self::Bool(array) => ValueRef::Bool(array.value(index)),
            Self::Int(array) => ValueRef::Int(*array.values().get(index)?),
            Self::Float(array) => ValueRef::Float(*array.values().get(index)?),
            Self::Utf8(array) => text(array.value_data(), between(array.value_offsets(), index)?)?,
            Self::LargeUtf8(array) => {
                text(array.value_data(), between(array.value_offsets(), index)?)?
            }
            Self::Utf8View(array) => {
                let view = array.views().get(index)?.to_le_bytes();
                let field = |at: usize| -> Option<usize> {
                    let bytes = view.get(at..)?.first_chunk::<4>()?;
                    usize::try_from(u32::from_le_bytes(*bytes)).ok()
                };
                let len = field(0)?;
                if len <= INLINE_VIEW_LEN {
                    // The view itself is on the stack; the text must be borrowed from the column.
                    let start = index.checked_mul(16)?.checked_add(4)?;
                    text(array.views().inner(), start..start.checked_add(len)?)?
                } else {
                    let (buffer, start) = (field(8)?, field(12)?);
                    let data = array.data_buffers().get(buffer)?;
                    text(data, start..start.checked_add(len)?)?
                }
            }
        };
        Some(Some(value))
    }
}

/// Longest text that a string view holds in itself, in bytes.
const INLINE_VIEW_LEN: usize = 12;

fn between<T: Copy + TryInto<usize>>(offsets: &[T], index: usize) -> Option<Range<usize>> {
    let start = (*offsets.get(index)?).try_into().ok()?;
    let end = (*offsets.get(index.checked_add(1)?)?).try_into().ok()?;
    Some(start..end)
}

fn text(data: &[u8], range: Range<usize>) -> Option<ValueRef<'_>> {
    std::str::from_utf8(data.get(range)?)
        .ok()
        .map(ValueRef::String)
}

/// Whether an Arrow type holds values of `kind`.
fn holds(data_type: &DataType, kind: FieldKind) -> bool {
    matches!(
        (kind, data_type),
        (FieldKind::Bool, DataType::Boolean)
            | (FieldKind::Int, DataType::Int64)
            | (FieldKind::Float, DataType::Float64)
            | (
                FieldKind::String,
                DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
            )
    )
}

#[cfg(test)]
mod tests;
