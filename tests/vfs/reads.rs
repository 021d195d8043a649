//! Bytes of samples: any piece of any sample, decoded once, inside the budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datasetrt::error::Room;
use datasetrt::vfs::{Vfs, VfsError, VfsOptions};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::common::fixture::{Fixture, TestCache};
use crate::common::noise::noise;
use crate::{look, piece, status, tree_of, tree_with};

/// Lengths around every limit that the code has: pages, what is read ahead, the whole reply.
const LENGTHS: [usize; 14] = [
    0,
    1,
    63,
    4096,
    16_383,
    16_384,
    16_385,
    131_072,
    262_145,
    300_000,
    1 << 20,
    (1 << 20) + 1,
    2_500_000,
    3,
];

fn caches() -> [TestCache; 2] {
    let payloads = || (0_u64..).zip(LENGTHS).map(|(n, len)| noise(len, n));
    [
        Fixture::new()
            .v2()
            .payloads(payloads())
            .max_shard_bytes(1 << 20)
            .build(),
        Fixture::new()
            .v2()
            .lz4()
            .payloads(payloads())
            .max_shard_bytes(1 << 20)
            .build(),
    ]
}

#[test]
fn any_piece_of_any_sample_is_the_slice_of_its_payload() {
    let caches = caches();
    let vfs = tree_of(&[&caches[0], &caches[1]]);
    let near = |edge: u64| (edge.saturating_sub(3)..edge + 3).boxed();
    let offsets = prop_oneof![
        0..3_000_000_u64,
        Just(0),
        Just(u64::MAX),
        near(4096),
        near(1 << 20),
        near(300_000),
        near(2_500_000)
    ];
    let sizes = prop_oneof![0..3_000_000_usize, Just(4096), Just(131_072), Just(1 << 20)];
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 1500,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let cases = (0..2_usize, 0..LENGTHS.len(), offsets, sizes);
    runner
        .run(&cases, |(cache, sample, offset, size)| {
            let whole = &caches[cache].samples[sample].payload;
            let ino = look(&vfs, &format!("samples/{cache}/{sample}"))
                .unwrap()
                .ino;
            let start = usize::try_from(offset).unwrap().min(whole.len());
            let end = start.saturating_add(size).min(whole.len());
            let found = piece(&vfs, ino, offset, size).unwrap();
            prop_assert!(found == whole[start..end], "{offset} {size}");
            Ok(())
        })
        .unwrap();
    assert_eq!(crate::text(&vfs, ".control/damaged"), "");
}

#[test]
fn sequential_pieces_of_every_length_make_the_whole() {
    let caches = caches();
    let vfs = tree_of(&[&caches[0], &caches[1]]);
    for (cache, fixture) in caches.iter().enumerate() {
        for (sample, expected) in fixture.samples.iter().enumerate() {
            let attr = look(&vfs, &format!("samples/{cache}/{sample}")).unwrap();
            for len in [4096, 131_072, 1 << 20] {
                let mut found = Vec::new();
                loop {
                    let part = piece(&vfs, attr.ino, found.len() as u64, len).unwrap();
                    if part.is_empty() {
                        break;
                    }
                    found.extend(part);
                }
                assert!(
                    found == expected.payload,
                    "cache {cache} sample {sample} by {len}"
                );
            }
        }
    }
}

#[test]
fn a_sample_that_eight_threads_read_in_pieces_is_decoded_once() {
    let payload = noise(5 << 20, 1);
    let cache = Fixture::new().v2().lz4().payloads([&payload]).build();
    let vfs = tree_of(&[&cache]);
    let ino = look(&vfs, "samples/0/0").unwrap().ino;
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let (vfs, payload) = (&vfs, &payload);
            scope.spawn(move || {
                for n in 0..40 {
                    let offset = ((n * 8 + thread) * 131_072) % payload.len();
                    let found = piece(vfs, ino, offset as u64, 131_072).unwrap();
                    assert!(found == payload[offset..(offset + 131_072).min(payload.len())]);
                }
            });
        }
    });
    assert_eq!(vfs.counters().payloads_decoded(), 1);
    let held = status(&vfs)["cache_memory"]["held_bytes"].as_u64().unwrap();
    let beside = held - payload.len() as u64;
    assert!(
        (1..4096).contains(&beside),
        "an entry takes memory too: {beside}"
    );
}

#[test]
fn a_small_sample_that_is_asked_for_whole_is_not_held() {
    let cache = Fixture::new()
        .v2()
        .lz4()
        .payloads([noise(100_000, 1), noise(100_000, 2)])
        .build();
    let vfs = tree_of(&[&cache]);
    for n in 0..2 {
        let attr = look(&vfs, &format!("samples/0/{n}")).unwrap();
        assert_eq!(
            piece(&vfs, attr.ino, 0, 131_072).unwrap(),
            cache.samples[n].payload
        );
    }
    assert_eq!(vfs.counters().payloads_decoded(), 2);
    assert_eq!(vfs.counters().bytes_read(), 200_000);
    assert_eq!(status(&vfs)["cache_memory"]["held_bytes"], 0);
}

