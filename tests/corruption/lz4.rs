//! LZ4 payloads that lie about their length, or copy from where there is nothing.

use std::thread;

use crate::alloc::{largest_of, within};
use crate::common::deliver;
use crate::common::fixture::{Fixture, Sample};
use crate::common::lz4::store_literally;
use crate::refused_samples;

fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(byte).take(len).collect()
}

#[test]
fn a_stated_length_is_not_allocated_before_it_is_plausible() {
    // Four bytes of a damaged file said 4 GiB, and that much was set aside before any check.
    let prefix = |len: u32, rest: &[u8]| [&len.to_le_bytes(), rest].concat();
    for stored in [
        prefix(u32::MAX, b"\x10A"),
        prefix(0x7FFF_FFFF, &noise(1024)),
        prefix(1 << 30, b"\x30abc"),
        prefix(2, b"\x30abc"),
        prefix(4, b"\x30abc"),
        prefix(0, b""),
        prefix(0, b"\x30abc"),
        prefix(0, b"\0\0"),
        b"".to_vec(),
        b"\0".to_vec(),
        b"\0\0\0".to_vec(),
    ] {
        let cache = Fixture::tiny().lz4().build();
        cache.set_stored(1, &stored);
        cache.reseal();
        let refused = within(1 << 20, || refused_samples(&cache));
        assert_eq!(refused, ["Payload shards/000000.bin (1)"], "{stored:?}");
    }
}

#[test]
fn a_block_too_long_for_what_it_decodes_to_is_not_even_read() {
    // Bytes after the last literal make a block of any length, and the whole of it was read.
    for more in [20, 8 << 20] {
        let cache = Fixture::tiny().lz4().build();
        let mut stored = store_literally(b"abc");
        stored.resize(stored.len() + more, 0);
        cache.set_stored(1, &stored);
        cache.reseal();
        let refused = within(1 << 20, || refused_samples(&cache));
        assert_eq!(refused, ["Payload shards/000000.bin (1)"]);
    }
}

#[test]
fn payloads_that_shrink_as_far_as_lz4_can_are_read_whole() {
    // A guard against lying lengths that is too tight refuses 64 MiB of zeros.
    let zeros = vec![0; 64 << 20];
    let cache = Fixture::new()
        .payloads([&zeros[..], b"", b"x", &noise(100_000)])
        .lz4()
        .build();
    assert!(cache.record(0).1.len() < 300_000);
    assert_eq!(cache.record(1).1, [0; 5]);
    cache.validated().unwrap();
    let open = cache.open().unwrap();
    let (found, largest) = largest_of(|| deliver(&open, 0).unwrap().payload);
    assert!(found == zeros && largest <= zeros.len() + 4096, "{largest}");
    assert!(refused_samples(&cache).is_empty());
}

#[test]
fn payloads_stored_without_a_single_match_are_read() {
    // Writers may store longer than the payload: one literal run, lengths in steps of 255.
    for len in [0, 1, 14, 15, 16, 269, 270, 271, 10_000] {
        let payload = noise(len);
        let cache = Fixture::new().payloads([&payload]).lz4().build();
        cache.set_stored(0, &store_literally(&payload));
        cache.reseal();
        assert!(refused_samples(&cache).is_empty(), "{len}");
    }
}

#[test]
fn matches_from_outside_the_output_show_nobody_elses_bytes() {
    // A match offset of zero, or before the start of the output, copied what the buffer held before.
    let cache = Fixture::new()
        .sample(Sample::new([b'S'; 1024]).with("n", 0))
        .payloads(["", "", "untouched"])
        .lz4()
        .build();
    cache.set_stored(1, b"\x14\0\0\0\x10A\0\0PBBBBB");
    cache.set_stored(2, b"\x14\0\0\0\x10A\x09\0PBBBBB");
    cache.reseal();
    let open = cache.open().unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    assert_eq!(deliver(&open, 0).unwrap().payload, [b'S'; 1024]);
                    assert_eq!(deliver(&open, 3).unwrap().payload, b"untouched");
                    for sample in [1, 2] {
                        assert!(deliver(&open, sample).is_err());
                    }
                }
            });
        }
    });
}

#[test]
fn a_length_above_the_sum_of_the_shard_is_refused() {
    let cache = Fixture::tiny().lz4().build();
    cache.set_manifest("shards/0/uncompressed_byte_len", 20);
    assert_eq!(refused_samples(&cache).len(), 3);
}
