//! Arrow IPC tables of other programs, files and streams, read row by row.

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::types::{
    ArrowDictionaryKeyType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrowPrimitiveType, BinaryArray, BinaryViewArray, BooleanArray, DictionaryArray,
    FixedSizeBinaryArray, LargeBinaryArray, LargeStringArray, PrimitiveArray, RecordBatch,
    StringArray, StringViewArray,
};
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{ArrowError, DataType};
use bytes::Bytes;

use super::cell::Cell;
use super::table_file::malformed;
use super::{flat, table_file};
use crate::error::Fault;

/// The rows of an Arrow IPC file or stream; one record batch at a time is in memory.
pub struct ForeignTable {
    batches: Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>,
    columns: Vec<Arc<str>>,
    batch: Option<RecordBatch>,
    row: usize,
}

impl ForeignTable {
    /// Opens the table in `bytes`.
    ///
    /// # Errors
    /// The reason, for a message.
    pub fn open(bytes: Bytes) -> Result<Self, String> {
        walled(|| {
            let is_file = bytes.starts_with(table_file::MAGIC);
            let framed = match is_file {
                true => table_file::check_foreign(&bytes),
                false => check_stream(&bytes),
            };
            framed
                .map_err(|fault| format!("expected {}, found {}", fault.expected, fault.found))?;
            let reader = Cursor::new(bytes);
            if is_file {
                let table = FileReader::try_new(reader, None).map_err(|e| e.to_string())?;
                let schema = table.schema();
                Ok(Self::new(&schema, Box::new(table)))
            } else {
                let table = StreamReader::try_new(reader, None)
                    .map_err(|e| format!("neither an Arrow IPC file nor a stream: {e}"))?;
                let schema = table.schema();
                Ok(Self::new(&schema, Box::new(table)))
            }
        })
    }

    fn new(
        schema: &arrow_schema::Schema,
        batches: Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>,
    ) -> Self {
        let names = schema.fields().iter();
        Self {
            batches,
            columns: names
                .map(|field| Arc::from(field.name().as_str()))
                .collect(),
            batch: None,
            row: 0,
        }
    }

    /// The names of the columns.
    #[must_use]
    pub fn columns(&self) -> &[Arc<str>] {
        &self.columns
    }

    /// The next row, in the order of the columns.
    ///
    /// # Errors
    /// The reason, for a message.
    pub fn next_row(&mut self) -> Result<Option<Vec<Cell>>, String> {
        loop {
            if let Some(batch) = &self.batch
                && self.row < batch.num_rows()
            {
                let row = self.row;
                self.row += 1;
                let columns = batch.columns().iter();
                return walled(|| Ok(columns.map(|column| cell(column, row)).collect())).map(Some);
            }
            let batches = &mut self.batches;
            let next = walled(|| batches.next().transpose().map_err(|e| e.to_string()))?;
            if next.is_none() {
                return Ok(None);
            }
            self.batch = next;
            self.row = 0;
        }
    }
}

impl std::fmt::Debug for ForeignTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForeignTable")
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}

/// Checks that each message of a stream, and its body, lie inside it: the reader makes room for them
/// by the lengths that they state. What it says better is left to it.
fn check_stream(bytes: &[u8]) -> Result<(), Fault> {
    let mut rest = bytes;
    loop {
        // Four bytes FF come first, but in old streams; a length of zero is the end.
        let start = rest.strip_prefix(&[0xFF; 4]).unwrap_or(rest);
        let Some((len, after)) = start.split_first_chunk() else {
            return Ok(());
        };
        let len = i32::from_le_bytes(*len);
        if len == 0 {
            return Ok(());
        }
        let too_long = |what: &str, len: i64| {
            let offset = (bytes.len() - after.len()) as u64;
            let expected = format!("{what} of an Arrow stream inside its {} bytes", bytes.len());
            malformed(expected, format!("a length of {len} bytes")).at(offset)
        };
        let message = usize::try_from(len).ok().and_then(|len| after.get(..len));
        let message = message.ok_or_else(|| too_long("a message", len.into()))?;
        let header = flat::message(message)
            .map_err(|error| malformed("a message of an Arrow stream", error.to_string()))?;
        let body = header.bodyLength();
        let end = usize::try_from(body)
            .ok()
            .and_then(|body| message.len().checked_add(body));
        rest = end
            .and_then(|end| after.get(end..))
            .ok_or_else(|| too_long("a body", body))?;
    }
}

/// The decoder panics on some malformed input.
fn walled<T>(decode: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or_else(|_| Err("malformed: the decoder panics on it".to_owned()))
}

