//! The metadata of a cache: each way to its values leads through [`Cache::table`].

use super::{Cache, FileCheck, MOST_CHANGES, RESTLESS};
use crate::error::{Error, Result};
use crate::format::METADATA_FILE;
use crate::format::metadata::{Value, ValueRef};

impl Cache {
    /// The metadata of `sample` as `metadata.arrow` has it, in schema order; `None` for a null.
    ///
    /// # Errors
    /// [`Error::NoSuchSample`], or [`Error::Damaged`] when the file was changed in place.
    pub fn metadata(&self, sample: u64) -> Result<Vec<Option<Value>>> {
        let mut values = Vec::with_capacity(self.manifest.schema.len());
        self.for_each_value(sample, |_, value| {
            values.push(value.map(ValueRef::to_owned));
        })?;
        Ok(values)
    }

    /// Calls `take` with the position of each field in the schema and the value that
    /// `metadata.arrow` has for `sample`, `None` for a null.
    ///
    /// # Errors
    /// As [`Cache::metadata`]; what `take` has got must not be believed then.
    pub fn for_each_value(
        &self,
        sample: u64,
        mut take: impl FnMut(usize, Option<ValueRef<'_>>),
    ) -> Result<()> {
        let table = self.table()?;
        let row = table
            .row(sample)
            .filter(|_| sample < self.sample_count())
            .ok_or_else(|| self.no_such_sample(sample))?;
        for column in 0..self.manifest.schema.len() {
            let value = row.value(column);
            let value =
                value.map_err(|fault| fault.in_sample(&self.dir.join(METADATA_FILE), sample))?;
            take(column, value);
        }
        table.check()
    }

    /// Puts the metadata of `sample` into `out`, which is cleared first, as the JSON object that
    /// writers embed in the record.
    ///
    /// # Errors
    /// [`Error::NoSuchSample`], or [`Error::Damaged`] for a null or a file that was changed in place.
    pub fn write_metadata_json(&self, sample: u64, out: &mut Vec<u8>) -> Result<()> {
        if sample >= self.sample_count() {
            return Err(self.no_such_sample(sample));
        }
        let table = self.table()?;
        self.envelope
            .write_row(&table, sample, out)
            .map_err(|fault| fault.in_sample(&self.dir.join(METADATA_FILE), sample))?;
        table.check()
    }

    /// Puts the bytes of `metadata.arrow` from `offset` on into `out` and says how many there are.
    /// The file is read, not the mapping, so that a failing disk is an error.
    ///
    /// # Errors
    /// [`Error::Io`]; [`FaultKind::Replaced`](crate::error::FaultKind::Replaced) when it is another file than at first;
    /// [`FaultKind::Checksum`](crate::error::FaultKind::Checksum) when it was found wrong.
    pub fn read_metadata_file(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        let path = self.dir.join(METADATA_FILE);
        let file = self.stored_file(FileCheck::Metadata)?;
        let len = self.metadata.identity().len;
        let len = len.saturating_sub(offset).min(out.len() as u64);
        let len = usize::try_from(len).unwrap_or(0);
        let out = out.get_mut(..len).unwrap_or_default();
        self.gates.pass_metadata(self)?;
        for _ in 0..MOST_CHANGES {
            let known = self.gates.known_metadata();
            file.read_exact_at(out, offset).map_err(|source| {
                let action = format!("read {len} bytes at offset {offset}");
                Error::io(&path, action, source)
            })?;
            // When it was hashed since, what was read may be of another state.
            if self.gates.pass_file(self, FileCheck::Metadata, &file)? == known {
                return Ok(len);
            }
        }
        Err(Error::refused(&path, RESTLESS))
    }
}
