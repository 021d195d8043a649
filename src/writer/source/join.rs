//! A second table whose rows are found by the sample's path.
//!
//! Rows stay in the file: what is kept in memory is 16 bytes each, the hash of the path and where
//! the row lies.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

use super::infer::{FieldChoices, Inference, Kinds};
use super::table::{self, Rows, Span, TableKind};
use super::{Cells, Place, refuse};
use crate::error::{Error, Result};
use crate::storage::StoredFile;

/// Which table, and its column of paths.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// The table: JSON lines or separated values.
    pub path: PathBuf,
    /// What kind of table it is.
    pub kind: TableKind,
    /// The column that holds the samples' paths.
    pub key: String,
}

/// Bits of an entry that give the length of its row; the others give its offset.
const LEN_BITS: u32 = 24;

/// The index of such a table.
#[derive(Debug)]
pub(super) struct Join {
    options: JoinOptions,
    lossy: bool,
    hashes: RandomState,
    /// Hash of the path, then offset and length of the row; sorted.
    entries: Vec<(u64, u64)>,
    /// Whether a sample asked for the entry.
    used: Vec<bool>,
}

impl Join {
    /// Reads the table once: finds where its rows lie and learns the types of its fields.
    pub(super) fn open(
        options: JoinOptions,
        choices: FieldChoices,
        lossy: bool,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<(Self, Kinds)> {
        let mut join = Self {
            options,
            lossy,
            hashes: RandomState::new(),
            entries: Vec::new(),
            used: Vec::new(),
        };
        let mut inference = Inference::new(choices);
        let mut rows = join.rows()?;
        while let Some(row) = rows.next_row()? {
            check()?;
            let place = Place::Row(row.number);
            let refused = |reason: String| refuse(&join.options.path, &place, reason);
            let mut cells = row.cells;
            let key = join.take_key(&mut cells, &place)?;
            inference.observe(&place, &cells).map_err(refused)?;
            let span = row.span.and_then(pack).ok_or_else(|| {
                refuse(
                    &join.options.path,
                    &place,
                    "too long, or too far into the file",
                )
            })?;
            join.entries.push((join.hashes.hash_one(&key), span));
        }
        join.entries.sort_unstable();
        join.used = vec![false; join.entries.len()];
        let fields = inference
            .finish()
            .map_err(|reason| Error::refused(&join.options.path, reason))?;
        Ok((join, fields))
    }

    pub(super) fn path(&self) -> &Path {
        &self.options.path
    }

    fn rows(&self) -> Result<Box<dyn Rows>> {
        table::open(&self.options.path, self.options.kind, self.lossy)
    }

    fn take_key(&self, cells: &mut Cells, place: &Place) -> Result<String> {
        let key = cells
            .iter()
            .position(|(name, _)| **name == *self.options.key);
        let key = key.map(|n| cells.remove(n).1.into_text());
        match key {
            Some(Ok(key)) => Ok(key),
            Some(Err(found)) => {
                let reason = format!(
                    "field {:?}: expected a path, found {found}",
                    self.options.key
                );
                Err(refuse(self.path(), place, reason))
            }
            None => {
                let columns: Vec<&str> = cells.iter().map(|(name, _)| &**name).collect();
                let reason = format!(
                    "no column {:?} to find samples by (there are: {})",
                    self.options.key,
                    columns.join(", ")
                );
                Err(refuse(self.path(), place, reason))
            }
        }
    }

    fn matches(&self, path: &str) -> impl Iterator<Item = (usize, u64)> {
        let hash = self.hashes.hash_one(path);
        let first = self.entries.partition_point(|&(other, _)| other < hash);
        let entries = self.entries.iter().enumerate().skip(first);
        entries
            .take_while(move |(_, (other, _))| *other == hash)
            .map(|(n, &(_, span))| (n, span))
    }

    /// Notes that there is a sample with that path; whether there may be a row for it.
    pub(super) fn note(&mut self, path: &str) -> bool {
        let found: Vec<usize> = self.matches(path).map(|(n, _)| n).collect();
        for &n in &found {
            if let Some(used) = self.used.get_mut(n) {
                *used = true;
            }
        }
        !found.is_empty()
    }

    /// Rows for which there is no sample.
    pub(super) fn unused(&self) -> u64 {
        self.used.iter().filter(|used| !**used).count() as u64
    }

    /// Starts looking rows up.
    pub(super) fn reader(&self) -> Result<JoinReader<'_>> {
        Ok(JoinReader {
            join: self,
            file: StoredFile::open(self.path())?,
            parser: self.rows()?,
            bytes: Vec::new(),
        })
    }
}

