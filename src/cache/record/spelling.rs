//! The usual spelling of a sample's metadata, in no more memory than its record has room for.

use super::Cache;
use crate::error::{Error, Fault, FaultKind, Result};
use crate::format::METADATA_FILE;
use crate::format::envelope::RowError;
use crate::format::index::IndexRow;
use crate::format::record::{HEADER_LEN, metadata_len};
use crate::storage::StoredFile;

/// Up to this many bytes the record's length is bound enough; for more its header is asked.
const LARGE: u64 = 256 << 10;

impl Cache {
    /// Puts the usual spelling into `out`. A table may name strings of any length, as a sparse file
    /// costs nobody anything: what the record has no room for is not spelled.
    pub(super) fn write_usual(
        &self,
        sample: u64,
        row: IndexRow,
        shard: usize,
        file: &StoredFile,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let room = row.length.saturating_sub(HEADER_LEN);
        let mut most = room.min(LARGE);
        let mut written = self
            .envelope
            .write_row_within(&self.table, sample, most, out);
        if room > LARGE && matches!(written, Err(RowError::TooLong)) {
            let mut header = [0; 8];
            self.read_at(shard, file, &mut header, row.offset)?;
            most = metadata_len(header, row.length)
                .map_err(|fault| self.in_record(fault, sample, shard, row.offset))?;
            written = self
                .envelope
                .write_row_within(&self.table, sample, most, out);
        }
        written.map_err(|error| match error {
            RowError::Fault(fault) => fault.in_sample(&self.dir.join(METADATA_FILE), sample),
            RowError::NoMemory => {
                Error::no_memory(self.dir.join(METADATA_FILE), Some(sample), most)
            }
            RowError::TooLong => {
                let expected = "the row of metadata.arrow, which is longer";
                let found = format!("at most {most} bytes of JSON");
                let fault = Fault::new(FaultKind::Envelope, expected, found);
                self.in_record(fault, sample, shard, row.offset)
            }
        })
    }
}
