//! The frame of an Arrow IPC file, checked before arrow decodes anything.
//!
//! ```text
//! | "ARROW1" 0 0 | messages ... | footer (flatbuffer) | footer length: i32 LE | "ARROW1" |
//! ```
//!
//! arrow sizes buffers by lengths from the file and panics on some malformed input. So each
//! length is bounded by the file here first, and the decoder runs behind a wall that turns a panic
//! into a fault. What a decoded table holds on the heap stays below a small multiple of the file.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::{Block, MetadataVersion};
use arrow_schema::{ArrowError, DataType, Schema};
use bytes::Bytes;

use super::{Field, flat, holds};
use crate::error::{Fault, FaultKind};
use crate::parallel::in_parallel;

pub(super) const MAGIC: &[u8; 6] = b"ARROW1";
/// Magic and padding before the first message, in bytes.
const HEAD_LEN: usize = 8;
/// Footer length and magic at the end, in bytes.
const TAIL_LEN: usize = 10;

pub(super) struct TableFile {
    buffer: Buffer,
    schema: Schema,
    version: MetadataVersion,
    blocks: Vec<Block>,
}

impl TableFile {
    pub(super) fn open(bytes: Bytes) -> Result<Self, Fault> {
        let (footer_start, footer_end) = footer_range(&bytes)?;
        walled(|| {
            let raw = bytes.get(footer_start..footer_end).unwrap_or_default();
            let footer =
                flat::footer(raw).map_err(|error| malformed("a footer", error.to_string()))?;
            let schema = footer
                .schema()
                .ok_or_else(|| malformed("a schema in the footer", "none"))?;
            if !schema.endianness().equals_to_target_endianness() {
                return Err(malformed(
                    "columns in this machine's byte order",
                    "the other",
                ));
            }
            let schema = arrow_ipc::convert::try_fb_to_schema(schema)
                .map_err(|error| malformed("a schema in the footer", error.to_string()))?;
            let blocks: Vec<Block> = footer.recordBatches().iter().flatten().copied().collect();
            check_blocks(&blocks, footer_start)?;
            Ok(Self {
                version: footer.version(),
                buffer: Buffer::from(bytes.clone()),
                schema,
                blocks,
            })
        })
    }

    /// The columns of `fields` of each record batch, in order, decoded by all cores: arrow looks at
    /// every offset and every text.
    pub(super) fn batches(self, fields: &[Field]) -> Result<Vec<RecordBatch>, Fault> {
        self.check_columns(fields)?;
        let decoder = FileDecoder::new(Arc::new(self.schema), self.version)
            .with_projection((0..fields.len()).collect());
        let decode = |block: &Block| {
            let (start, len) = extent(block);
            let data = self.buffer.slice_with_length(start, len);
            walled(|| {
                check_message(block, &data)?;
                decoder
                    .read_record_batch(block, &data)
                    .map_err(|error| arrow_fault(&error, block))?
                    .ok_or_else(|| malformed("a record batch", "an empty message"))
            })
        };
        let batches = in_parallel(self.blocks.len(), |n| self.blocks.get(n).map(decode));
        batches.into_iter().flatten().collect()
    }

    fn check_columns(&self, fields: &[Field]) -> Result<(), Fault> {
        for (n, field) in fields.iter().enumerate() {
            let expected = format!("column {n} to be {:?} ({})", field.name, field.kind.name());
            let Some(column) = self.schema.fields().get(n) else {
                return Err(malformed(
                    expected,
                    format!("{} columns", self.schema.fields().len()),
                ));
            };
            if column.name() != &field.name || !holds(column.data_type(), field.kind) {
                let found = match column.data_type() {
                    DataType::Dictionary(..) => format!(
                        "dictionary-encoded column {:?} (write it without dictionaries)",
                        column.name()
                    ),
                    other => format!("{:?} ({other})", column.name()),
                };
                return Err(malformed(expected, found));
            }
        }
        Ok(())
    }
}

/// Checks the frame of a file that arrow's own reader reads: it makes room for record batches and
/// dictionaries by the lengths that the footer states.
///
/// # Errors
/// [`FaultKind::Table`].
pub(super) fn check_foreign(bytes: &[u8]) -> Result<(), Fault> {
    let (start, end) = footer_range(bytes)?;
    let raw = bytes.get(start..end).unwrap_or_default();
    let footer = flat::footer(raw).map_err(|error| malformed("a footer", error.to_string()))?;
    for blocks in [footer.dictionaries(), footer.recordBatches()] {
        let blocks: Vec<Block> = blocks.iter().flatten().copied().collect();
        check_blocks(&blocks, start)?;
    }
    Ok(())
}