fn pack(span: Span) -> Option<u64> {
    let len = u64::try_from(span.len).ok()?;
    let fits = len < 1 << LEN_BITS && span.offset < 1 << (64 - LEN_BITS);
    fits.then_some(span.offset << LEN_BITS | len)
}

/// Looks rows up.
pub(super) struct JoinReader<'a> {
    join: &'a Join,
    file: StoredFile,
    parser: Box<dyn Rows>,
    bytes: Vec<u8>,
}

impl JoinReader<'_> {
    /// The values of the row for the sample `path`, which must be one.
    ///
    /// # Errors
    /// [`Error::Io`]; the reason, when there is no row or more than one.
    pub(super) fn row(&mut self, path: &str) -> Result<Result<Cells, String>> {
        let mut found = None;
        for (_, span) in self.join.matches(path) {
            let len = usize::try_from(span & ((1 << LEN_BITS) - 1)).unwrap_or(0);
            self.bytes.resize(len, 0);
            self.file
                .read_exact_at(&mut self.bytes, span >> LEN_BITS)
                .map_err(|source| Error::io(self.join.path(), "read a row", source))?;
            let mut cells = self.parser.parse(&self.bytes, 0)?;
            let place = Place::Member(path.as_bytes().to_vec());
            if self.join.take_key(&mut cells, &place)? != path {
                continue;
            }
            if found.replace(cells).is_some() {
                let reason = format!("two rows of {} are for it", self.join.path().display());
                return Ok(Err(reason));
            }
        }
        Ok(found.ok_or_else(|| self.join.no_row()))
    }
}

impl Join {
    /// Says that a sample has no row.
    pub(super) fn no_row(&self) -> String {
        format!(
            "no row of {} has its path in column {:?}",
            self.path().display(),
            self.options.key
        )
    }
}

#[cfg(test)]
mod tests {
    use tempfile::NamedTempFile;

    use super::super::tests::file;
    use super::*;
    use crate::format::manifest::FieldKind;
    use crate::format::metadata::Cell;

    fn open(ending: &str, text: &str) -> Result<(NamedTempFile, Join, Kinds)> {
        let file = file(ending, text.as_bytes());
        let options = JoinOptions {
            kind: TableKind::by_name(file.path()).unwrap(),
            path: file.path().to_path_buf(),
            key: "path".to_owned(),
        };
        let (join, fields) = Join::open(options, FieldChoices::default(), false, &|| Ok(()))?;
        Ok((file, join, fields))
    }

    #[test]
    fn rows_are_found_wherever_they_lie() {
        for (ending, text) in [
            (
                ".csv",
                "n,path,s\n1,a,x\n22,\"b\n,2\",\"y,\"\"\ny\"\n3,c,\n",
            ),
            (
                ".jsonl",
                "{\"path\":\"a\",\"n\":1,\"s\":\"x\"}\n\n{\"n\":22,\"s\":\"y,\\\"\\ny\",\"path\":\"b\\n,2\"}\r\n\
                 {\"path\":\"c\",\"n\":3,\"s\":\"\"}",
            ),
        ] {
            let (_file, mut join, fields) = open(ending, text).unwrap();
            let kinds: Vec<_> = fields.iter().map(|(name, kind)| (&**name, *kind)).collect();
            assert_eq!(kinds, [("n", FieldKind::Int), ("s", FieldKind::String)]);
            assert!(join.note("a") && join.note("b\n,2") && !join.note("d"));
            assert_eq!(join.unused(), 1);
            let mut reader = join.reader().unwrap();
            for (path, s) in [("c", ""), ("b\n,2", "y,\"\ny"), ("a", "x")] {
                let cells = reader.row(path).unwrap().unwrap();
                let text = cells[1].1.clone().into_text();
                assert_eq!((cells.len(), text.as_deref()), (2, Ok(s)));
            }
            assert!(reader.row("d").unwrap().is_err());
        }
    }

    #[test]
    fn two_rows_for_one_sample_are_refused() {
        let (_file, join, _) = open(".csv", "path,n\na,1\na,2\n").unwrap();
        assert!(join.reader().unwrap().row("a").unwrap().is_err());
        assert!(open(".csv", "name,n\na,1\n").is_err(), "no such column");
        let (_file, join, _) = open(".jsonl", "{\"path\":7,\"n\":1}").unwrap();
        let cells = join.reader().unwrap().row("7").unwrap().unwrap();
        assert_eq!(cells[0].1, Cell::Int(1));
    }
}
