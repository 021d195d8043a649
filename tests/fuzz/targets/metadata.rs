//! metadata.arrow, read by one of a few schemas, and the same bytes as a foreign table for packing.
#![no_main]

use bytes::Bytes;
use datasetrt::format::metadata::{ForeignTable, Table};
use datasetrt_fuzz::{let_the_decoder_panic, schema};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: let_the_decoder_panic(), |data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else {
        return;
    };
    let bytes = Bytes::copy_from_slice(bytes);
    let schema = schema(*choice);
    if let Ok(table) = Table::open(bytes.clone(), &schema) {
        for sample in 0..table.rows().unwrap_or(2).min(1000) {
            let row = table.row(sample).expect("a row below their number");
            for column in 0..schema.len() {
                if let Ok(Some(value)) = row.value(column) {
                    assert_eq!(value.kind(), schema[column].kind);
                }
            }
            assert!(row.value(schema.len()).is_err());
        }
        assert!(schema.is_empty() || table.row(table.rows().unwrap_or(0)).is_none());
    }
    if let Ok(mut table) = ForeignTable::open(bytes) {
        let columns = table.columns().len();
        for _ in 0..1000 {
            match table.next_row() {
                Ok(Some(row)) => assert_eq!(row.len(), columns),
                _ => break,
            }
        }
    }
});