#[test]
fn an_uncompressed_sample_needs_no_memory_at_all() {
    let cache = Fixture::new().v2().payloads([noise(3 << 20, 1)]).build();
    let vfs = tree_with(
        &[&cache],
        VfsOptions {
            cache_memory: 0,
            ..VfsOptions::default()
        },
    );
    let ino = look(&vfs, "samples/0/0").unwrap().ino;
    let found = piece(&vfs, ino, 1_000_001, 1 << 20).unwrap();
    assert!(found == cache.samples[0].payload[1_000_001..][..1 << 20]);
    assert_eq!(vfs.counters().payloads_decoded(), 0);
}

/// One compressed sample that needs more than 64 KiB of memory, and one that does not.
fn large_and_small() -> (TestCache, [Vec<u8>; 2]) {
    let payloads = [noise(3 << 20, 1), noise(10_000, 2)];
    let cache = Fixture::new().v2().lz4().payloads(&payloads).build();
    (cache, payloads)
}

fn tree_of_budgets(cache: &TestCache, cache_memory: u64, temp_disk: u64) -> Arc<Vfs> {
    tree_with(
        &[cache],
        VfsOptions {
            cache_memory,
            temp_disk,
            ..VfsOptions::default()
        },
    )
}

#[test]
fn a_sample_beyond_the_memory_budget_is_read_from_a_temporary_file() {
    let (cache, payloads) = large_and_small();
    let vfs = tree_of_budgets(&cache, 64 << 10, 4 << 20);
    let ino = look(&vfs, "samples/0/0").unwrap().ino;
    for offset in [0, 1_000_001, 3 << 20, 131_072, 2_999_999] {
        let found = piece(&vfs, ino, offset as u64, 131_072).unwrap();
        let end = payloads[0].len().min(offset + 131_072);
        assert!(found == payloads[0][offset..end], "{offset}");
    }
    assert_eq!(vfs.counters().payloads_decoded(), 1, "once for all pieces");
    assert_eq!(crate::read(&vfs, "samples/0/1").unwrap(), payloads[1]);
    let status = status(&vfs);
    assert_eq!(status["temp_disk"]["held_bytes"], payloads[0].len());
    assert!(status["cache_memory"]["held_bytes"].as_u64().unwrap() < 64 << 10);
    assert_eq!(crate::text(&vfs, ".control/damaged"), "");
}

#[test]
fn a_damaged_sample_beyond_the_memory_budget_gives_no_byte_and_is_listed() {
    let (cache, _) = large_and_small();
    let (_, mut stored) = cache.record(0);
    // The last literals become tokens with matches into nowhere.
    let from = stored.len() - 40_000;
    stored[from..].fill(0);
    stored[4] = 0;
    cache.set_stored(0, &stored);
    let vfs = tree_of_budgets(&cache, 64 << 10, 4 << 20);
    let ino = look(&vfs, "samples/0/0").unwrap().ino;
    assert!(matches!(
        piece(&vfs, ino, 0, 1000),
        Err(VfsError::Damaged(_))
    ));
    assert!(crate::text(&vfs, ".control/damaged").starts_with("0/0: "));
    assert_eq!(status(&vfs)["temp_disk"]["held_bytes"], 0);
}

#[test]
fn a_sample_beyond_both_budgets_is_refused_and_is_not_damaged() {
    let (cache, payloads) = large_and_small();
    let vfs = tree_of_budgets(&cache, 64 << 10, payloads[0].len() as u64 - 1);
    let ino = look(&vfs, "samples/0/0").unwrap().ino;
    for offset in [0, 131_072, 0] {
        let refused = piece(&vfs, ino, offset, 131_072);
        assert!(matches!(refused, Err(VfsError::NoRoom(Room::Disk))));
    }
    assert_eq!(crate::read(&vfs, "samples/0/1").unwrap(), payloads[1]);
    assert_eq!(crate::text(&vfs, ".control/damaged"), "");
    // Each of the two budgets is enough.
    let needed = payloads[0].len() as u64;
    for vfs in [
        tree_of_budgets(&cache, 64 << 10, needed),
        tree_of_budgets(&cache, 3 * needed, 0),
    ] {
        let ino = look(&vfs, "samples/0/0").unwrap().ino;
        assert!(piece(&vfs, ino, 131_072, 1000).unwrap() == payloads[0][131_072..][..1000]);
    }
}

#[test]
fn readers_of_many_large_samples_stay_inside_the_budget() {
    let payloads: Vec<_> = (0..6).map(|n| noise(1_500_000, n)).collect();
    let cache = Fixture::new().v2().lz4().payloads(&payloads).build();
    let budget = 2 * 1_500_000 + 2 * 1_500_000;
    let vfs: Arc<Vfs> = tree_with(
        &[&cache],
        VfsOptions {
            cache_memory: budget,
            ..VfsOptions::default()
        },
    );
    let most = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let (vfs, payloads, most) = (&vfs, &payloads, &most);
            scope.spawn(move || {
                for n in 0..30_usize {
                    let sample = (n * 5 + thread) % payloads.len();
                    let ino = look(vfs, &format!("samples/0/{sample}")).unwrap().ino;
                    let offset = (n * 77_777) % 1_400_000;
                    let found = piece(vfs, ino, offset as u64, 10_000).unwrap();
                    assert!(found == payloads[sample][offset..][..10_000]);
                    let held = status(vfs)["cache_memory"]["held_bytes"].as_u64().unwrap();
                    most.fetch_max(held, Ordering::Relaxed);
                }
            });
        }
    });
    let most = most.into_inner();
    assert!(most <= budget, "{most}");
}
