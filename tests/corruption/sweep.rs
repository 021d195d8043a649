//! Every byte of a tiny cache changed, every file cut at every length: no panic, no allocation by a
//! stated length, no other bytes.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use bytes::Bytes;
use datasetrt::dataset::Dataset;
use datasetrt::format::metadata::Table;

use crate::alloc::within;
use crate::common::arrow_rewrite::rewrite;
use crate::common::deliver;
use crate::common::fixture::{Fixture, TestCache};

const FILES: [&str; 4] = [
    "manifest.json",
    "metadata.arrow",
    "index.bin",
    "shards/000000.bin",
];
const MASKS: [u8; 3] = [0xFF, 0x80, 0x01];
/// Most that any damage may make us allocate at once, in bytes. Validation reads 1 MiB at a time.
const LIMIT: usize = 4 << 20;

/// The decoder of tables panics on some of the damage, behind the wall of `format::metadata`. Reports
/// of that would bury the others.
fn quiet_decoder() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = take_hook();
        set_hook(Box::new(move |panic| {
            let inside = |place: &std::panic::Location<'_>| place.file().contains("/arrow-");
            if !panic.location().is_some_and(inside) {
                report(panic);
            }
        }));
    });
}

/// How a damaged cache is treated before it is opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sums {
    Stale,
    Resealed,
}

/// Where in the shard the stored payload of each sample lies.
fn payload_ranges(cache: &TestCache) -> Vec<Range<usize>> {
    let ranges = (0..cache.samples.len() as u64).map(|sample| {
        let (json, _) = cache.record(sample);
        let row = cache.row(sample);
        let start = row.offset as usize + 8 + json.len();
        start..row.end().unwrap() as usize
    });
    ranges.collect()
}

/// The sample that a changed byte of `file` may change, beyond the power of anything but a sum: its
/// own payload, and, without compression, the length of its record in the index.
fn touched(cache: &TestCache, file: &str, at: usize, ranges: &[Range<usize>]) -> Option<u64> {
    let plain = cache.manifest().text_at("shards/0/compression/algo") == "none";
    match file {
        "shards/000000.bin" => ranges.iter().position(|range| range.contains(&at)),
        "index.bin" if plain && at % 24 >= 16 => Some(at / 24),
        _ => None,
    }
    .map(|sample| sample as u64)
}

/// Opens, reads everything, validates, reads everything again. `touched` is the sample whose own
/// payload was changed; it alone may come back changed, and not with stale sums after validation.
/// Says whether the cache passed that.
fn examine(cache: &TestCache, sums: Sums, touched: Option<u64>) -> bool {
    // Lists are opened on other threads, whose allocations nobody here would see.
    let alone = cache.open();
    let Ok(dataset) = Dataset::open(std::slice::from_ref(&cache.dir)) else {
        assert!(alone.is_err(), "refused by the list only");
        return false;
    };
    read_all(cache, &dataset, touched);
    let mut validated = dataset;
    let passes = validated.validate(false, &|_| ()).is_ok();
    if passes {
        let touched = touched.filter(|_| sums == Sums::Resealed);
        read_all(cache, &validated, touched);
    }
    passes
}

fn read_all(cache: &TestCache, dataset: &Dataset, touched: Option<u64>) {
    let open = &dataset.entries()[0].cache;
    assert_eq!(open.sample_count(), cache.samples.len() as u64);
    for sample in 0..open.sample_count() {
        if let Ok(found) = deliver(open, sample)
            && !found.same(&cache.expected(sample))
        {
            assert_eq!(Some(sample), touched, "sample {sample} came back changed");
        }
    }
}

fn assert_survives(cache: &TestCache, what: &str, sums: Sums, touched: Option<u64>) -> bool {
    catch_unwind(AssertUnwindSafe(|| {
        within(LIMIT, || examine(cache, sums, touched))
    }))
    .unwrap_or_else(|_| panic!("{what}, {sums:?}: see the panic above"))
}