fn cell(column: &dyn Array, row: usize) -> Cell {
    let any = column.as_any();
    if column.is_null(row) {
        return Cell::Null;
    }
    macro_rules! text {
        ($array:ty) => {
            any.downcast_ref::<$array>()
                .map(|array| Cell::Text(array.value(row).to_owned()))
        };
    }
    macro_rules! bytes {
        ($array:ty) => {
            any.downcast_ref::<$array>()
                .map(|array| Cell::Bytes(array.value(row).to_vec()))
        };
    }
    let found = match column.data_type() {
        DataType::Null => Some(Cell::Null),
        DataType::Boolean => any
            .downcast_ref::<BooleanArray>()
            .map(|array| Cell::Bool(array.value(row))),
        DataType::Int8 => primitive::<Int8Type>(column, row).map(Cell::integer),
        DataType::Int16 => primitive::<Int16Type>(column, row).map(Cell::integer),
        DataType::Int32 => primitive::<Int32Type>(column, row).map(Cell::integer),
        DataType::Int64 => primitive::<Int64Type>(column, row).map(Cell::integer),
        DataType::UInt8 => primitive::<UInt8Type>(column, row).map(Cell::integer),
        DataType::UInt16 => primitive::<UInt16Type>(column, row).map(Cell::integer),
        DataType::UInt32 => primitive::<UInt32Type>(column, row).map(Cell::integer),
        DataType::UInt64 => primitive::<UInt64Type>(column, row).map(Cell::integer),
        DataType::Float16 => {
            primitive::<Float16Type>(column, row).map(|value| Cell::Float(value.to_f64()))
        }
        DataType::Float32 => {
            primitive::<Float32Type>(column, row).map(|value| Cell::Float(value.into()))
        }
        DataType::Float64 => primitive::<Float64Type>(column, row).map(Cell::Float),
        DataType::Utf8 => text!(StringArray),
        DataType::LargeUtf8 => text!(LargeStringArray),
        DataType::Utf8View => text!(StringViewArray),
        DataType::Binary => bytes!(BinaryArray),
        DataType::LargeBinary => bytes!(LargeBinaryArray),
        DataType::BinaryView => bytes!(BinaryViewArray),
        DataType::FixedSizeBinary(_) => bytes!(FixedSizeBinaryArray),
        DataType::Dictionary(key, _) => match key.as_ref() {
            DataType::Int8 => entry::<Int8Type>(column, row),
            DataType::Int16 => entry::<Int16Type>(column, row),
            DataType::Int32 => entry::<Int32Type>(column, row),
            DataType::Int64 => entry::<Int64Type>(column, row),
            DataType::UInt8 => entry::<UInt8Type>(column, row),
            DataType::UInt16 => entry::<UInt16Type>(column, row),
            DataType::UInt32 => entry::<UInt32Type>(column, row),
            DataType::UInt64 => entry::<UInt64Type>(column, row),
            _ => None,
        },
        _ => None,
    };
    found.unwrap_or_else(|| Cell::Other {
        what: match column.data_type() {
            DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => "a list",
            DataType::Struct(_) => "a struct",
            DataType::Map(..) => "a map",
            DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => "a date or time",
            DataType::Decimal128(..) | DataType::Decimal256(..) => "a decimal number",
            _ => "a value of a type without counterpart",
        },
        text: column.data_type().to_string(),
    })
}

fn primitive<T: ArrowPrimitiveType>(column: &dyn Array, row: usize) -> Option<T::Native> {
    let array = column.as_any().downcast_ref::<PrimitiveArray<T>>()?;
    array.values().get(row).copied()
}

fn entry<K: ArrowDictionaryKeyType>(column: &dyn Array, row: usize) -> Option<Cell> {
    let array = column.as_any().downcast_ref::<DictionaryArray<K>>()?;
    Some(cell(array.values(), array.key(row)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::ArrayRef;
    use arrow_ipc::writer::{FileWriter, StreamWriter};

    fn batch() -> RecordBatch {
        let columns: Vec<(&str, ArrayRef)> = vec![
            (
                "u",
                Arc::new(arrow_array::UInt64Array::from(vec![7, u64::MAX])),
            ),
            (
                "f",
                Arc::new(arrow_array::Float32Array::from(vec![Some(0.5), None])),
            ),
            (
                "s",
                Arc::new(StringViewArray::from(vec!["a", "a longer piece of text"])),
            ),
            (
                "d",
                Arc::new(
                    vec!["x", "y"]
                        .into_iter()
                        .collect::<DictionaryArray<Int8Type>>(),
                ),
            ),
            ("b", Arc::new(BinaryArray::from(vec![&b"\xff"[..], b""]))),
            ("t", Arc::new(arrow_array::Date32Array::from(vec![1, 2]))),
        ];
        RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(name, array)| (name, array, true)),
        )
        .unwrap()
    }

    #[test]
    fn files_and_streams_give_the_same_rows() {
        let batch = batch();
        let mut file = FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        let mut stream = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        for _ in 0..2 {
            file.write(&batch).unwrap();
            stream.write(&batch).unwrap();
        }
        let (file, stream) = (file.into_inner().unwrap(), stream.into_inner().unwrap());
        for bytes in [file, stream] {
            let mut table = ForeignTable::open(bytes.into()).unwrap();
            assert_eq!(table.columns().len(), 6);
            let first = table.next_row().unwrap().unwrap();
            assert_eq!(first[0], Cell::Int(7));
            assert_eq!(first[1], Cell::Float(0.5));
            assert_eq!(first[3], Cell::Text("x".into()));
            assert_eq!(first[4], Cell::Bytes(vec![255]));
            assert!(matches!(
                first[5],
                Cell::Other {
                    what: "a date or time",
                    ..
                }
            ));
            let second = table.next_row().unwrap().unwrap();
            assert_eq!(second[0], Cell::BigInt(u64::MAX.to_string()));
            assert_eq!(second[1], Cell::Null);
            assert_eq!(second[2], Cell::Text("a longer piece of text".into()));
            assert!(table.next_row().unwrap().is_some() && table.next_row().unwrap().is_some());
            assert!(table.next_row().unwrap().is_none());
        }
    }

    #[test]
    fn what_is_no_table_is_refused() {
        for bytes in [&b""[..], b"ARROW1", b"hello, world", &[0xFF; 100]] {
            assert!(ForeignTable::open(Bytes::copy_from_slice(bytes)).is_err());
        }
    }
}
