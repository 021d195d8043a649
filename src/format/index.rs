//! Rows of `index.bin` (docs/format.md, "index.bin").
//!
//! ```text
//! byte 0         8         16        24
//!      | shard   | offset  | length  |     three u64, little-endian
//! ```

use std::ops::Range;

/// Bytes per row.
pub const ROW_LEN: usize = 24;
/// [`ROW_LEN`] as file lengths count.
pub const ROW_LEN_U64: u64 = 24;

/// Where one sample's record lies. Nothing here is checked against a shard.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IndexRow {
    /// Position of the shard in the manifest's list.
    pub shard: u64,
    /// Byte offset of the record in the shard.
    pub offset: u64,
    /// Byte length of the whole record.
    pub length: u64,
}

impl IndexRow {
    /// Decodes one row.
    #[must_use]
    pub fn decode(bytes: &[u8; ROW_LEN]) -> Self {
        let field = |n: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(bytes.get(n * 8..n * 8 + 8).unwrap_or(&[0; 8]));
            u64::from_le_bytes(field)
        };
        Self {
            shard: field(0),
            offset: field(1),
            length: field(2),
        }
    }

    /// Encodes the row.
    #[must_use]
    pub fn encode(self) -> [u8; ROW_LEN] {
        let mut bytes = [0; ROW_LEN];
        for (slot, field) in bytes
            .chunks_exact_mut(8)
            .zip([self.shard, self.offset, self.length])
        {
            slot.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    /// The first byte after the record, unless that overflows.
    #[must_use]
    pub fn end(self) -> Option<u64> {
        self.offset.checked_add(self.length)
    }
}

/// The rows of a whole index, decoded one by one as they are asked for.
#[derive(Clone, Copy, Debug)]
pub struct IndexView<'a> {
    rows: &'a [[u8; ROW_LEN]],
}

impl<'a> IndexView<'a> {
    /// A view over `bytes`; bytes after the last whole row are not part of it.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            rows: bytes.as_chunks().0,
        }
    }

    /// Row `sample`, when there is one.
    #[must_use]
    pub fn row(&self, sample: u64) -> Option<IndexRow> {
        let row = self.rows.get(usize::try_from(sample).ok()?)?;
        Some(IndexRow::decode(row))
    }

    /// The rows of `samples` in order; those that there are not are left out.
    pub fn range(self, samples: Range<u64>) -> impl ExactSizeIterator<Item = IndexRow> + 'a {
        let place = |sample| {
            usize::try_from(sample)
                .unwrap_or(usize::MAX)
                .min(self.rows.len())
        };
        let rows = self.rows.get(place(samples.start)..place(samples.end));
        rows.unwrap_or_default().iter().map(IndexRow::decode)
    }

    /// All rows in order.
    pub fn rows(self) -> impl ExactSizeIterator<Item = IndexRow> + 'a {
        self.rows.iter().map(IndexRow::decode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_three_little_endian_numbers() {
        let row = IndexRow {
            shard: 1,
            offset: 0x0203,
            length: u64::MAX,
        };
        let bytes = row.encode();
        assert_eq!(bytes[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[8..16], [3, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..], [255; 8]);
        assert_eq!(IndexRow::decode(&bytes), row);
        assert_eq!(row.end(), None);
    }

    #[test]
    fn a_view_has_whole_rows_only() {
        let view = IndexView::new(&[0; 49]);
        assert_eq!(view.rows().len(), 2);
        assert_eq!(view.range(1..9).len(), 1);
        assert_eq!(
            (view.range(2..9).len(), view.range(u64::MAX..u64::MAX).len()),
            (0, 0)
        );
        assert!(view.row(1).is_some() && view.row(2).is_none() && view.row(u64::MAX).is_none());
    }
}
