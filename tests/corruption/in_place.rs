//! Files that are changed in place while they are mapped: each access copes with what is there then.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use datasetrt::cache::Cache;

use crate::alloc::within;
use crate::common::arrow_rewrite::rewrite;
use crate::common::deliver;
use crate::common::fixture::{Fixture, TestCache};

/// Changes each byte of `file` in turn under an open cache and reads everything.
fn change_each_byte(cache: &TestCache, file: &str, may_differ: impl Fn(u64, usize) -> bool) {
    let open: Cache = cache.open().unwrap();
    let bytes = cache.read(file);
    let handle: File = OpenOptions::new()
        .write(true)
        .open(cache.path(file))
        .unwrap();
    for (at, byte) in bytes.iter().enumerate() {
        for mask in [0xFF, 0x80, 0x01] {
            handle.write_all_at(&[byte ^ mask], at as u64).unwrap();
            let read = catch_unwind(AssertUnwindSafe(|| {
                within(1 << 20, || {
                    for sample in 0..open.sample_count() {
                        // Without compression a record's length is that of its payload.
                        if may_differ(sample, at) {
                            let _ = deliver(&open, sample);
                        } else if let Ok(found) = deliver(&open, sample) {
                            assert_eq!(found.payload, cache.expected(sample).payload);
                        }
                    }
                });
            }));
            assert!(read.is_ok(), "{file}, byte {at}, mask {mask:#x}");
            handle.write_all_at(&[*byte], at as u64).unwrap();
        }
    }
}

#[test]
fn a_table_changed_under_its_mapping_is_never_trusted() {
    for how in ["plain", "large_utf8", "utf8_view", "three_batches"] {
        let cache = Fixture::tiny().build();
        cache.edit("metadata.arrow", |bytes| *bytes = rewrite(bytes, how));
        cache.reseal();
        change_each_byte(&cache, "metadata.arrow", |_, _| false);
    }
}

#[test]
fn an_index_changed_under_its_mapping_is_never_trusted() {
    change_each_byte(&Fixture::tiny().lz4().build(), "index.bin", |_, _| false);
    change_each_byte(&Fixture::tiny().build(), "index.bin", |sample, at| {
        at as u64 / 24 == sample && at % 24 >= 16
    });
}
