//! An index row and the shard that it points into, as a cache reads them. The rest of the cache is sound,
//! so what comes out is the payload between the envelope and the record's end, or an error.
#![no_main]

use std::cell::RefCell;

use datasetrt::format::index::IndexRow;
use datasetrt_fuzz::common::deliver;
use datasetrt_fuzz::common::fixture::{Fixture, TestCache};
use datasetrt_fuzz::let_the_decoder_panic;
use libfuzzer_sys::fuzz_target;

thread_local! {
    static CACHES: RefCell<[TestCache; 2]> = RefCell::new([
        Fixture::tiny().v2().build(),
        Fixture::tiny().v2().lz4().build(),
    ]);
}

fuzz_target!(init: let_the_decoder_panic(), |data: &[u8]| {
    let Some((head, shard)) = data.split_first_chunk::<25>() else {
        return;
    };
    CACHES.with_borrow(|caches| {
        let cache = &caches[usize::from(head[0] & 1)];
        let number = |at: usize| u64::from_le_bytes(*head[at..].first_chunk().expect("8 bytes"));
        let row = IndexRow {
            shard: number(1),
            offset: number(9),
            length: number(17),
        };
        cache.put("shards/000000.bin", shard);
        cache.set_row(1, row);
        cache.reseal();
        let Ok(open) = cache.open() else {
            return;
        };
        for sample in 0..3 {
            if let Ok(found) = deliver(&open, sample) {
                let known = cache.expected(sample);
                assert_eq!(found.metadata, known.metadata);
                assert!(found.payload.len() <= 255 * shard.len());
            }
        }
    });
});
