//! Parquet and Arrow tables: typed columns, read row by row.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parquet::file::reader::FileReader as _;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::record::Field;
use parquet::record::reader::RowIter;

use super::{Row, Rows, distinct, shared};
use crate::error::{Error, Result};
use crate::format::metadata::{Cell, ForeignTable};
use crate::storage::MappedFile;
use crate::writer::source::{Cells, Place, refuse};

fn mapped(path: &Path) -> Result<Bytes> {
    Ok(Bytes::from_owner(MappedFile::open(path)?))
}

/// Rows of these kinds have no place of their own in the file.
fn no_spans(path: &Path) -> Error {
    Error::refused(path, "rows of this kind of table cannot be looked up")
}

/// An Arrow IPC file or stream.
pub(super) struct Arrow {
    path: PathBuf,
    table: ForeignTable,
    number: u64,
}

impl Arrow {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let table =
            ForeignTable::open(mapped(path)?).map_err(|reason| Error::refused(path, reason))?;
        distinct(path, table.columns())?;
        Ok(Self {
            path: path.to_path_buf(),
            table,
            number: 0,
        })
    }
}

impl Rows for Arrow {
    fn next_row(&mut self) -> Result<Option<Row>> {
        self.number += 1;
        let row = self.table.next_row();
        let row = row.map_err(|reason| refuse(&self.path, &Place::Row(self.number), reason))?;
        Ok(row.map(|cells| Row {
            number: self.number,
            span: None,
            cells: self.table.columns().iter().cloned().zip(cells).collect(),
        }))
    }

    fn parse(&mut self, _: &[u8], _: u64) -> Result<Cells> {
        Err(no_spans(&self.path))
    }
}

/// A Parquet file.
pub(super) struct Parquet {
    path: PathBuf,
    rows: RowIter<'static>,
    names: Vec<Arc<str>>,
    number: u64,
}

/// The decoder panics on some malformed input.
fn walled<T>(decode: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or_else(|_| Err("malformed: the decoder panics on it".to_owned()))
}

impl Parquet {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let bytes = mapped(path)?;
        let opened = walled(|| {
            let reader = SerializedFileReader::new(bytes).map_err(|error| error.to_string())?;
            let schema = reader.metadata().file_metadata().schema();
            let names: Vec<Arc<str>> = schema
                .get_fields()
                .iter()
                .map(|field| Arc::from(field.name()))
                .collect();
            Ok((names, RowIter::from_file_into(Box::new(reader))))
        });
        let (names, rows) = opened.map_err(|reason| Error::refused(path, reason))?;
        distinct(path, &names)?;
        Ok(Self {
            path: path.to_path_buf(),
            rows,
            names,
            number: 0,
        })
    }
}

impl Rows for Parquet {
    fn next_row(&mut self) -> Result<Option<Row>> {
        self.number += 1;
        let rows = &mut self.rows;
        let row = walled(|| rows.next().transpose().map_err(|error| error.to_string()))
            .map_err(|reason| refuse(&self.path, &Place::Row(self.number), reason))?;
        let Some(row) = row else { return Ok(None) };
        let columns = row.into_columns().into_iter().enumerate();
        Ok(Some(Row {
            number: self.number,
            span: None,
            cells: columns
                .map(|(n, (name, field))| (shared(&mut self.names, n, &name), cell(field)))
                .collect(),
        }))
    }

    fn parse(&mut self, _: &[u8], _: u64) -> Result<Cells> {
        Err(no_spans(&self.path))
    }
}

fn cell(field: Field) -> Cell {
    let what = match &field {
        Field::Decimal(_) => "a decimal number",
        Field::Group(_) => "a group",
        Field::ListInternal(_) => "a list",
        Field::MapInternal(_) => "a map",
        _ => "a date or time",
    };
    match field {
        Field::Null => Cell::Null,
        Field::Bool(value) => Cell::Bool(value),
        Field::Byte(value) => Cell::integer(value),
        Field::Short(value) => Cell::integer(value),
        Field::Int(value) => Cell::integer(value),
        Field::Long(value) => Cell::integer(value),
        Field::UByte(value) => Cell::integer(value),
        Field::UShort(value) => Cell::integer(value),
        Field::UInt(value) => Cell::integer(value),
        Field::ULong(value) => Cell::integer(value),
        Field::Float16(value) => Cell::Float(value.to_f64()),
        Field::Float(value) => Cell::Float(value.into()),
        Field::Double(value) => Cell::Float(value),
        Field::Str(value) => Cell::Text(value),
        Field::Bytes(value) => Cell::Bytes(value.data().to_vec()),
        other => Cell::Other {
            what,
            text: other.to_string(),
        },
    }
}