fn sweep(fixture: Fixture) {
    quiet_decoder();
    let cache = fixture.build();
    let ranges = payload_ranges(&cache);
    for file in FILES {
        let whole = cache.read(file);
        let manifest = cache.read("manifest.json");
        for at in 0..whole.len() {
            let touched = touched(&cache, file, at, &ranges);
            for mask in MASKS {
                let mut bytes = whole.clone();
                bytes[at] ^= mask;
                cache.put(file, &bytes);
                let what = format!("{file}, byte {at}, mask {mask:#x}");
                let passes = assert_survives(&cache, &what, Sums::Stale, touched);
                if file != "manifest.json" {
                    assert!(!passes, "{what}: stale sums pass");
                    cache.reseal();
                    assert_survives(&cache, &what, Sums::Resealed, touched);
                    cache.put("manifest.json", &manifest);
                }
                cache.put(file, &whole);
            }
        }
    }
}

#[test]
fn every_byte_of_an_lz4_cache_may_be_wrong() {
    // A panic in one parse left a request without a reply, or took the whole mount with it.
    sweep(Fixture::tiny().lz4());
}

#[test]
fn every_byte_of_an_uncompressed_cache_of_format_2_may_be_wrong() {
    sweep(Fixture::tiny().v2());
}

#[test]
fn every_file_may_be_cut_anywhere() {
    quiet_decoder();
    let cache = Fixture::tiny().lz4().build();
    for file in FILES {
        let whole = cache.read(file);
        let manifest = cache.read("manifest.json");
        for len in 0..whole.len() {
            cache.put(file, &whole[..len]);
            let what = format!("{file}, cut to {len} bytes");
            assert_survives(&cache, &what, Sums::Stale, None);
            assert!(cache.open().is_err(), "{what}: opens");
            if file != "manifest.json" {
                cache.reseal();
                assert_survives(&cache, &what, Sums::Resealed, None);
                assert!(cache.open().is_err(), "{what}: opens when resealed");
                cache.put("manifest.json", &manifest);
            }
        }
        cache.put(file, &whole);
    }
}

/// Reads every value of every row.
fn read_table(bytes: Vec<u8>, cache: &TestCache) {
    within(LIMIT, || {
        let Ok(table) = Table::open(Bytes::from(bytes), &cache.schema) else {
            return;
        };
        for row in 0..table.rows().unwrap().min(100) {
            for column in 0..cache.schema.len() {
                let _ = table.row(row).unwrap().value(column);
            }
        }
    });
}

#[test]
fn every_byte_of_a_table_of_other_writers_may_be_wrong() {
    quiet_decoder();
    let cache = Fixture::tiny().build();
    for how in [
        "plain",
        "large_utf8",
        "utf8_view",
        "three_batches",
        "extra_column",
        "dictionary",
        "lz4_compressed",
        "null_in_first_row",
    ] {
        let whole = rewrite(&cache.read("metadata.arrow"), how);
        for at in 0..whole.len() {
            for mask in MASKS {
                let mut bytes = whole.clone();
                bytes[at] ^= mask;
                let read = catch_unwind(AssertUnwindSafe(|| read_table(bytes, &cache)));
                assert!(read.is_ok(), "{how}, byte {at}, mask {mask:#x}");
            }
        }
    }
}

#[test]
fn numbers_of_a_table_may_be_anything() {
    quiet_decoder();
    // One changed byte rarely makes a length that is both large and plausible.
    let cache = Fixture::tiny().build();
    let extremes = [
        0_u64,
        1,
        7,
        8,
        1 << 16,
        1 << 31,
        1 << 32,
        1 << 40,
        1 << 62,
        1 << 63,
        u64::MAX,
    ];
    for how in ["plain", "large_utf8", "utf8_view", "lz4_compressed"] {
        let whole = rewrite(&cache.read("metadata.arrow"), how);
        for at in (0..whole.len() - 8).step_by(4) {
            for value in extremes {
                for width in [4, 8] {
                    let mut bytes = whole.clone();
                    bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
                    let read = catch_unwind(AssertUnwindSafe(|| read_table(bytes, &cache)));
                    assert!(read.is_ok(), "{how}, {value:#x} in {width} bytes at {at}");
                }
            }
        }
    }
}
