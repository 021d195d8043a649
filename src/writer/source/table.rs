//! A table whose rows are samples: each names its payload file and carries the metadata.

mod columnar;
mod csv;
mod jsonl;
mod quotes;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) use self::jsonl::{object, value_of};

use super::{Cells, Found, Item, Payload, Place, Source, refuse};
use crate::error::{Error, Result};
use crate::format::metadata::Cell;

/// What kind of file a table is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TableKind {
    /// One JSON object a line.
    Jsonl,
    /// Comma-separated, with a header.
    Csv,
    /// Tab-separated, with a header.
    Tsv,
    /// Parquet.
    Parquet,
    /// Arrow IPC, file or stream.
    Arrow,
}

impl TableKind {
    /// The kind that a file name says; `None` for an unknown ending.
    #[must_use]
    pub fn by_name(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_lowercase().as_str() {
            "jsonl" | "ndjson" => Some(Self::Jsonl),
            "csv" => Some(Self::Csv),
            "tsv" => Some(Self::Tsv),
            "parquet" => Some(Self::Parquet),
            "arrow" | "feather" => Some(Self::Arrow),
            _ => None,
        }
    }
}

/// One row of a table.
#[derive(Debug)]
pub(super) struct Row {
    /// Its number, from 1.
    pub(super) number: u64,
    /// Where it lies in the file, for kinds that are text.
    pub(super) span: Option<Span>,
    /// Its values, by column.
    pub(super) cells: Cells,
}

/// Bytes of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Span {
    pub(super) offset: u64,
    pub(super) len: usize,
}

/// Gives the rows of a table, one after another.
pub(super) trait Rows {
    fn next_row(&mut self) -> Result<Option<Row>>;

    /// Parses the row that lies in `bytes`, which a [`Row::span`] named.
    fn parse(&mut self, bytes: &[u8], number: u64) -> Result<Cells>;
}

/// Opens a table. With `lossy`, text that is not UTF-8 is mended instead of refused.
pub(super) fn open(path: &Path, kind: TableKind, lossy: bool) -> Result<Box<dyn Rows>> {
    Ok(match kind {
        TableKind::Jsonl => Box::new(jsonl::Jsonl::open(path, lossy)?),
        TableKind::Csv => Box::new(csv::Csv::open(path, b',', lossy)?),
        TableKind::Tsv => Box::new(csv::Csv::open(path, b'\t', lossy)?),
        TableKind::Parquet => Box::new(columnar::Parquet::open(path)?),
        TableKind::Arrow => Box::new(columnar::Arrow::open(path)?),
    })
}

/// A table whose rows are samples.
#[derive(Debug)]
pub struct Table {
    path: PathBuf,
    kind: TableKind,
    payload_column: String,
    /// Folder that relative payload names start from.
    root: PathBuf,
    lossy: bool,
}

impl Table {
    /// The table at `path`, whose column `payload_column` names the payload files, relative to
    /// `root`, or holds the payloads themselves as binary values.
    #[must_use]
    pub fn new(
        path: PathBuf,
        kind: TableKind,
        payload_column: String,
        root: PathBuf,
        lossy: bool,
    ) -> Self {
        Self {
            path,
            kind,
            payload_column,
            root,
            lossy,
        }
    }

    fn item(&self, row: Row, load: bool) -> Result<Item> {
        let place = Place::Row(row.number);
        let mut payload = None;
        let mut cells = Vec::with_capacity(row.cells.len());
        for (column, cell) in row.cells {
            if payload.is_none() && *column == *self.payload_column {
                payload = Some(cell);
            } else {
                cells.push((column, cell));
            }
        }
        let Some(payload) = payload else {
            let columns: Vec<&str> = cells.iter().map(|(column, _)| &**column).collect();
            let reason = format!(
                "no payload column {:?} (there are: {})",
                self.payload_column,
                columns.join(", ")
            );
            return Err(refuse(&self.path, &place, reason));
        };
        let (name, payload, len) = match payload {
            Cell::Text(name) | Cell::Untyped(name) if !name.is_empty() => {
                let name = OsString::from_vec(name.into_bytes());
                let payload = match load {
                    true => Payload::File(self.root.join(&name)),
                    false => Payload::Left,
                };
                (name.as_bytes().to_vec(), payload, None)
            }
            Cell::Bytes(bytes) => {
                let len = bytes.len() as u64;
                let payload = match load {
                    true => Payload::Bytes(bytes),
                    false => Payload::Left,
                };
                (Vec::new(), payload, Some(len))
            }
            other => {
                let reason = format!(
                    "payload column {:?}: expected a file name or bytes, found {}",
                    self.payload_column,
                    super::infer::what(&other)
                );
                return Err(refuse(&self.path, &place, reason));
            }
        };
        Ok(Item {
            name,
            payload,
            len,
            place,
            cells,
        })
    }
}

impl Source for Table {
    fn path(&self) -> &Path {
        &self.path
    }

    fn visit(&self, load: bool, each: &mut dyn FnMut(Found) -> Result<()>) -> Result<()> {
        let mut rows = open(&self.path, self.kind, self.lossy)?;
        while let Some(row) = rows.next_row()? {
            each(Found::Item(self.item(row, load)?))?;
        }
        Ok(())
    }
}

/// `bytes` as text, mended when `lossy`.
pub(super) fn text_of(bytes: &[u8], lossy: bool) -> Result<String, &'static str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) if lossy => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Err(_) => Err("text that is not UTF-8 (--lossy-path mends it)"),
    }
}

/// The name of a column, one allocation for all rows.
fn shared(names: &mut Vec<Arc<str>>, hint: usize, name: &str) -> Arc<str> {
    if let Some(known) = names.get(hint).filter(|known| &***known == name) {
        return Arc::clone(known);
    }
    if let Some(known) = names.iter().find(|known| &***known == name) {
        return Arc::clone(known);
    }
    let name: Arc<str> = Arc::from(name);
    names.push(Arc::clone(&name));
    name
}

/// Refuses columns with one name.
fn distinct(path: &Path, columns: &[Arc<str>]) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    match columns.iter().find(|column| !seen.insert(&***column)) {
        Some(twice) => Err(Error::refused(
            path,
            format!("two columns have the name {twice:?}"),
        )),
        None => Ok(()),
    }
}