/// Where the footer lies, from the file's last ten bytes.
fn footer_range(bytes: &[u8]) -> Result<(usize, usize), Fault> {
    let framed =
        bytes.len() >= HEAD_LEN + TAIL_LEN && bytes.starts_with(MAGIC) && bytes.ends_with(MAGIC);
    if !framed {
        return Err(malformed(
            "an Arrow IPC file (ARROW1 at both ends)",
            format!("{} bytes without that frame", bytes.len()),
        ));
    }
    let end = bytes.len() - TAIL_LEN;
    let length = bytes
        .get(end..)
        .and_then(|tail| tail.first_chunk::<4>())
        .map(|length| i32::from_le_bytes(*length))
        .unwrap_or_default();
    usize::try_from(length)
        .ok()
        .and_then(|length| end.checked_sub(length))
        .filter(|&start| start >= HEAD_LEN && start < end)
        .map(|start| (start, end))
        .ok_or_else(|| {
            malformed(
                format!("a footer of 1 to {} bytes", end - HEAD_LEN),
                format!("a footer length of {length}"),
            )
            .at(end as u64)
        })
}

/// Record batches must lie in the file one after another, so that their sum is bounded by it.
fn check_blocks(blocks: &[Block], footer_start: usize) -> Result<(), Fault> {
    let mut free = HEAD_LEN as u64;
    for (n, block) in blocks.iter().enumerate() {
        let end = u64::try_from(block.offset())
            .ok()
            .filter(|&start| start >= free)
            .zip(u64::try_from(block.metaDataLength()).ok())
            .zip(u64::try_from(block.bodyLength()).ok())
            .and_then(|((start, meta), body)| start.checked_add(meta)?.checked_add(body))
            .filter(|&end| end <= footer_start as u64);
        let Some(end) = end else {
            return Err(malformed(
                format!("record batch {n} between bytes {free} and {footer_start}"),
                format!(
                    "offset {}, metadata length {}, body length {}",
                    block.offset(),
                    block.metaDataLength(),
                    block.bodyLength()
                ),
            ));
        };
        free = end;
    }
    Ok(())
}

/// Start and length of a block that [`check_blocks`] accepted.
fn extent(block: &Block) -> (usize, usize) {
    let sum = i64::from(block.metaDataLength()) + block.bodyLength();
    (
        usize::try_from(block.offset()).unwrap_or(0),
        usize::try_from(sum).unwrap_or(0),
    )
}

/// Compressed bodies are refused by name; the buffers of a batch must fit into its body together,
/// so that copies made for alignment are bounded.
fn check_message(block: &Block, data: &[u8]) -> Result<(), Fault> {
    let at = u64::try_from(block.offset()).unwrap_or(0);
    let meta_len = usize::try_from(block.metaDataLength()).unwrap_or(0);
    let meta = data.get(..meta_len).unwrap_or_default();
    // A message starts with its length, in newer files after four bytes FF.
    let message = match meta.strip_prefix(&[0xFF; 4]) {
        Some(rest) => rest.get(4..),
        None => meta.get(4..),
    };
    let message = message
        .ok_or_else(|| malformed("a message", "fewer than 8 bytes").at(at))
        .and_then(|bytes| {
            flat::message(bytes).map_err(|error| malformed("a message", error.to_string()).at(at))
        })?;
    let batch = message
        .header_as_record_batch()
        .ok_or_else(|| malformed("a record batch", "another message").at(at))?;
    if let Some(compression) = batch.compression() {
        return Err(malformed(
            "uncompressed record batches",
            format!(
                "bodies compressed with {} (write the table without compression)",
                compression
                    .codec()
                    .variant_name()
                    .unwrap_or("an unknown codec")
            ),
        )
        .at(at));
    }
    let body = u64::try_from(block.bodyLength()).unwrap_or(0);
    let buffers = batch
        .buffers()
        .iter()
        .flatten()
        .try_fold(0_u64, |sum, buffer| {
            let start = u64::try_from(buffer.offset()).ok()?;
            let len = u64::try_from(buffer.length()).ok()?;
            start.checked_add(len).filter(|&end| end <= body)?;
            sum.checked_add(len)
        });
    match buffers {
        Some(sum) if sum <= body && batch.length() >= 0 => Ok(()),
        _ => Err(malformed(
            format!("buffers inside a body of {body} bytes"),
            "buffers that do not fit",
        )
        .at(at)),
    }
}

fn walled<T>(decode: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| {
        Err(malformed(
            "a well-formed table",
            "one that the decoder panics on",
        ))
    })
}

pub(super) fn malformed(expected: impl Into<String>, found: impl Into<String>) -> Fault {
    Fault::new(FaultKind::Table, expected, found)
}

fn arrow_fault(error: &ArrowError, block: &Block) -> Fault {
    malformed("a record batch of the file's schema", error.to_string())
        .at(u64::try_from(block.offset()).unwrap_or(0))
}
