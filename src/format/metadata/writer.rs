//! Writes `metadata.arrow` in record batches of bounded size.

use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Schema};

use super::{Field, FieldKind, ValueRef};

/// Rows of a record batch: large enough that batches cost nothing, small enough to hold in memory.
pub(super) const BATCH_ROWS: usize = 1 << 16;
/// A batch also ends when its text reaches this many bytes.
pub(super) const BATCH_TEXT: usize = 16 << 20;

/// Writes the rows of a metadata table as they come; memory is bounded by one batch.
pub struct TableWriter<W: Write> {
    file: FileWriter<W>,
    schema: Arc<Schema>,
    builders: Vec<Builder>,
    rows: usize,
    text: usize,
}

pub(super) enum Builder {
    Bool(BooleanBuilder),
    Int(Int64Builder),
    Float(Float64Builder),
    String(StringBuilder),
}

impl<W: Write> TableWriter<W> {
    /// Starts a table of `fields` in `out`.
    ///
    /// # Errors
    /// What writing to `out` gives.
    pub fn new(out: W, fields: &[Field]) -> io::Result<Self> {
        let schema = Arc::new(Schema::new(
            fields
                .iter()
                .map(|field| arrow_schema::Field::new(&field.name, data_type(field.kind), false))
                .collect::<Vec<_>>(),
        ));
        Ok(Self {
            file: FileWriter::try_new(out, &schema).map_err(to_io)?,
            builders: fields
                .iter()
                .map(|field| Builder::new(field.kind))
                .collect(),
            schema,
            rows: 0,
            text: 0,
        })
    }

    /// Appends one row, whose values are those of the fields, in their order.
    ///
    /// # Errors
    /// What writing gives; [`io::ErrorKind::InvalidInput`] when a value is not of its field's kind.
    pub fn push<'v>(&mut self, row: impl Iterator<Item = ValueRef<'v>>) -> io::Result<()> {
        let mut row = row;
        for builder in &mut self.builders {
            let value = row.next().ok_or(io::ErrorKind::InvalidInput)?;
            self.text += builder.append(Some(value))?;
        }
        self.rows += 1;
        if self.rows >= BATCH_ROWS || self.text >= BATCH_TEXT {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let columns: Vec<ArrayRef> = self.builders.iter_mut().map(Builder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(to_io)?;
        self.rows = 0;
        self.text = 0;
        self.file.write(&batch).map_err(to_io)
    }

    /// Writes the rest and the footer, and gives `out` back.
    ///
    /// # Errors
    /// What writing gives.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        self.file.finish().map_err(to_io)?;
        self.file.into_inner().map_err(to_io)
    }
}

impl Builder {
    pub(super) fn new(kind: FieldKind) -> Self {
        match kind {
            FieldKind::Bool => Self::Bool(BooleanBuilder::new()),
            FieldKind::Int => Self::Int(Int64Builder::new()),
            FieldKind::Float => Self::Float(Float64Builder::new()),
            FieldKind::String => Self::String(StringBuilder::new()),
        }
    }

    /// Appends a value, or a null, and says how many bytes of text it has.
    pub(super) fn append(&mut self, value: Option<ValueRef<'_>>) -> io::Result<usize> {
        match (self, value) {
            (Self::Bool(builder), Some(ValueRef::Bool(value))) => builder.append_value(value),
            (Self::Int(builder), Some(ValueRef::Int(value))) => builder.append_value(value),
            (Self::Float(builder), Some(ValueRef::Float(value))) => builder.append_value(value),
            (Self::String(builder), Some(ValueRef::String(value))) => {
                builder.append_value(value);
                return Ok(value.len());
            }
            (Self::Bool(builder), None) => builder.append_null(),
            (Self::Int(builder), None) => builder.append_null(),
            (Self::Float(builder), None) => builder.append_null(),
            (Self::String(builder), None) => builder.append_null(),
            _ => return Err(io::Error::from(io::ErrorKind::InvalidInput)),
        }
        Ok(0)
    }

    pub(super) fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Bool(builder) => Arc::new(builder.finish()),
            Self::Int(builder) => Arc::new(builder.finish()),
            Self::Float(builder) => Arc::new(builder.finish()),
            Self::String(builder) => Arc::new(builder.finish()),
        }
    }
}

/// The Arrow type that values of `kind` are written as.
pub(super) fn data_type(kind: FieldKind) -> DataType {
    match kind {
        FieldKind::Bool => DataType::Boolean,
        FieldKind::Int => DataType::Int64,
        FieldKind::Float => DataType::Float64,
        FieldKind::String => DataType::Utf8,
    }
}

pub(super) fn to_io(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, source) => source,
        other => io::Error::other(other),
    }
}
