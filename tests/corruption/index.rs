//! Index rows that point where there is no record, and offsets that need more than 32 bits.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use datasetrt::error::{Error, FaultKind};
use datasetrt::format::index::IndexRow;

use crate::alloc::within;
use crate::common::deliver;
use crate::common::fixture::{Fixture, TestCache, record_of};
use crate::{fault_at_open, outcome, refused_samples};

/// Most that refusing may allocate at once, in bytes.
const LITTLE: usize = 1 << 20;

#[test]
fn rows_outside_their_shard_are_refused_at_the_start_with_their_number() {
    let whole = Fixture::tiny().build();
    let len = whole.read("shards/000000.bin").len() as u64;
    for (shard, offset, length) in [
        (0, u64::MAX - 7, 16),
        (0, u64::MAX, 1),
        (0, len - 4, 8),
        (0, len, 8),
        (0, 0, len + 1),
        (1 << 32, 0, len),
        (1, 0, 8),
        (u64::MAX, 0, 8),
        (0, 0, 0),
        (0, 0, 7),
        (0, len, 0),
        (0, 0, 1 << 63),
        (0, 0, u64::MAX),
        (0, 1 << 63, 8),
    ] {
        let cache = Fixture::tiny().build();
        cache.set_row(
            1,
            IndexRow {
                shard,
                offset,
                length,
            },
        );
        cache.reseal();
        let error = within(LITTLE, || cache.open().unwrap_err());
        match error {
            Error::Damaged {
                sample: Some(1),
                fault,
                path,
            } => {
                assert_eq!((fault.kind, fault.offset), (FaultKind::IndexRow, Some(24)));
                assert!(path.ends_with("index.bin"));
            }
            other => panic!("({shard}, {offset}, {length}): {other:?}"),
        }
    }
}

#[test]
fn counts_that_overflow_and_files_of_broken_rows_are_refused() {
    for count in [1 << 63, u64::MAX, u64::MAX / 24 + 1, 2, 4] {
        let cache = Fixture::tiny().build();
        cache.set_manifest("sample_count", count);
        assert_eq!(
            within(LITTLE, || fault_at_open(&cache)),
            FaultKind::RowCount,
            "{count}"
        );
    }
    let cache = Fixture::new().payloads(["x"]).build();
    cache.append("index.bin", b"\0");
    cache.reseal();
    assert_eq!(cache.read("index.bin").len(), 25);
    assert_eq!(outcome(&cache), "open: RowCount index.bin");
}

#[test]
fn metadata_lengths_that_leave_their_record_are_errors_of_that_sample() {
    for compression in [Fixture::tiny(), Fixture::tiny().lz4()] {
        let whole = compression.clone().build();
        let length = whole.row(1).length;
        for stated in [
            u64::MAX,
            u64::MAX - 7,
            u64::MAX - 8,
            length - 7,
            length,
            1 << 40,
            1 << 63,
        ] {
            let cache = compression.clone().build();
            let start = cache.row(1).offset as usize;
            cache.edit("shards/000000.bin", |bytes| {
                bytes[start..start + 8].copy_from_slice(&stated.to_le_bytes());
            });
            cache.reseal_sums();
            let refused = within(LITTLE, || refused_samples(&cache));
            assert_eq!(refused, ["RecordHeader shards/000000.bin (1)"], "{stated}");
        }
    }
}

#[test]
fn a_row_may_end_exactly_where_its_shard_ends_and_not_one_byte_later() {
    let cache = Fixture::tiny().build();
    let row = cache.row(2);
    assert_eq!(
        row.end(),
        Some(cache.read("shards/000000.bin").len() as u64)
    );
    assert_eq!(outcome(&cache), "right");
    cache.set_row(
        2,
        IndexRow {
            length: row.length + 1,
            ..row
        },
    );
    cache.reseal();
    assert_eq!(outcome(&cache), "open: IndexRow index.bin (2)");
}

#[test]
fn of_many_bad_rows_of_a_large_index_the_first_is_named() {
    // More rows than are looked at in one piece.
    const ROWS: u64 = 700_000;
    let cache = Fixture::tiny().build();
    let row = cache.row(0);
    let rows = vec![row.encode(); ROWS as usize];
    cache.put("index.bin", rows.concat());
    cache.set_manifest("sample_count", ROWS);
    let bad = IndexRow { shard: 9, ..row };
    let found = || match cache.open().map(drop) {
        Err(Error::Damaged { sample, fault, .. }) => (fault.kind, fault.offset, sample),
        other => panic!("{other:?}"),
    };
    for sample in [699_999, 699_998, 600_000, 262_144, 262_143, 0] {
        cache.set_row(sample, bad);
        assert_eq!(
            found(),
            (FaultKind::IndexRow, Some(sample * 24), Some(sample))
        );
    }
    for sample in [699_999, 699_998, 600_000, 262_144, 262_143, 0] {
        cache.set_row(sample, row);
    }
    // The index is right now, and the metadata has other rows.
    assert_eq!(found().0, FaultKind::RowCount);
}

#[test]
fn a_record_beyond_four_gib_is_read_right() {
    // Offsets kept in 32 bits wrapped, and gave other samples' bytes.
    const OFFSET: u64 = (4 << 30) + 17;
    for fixture in [Fixture::tiny(), Fixture::tiny().lz4()] {
        let cache = fixture.build();
        move_record(&cache, 1, OFFSET);
        let error = within(LITTLE, || cache.open().map(drop));
        error.unwrap_or_else(|e| panic!("{}", e.chain()));
        assert!(refused_samples(&cache).is_empty());
        let open = cache.open().unwrap();
        assert!(deliver(&open, 1).unwrap().same(&cache.expected(1)));
    }
}

/// Puts the record of `sample` at `offset` of a shard that is made 5 GiB long, mostly a hole.
fn move_record(cache: &TestCache, sample: u64, offset: u64) {
    let (json, stored) = cache.record(sample);
    let row = cache.row(sample);
    let shard = OpenOptions::new()
        .write(true)
        .open(cache.path("shards/000000.bin"))
        .unwrap();
    shard.set_len(5 << 30).unwrap();
    shard
        .write_all_at(&vec![b'#'; row.length as usize], row.offset)
        .unwrap();
    shard
        .write_all_at(&record_of(&json, &stored), offset)
        .unwrap();
    cache.set_row(sample, IndexRow { offset, ..row });
    cache.set_manifest("shards/0/byte_len", 5 << 30);
}
