//! An aligned table for people.

use std::io::{self, Write};

use super::Listing;
use crate::cache::Cache;
use crate::cli::output::plain;
use crate::error::Result;
use crate::format::metadata::{FieldKind, Value};

/// Rows that the widths of the columns are taken from: all of a small cache. Later rows that are
/// wider push their neighbours aside.
const MEASURED: usize = 1000;
/// Characters of a text that are shown.
const MOST_CHARS: usize = 60;

pub(super) struct Table {
    out: Box<dyn Write>,
    /// Whether the column has numbers, which stand at the right.
    right: Vec<bool>,
    widths: Vec<usize>,
    /// Rows not written yet, the heading among them; `None` once the widths are known.
    held: Option<Vec<Vec<String>>>,
}

impl Table {
    pub(super) fn new(out: Box<dyn Write>, cache: &Cache) -> Self {
        let schema = &cache.manifest().schema;
        let mut heading = vec!["sample_id".to_owned(), "size".to_owned()];
        heading.extend(schema.iter().map(|field| cut(&field.name)));
        let mut right = vec![true, true];
        let numbers = |kind| matches!(kind, FieldKind::Int | FieldKind::Float);
        right.extend(schema.iter().map(|field| numbers(field.kind)));
        Self {
            out,
            right,
            widths: Vec::new(),
            held: Some(vec![heading]),
        }
    }

    fn row(&mut self, cells: Vec<String>) -> io::Result<()> {
        let Some(held) = &mut self.held else {
            return self.write(&cells);
        };
        held.push(cells);
        match held.len() > MEASURED {
            true => self.release(),
            false => Ok(()),
        }
    }

    fn release(&mut self) -> io::Result<()> {
        let held = self.held.take().unwrap_or_default();
        self.widths = vec![0; self.right.len()];
        for cells in &held {
            // The reason why a sample is damaged is longer than any column and makes none wide.
            let columns = match cells.len() == self.right.len() {
                true => cells.len(),
                false => 2,
            };
            for (width, cell) in self.widths.iter_mut().zip(cells).take(columns) {
                *width = (*width).max(cell.chars().count());
            }
        }
        held.iter().try_for_each(|cells| self.write(cells))
    }

    fn write(&mut self, cells: &[String]) -> io::Result<()> {
        let mut line = String::new();
        for ((cell, width), right) in cells.iter().zip(&self.widths).zip(&self.right) {
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            if !line.is_empty() {
                line.push_str("  ");
            }
            let (before, after) = if *right { (&*pad, "") } else { ("", &*pad) };
            line.extend([before, cell, after]);
        }
        writeln!(self.out, "{}", line.trim_end())
    }
}

impl Listing for Table {
    fn good(&mut self, cache: &Cache, sample: u64, size: u64) -> Result<io::Result<()>> {
        let metadata = cache.metadata(sample)?;
        let mut cells = vec![sample.to_string(), size.to_string()];
        cells.extend(metadata.iter().map(|value| match value {
            Some(Value::Bool(value)) => value.to_string(),
            Some(Value::Int(value)) => value.to_string(),
            Some(Value::Float(value)) => format!("{value:?}"),
            Some(Value::String(value)) => cut(value),
            None => "(null)".to_owned(),
        }));
        Ok(self.row(cells))
    }

    fn damaged(&mut self, sample: u64, reason: &str) -> io::Result<()> {
        let reason = plain(reason).into_owned();
        match self.right.len() {
            // There is no third column to put it into.
            2 => self.row(vec![sample.to_string(), format!("DAMAGED  {reason}")]),
            _ => self.row(vec![sample.to_string(), "DAMAGED".to_owned(), reason]),
        }
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        if self.held.is_some() {
            self.release()?;
        }
        self.out.flush()
    }
}

/// `text` on one line, cut when it is long.
fn cut(text: &str) -> String {
    let text = plain(text);
    match text.char_indices().nth(MOST_CHARS) {
        None => text.into_owned(),
        Some(_) => {
            let kept: String = text.chars().take(MOST_CHARS - 3).collect();
            format!("{kept}...")
        }
    }
}
