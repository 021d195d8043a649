//! One table over the samples of many caches: which sample, where its file is, how long it is, and
//! its metadata, with nulls where a cache lacks a field.

use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::builder::{StringBuilder, UInt64Builder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{DataType, Schema};

use super::writer::{BATCH_ROWS, BATCH_TEXT, Builder, data_type, to_io};
use super::{Field, ValueRef};

/// Names of the columns that are no metadata, in order.
pub const JOINED_COLUMNS: [&str; 4] = ["cache_id", "sample_id", "path", "size"];

/// One row, but for its metadata.
#[derive(Clone, Copy, Debug)]
pub struct JoinedRow<'a> {
    /// Identity of the cache.
    pub cache_id: u64,
    /// Row number in the cache.
    pub sample_id: u64,
    /// Where the sample's file is.
    pub path: &'a str,
    /// Length of its decoded payload in bytes, if it is known.
    pub size: Option<u64>,
}

/// Writes the rows of such a table as they come; memory is bounded by one batch.
pub struct JoinedWriter<W: Write> {
    file: FileWriter<W>,
    schema: Arc<Schema>,
    ids: [UInt64Builder; 3],
    paths: StringBuilder,
    fields: Vec<Builder>,
    rows: usize,
    text: usize,
}

impl<W: Write> JoinedWriter<W> {
    /// Starts a table with the columns [`JOINED_COLUMNS`] and then `fields` in `out`.
    ///
    /// # Errors
    /// What writing to `out` gives.
    pub fn new(out: W, fields: &[Field]) -> io::Result<Self> {
        let [cache_id, sample_id, path, size] = JOINED_COLUMNS;
        let mut columns = vec![
            arrow_schema::Field::new(cache_id, DataType::UInt64, false),
            arrow_schema::Field::new(sample_id, DataType::UInt64, false),
            arrow_schema::Field::new(path, DataType::Utf8, false),
            arrow_schema::Field::new(size, DataType::UInt64, true),
        ];
        columns.extend(
            fields
                .iter()
                .map(|field| arrow_schema::Field::new(&field.name, data_type(field.kind), true)),
        );
        let schema = Arc::new(Schema::new(columns));
        Ok(Self {
            file: FileWriter::try_new(out, &schema).map_err(to_io)?,
            schema,
            ids: Default::default(),
            paths: StringBuilder::new(),
            fields: fields
                .iter()
                .map(|field| Builder::new(field.kind))
                .collect(),
            rows: 0,
            text: 0,
        })
    }

    /// Appends one row; `values` are those of the fields, in their order, `None` for a null.
    ///
    /// # Errors
    /// What writing gives; [`io::ErrorKind::InvalidInput`] when a value is not of its field's kind.
    pub fn push<'v>(
        &mut self,
        row: JoinedRow<'_>,
        values: impl Iterator<Item = Option<ValueRef<'v>>>,
    ) -> io::Result<()> {
        let [cache_ids, sample_ids, sizes] = &mut self.ids;
        cache_ids.append_value(row.cache_id);
        sample_ids.append_value(row.sample_id);
        sizes.append_option(row.size);
        self.paths.append_value(row.path);
        self.text += row.path.len();
        let mut values = values;
        for builder in &mut self.fields {
            self.text += builder.append(values.next().flatten())?;
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
        let [cache_ids, sample_ids, sizes] = &mut self.ids;
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(cache_ids.finish()),
            Arc::new(sample_ids.finish()),
            Arc::new(self.paths.finish()),
            Arc::new(sizes.finish()),
        ];
        columns.extend(self.fields.iter_mut().map(Builder::finish));
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(to_io)?;
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
