//! Comma- and tab-separated tables with a header. Their values have no types.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use csv::{ByteRecord, Reader, ReaderBuilder};

use super::quotes::Quotes;
use super::{Row, Rows, Span, distinct, text_of};
use crate::error::{Error, Result};
use crate::format::metadata::Cell;
use crate::storage::{FileReader, StoredFile};
use crate::writer::source::{Cells, Place, refuse};

/// A separated table.
pub(super) struct Csv {
    path: PathBuf,
    delimiter: u8,
    reader: Reader<Quotes<FileReader>>,
    columns: Vec<Arc<str>>,
    record: ByteRecord,
    number: u64,
    lossy: bool,
}

fn builder(delimiter: u8) -> ReaderBuilder {
    let mut builder = ReaderBuilder::new();
    builder.delimiter(delimiter).has_headers(false);
    builder
}

impl Csv {
    pub(super) fn open(path: &Path, delimiter: u8, lossy: bool) -> Result<Self> {
        let file = Arc::new(StoredFile::open(path)?);
        let mut csv = Self {
            path: path.to_path_buf(),
            delimiter,
            reader: builder(delimiter).from_reader(Quotes::new(FileReader::new(file), delimiter)),
            columns: Vec::new(),
            record: ByteRecord::new(),
            number: 0,
            lossy,
        };
        if !csv.read()? {
            return Err(Error::refused(path, "empty: expected a header line"));
        }
        csv.columns = csv
            .record
            .iter()
            .map(|name| text_of(name, lossy).map(Arc::from))
            .collect::<Result<_, _>>()
            .map_err(|reason| Error::refused(path, format!("header: {reason}")))?;
        distinct(path, &csv.columns)?;
        Ok(csv)
    }

    fn read(&mut self) -> Result<bool> {
        let read = self.reader.read_byte_record(&mut self.record);
        read.map_err(|error| Error::refused(&self.path, error.to_string()))
    }

    fn cells(&self, record: &ByteRecord, number: u64) -> Result<Cells> {
        let cells = self.columns.iter().zip(record);
        cells
            .map(|(column, bytes)| match text_of(bytes, self.lossy) {
                Ok(text) => Ok((Arc::clone(column), Cell::Untyped(text))),
                Err(reason) => {
                    let reason = format!("field {column:?}: {reason}");
                    Err(refuse(&self.path, &Place::Row(number), reason))
                }
            })
            .collect()
    }
}

impl Rows for Csv {
    fn next_row(&mut self) -> Result<Option<Row>> {
        if !self.read()? {
            return Ok(None);
        }
        self.number += 1;
        let offset = self.record.position().map_or(0, csv::Position::byte);
        let end = self.reader.position().byte();
        Ok(Some(Row {
            number: self.number,
            span: usize::try_from(end.saturating_sub(offset))
                .ok()
                .map(|len| Span { offset, len }),
            cells: self.cells(&self.record, self.number)?,
        }))
    }

    fn parse(&mut self, bytes: &[u8], number: u64) -> Result<Cells> {
        let mut record = ByteRecord::new();
        let read = builder(self.delimiter)
            .buffer_capacity(bytes.len().max(1))
            .from_reader(bytes)
            .read_byte_record(&mut record);
        match read {
            Ok(true) if record.len() == self.columns.len() => self.cells(&record, number),
            _ => {
                let reason = "the row changed while it was being read";
                Err(refuse(&self.path, &Place::Row(number), reason))
            }
        }
    }
}
