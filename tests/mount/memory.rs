//! `--cache-memory` bounds the daemon: 64 MiB more than it is room for everything else.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use crate::common::fixture::Fixture;
use crate::common::memory_group::MemoryGroup;
use crate::common::mount::{can_mount, program};
use crate::common::noise::noise;
use crate::live::{Live, Place, limited};
use crate::scrub::checked;

/// What the daemon may take beside the budget.
const BESIDE: u64 = 64 << 20;

/// Mounts with this budget, in a control group of it and what may come beside it, where that can be.
fn mount(place: &Place, fixture: Fixture, budget: u64) -> (Live, Option<MemoryGroup>) {
    let cache = place.cache("cache", fixture);
    let group = MemoryGroup::new(budget + BESIDE);
    let mut by = group.as_ref().map_or_else(program, MemoryGroup::program);
    by.arg("--cache-memory").arg(budget.to_string());
    (place.mount_by(by, &[&cache]), group)
}

/// Never more than the budget and what may come beside it, pages of the program's file included.
fn assert_bounded(live: &Live, budget: u64) {
    let most = live.memory("VmHWM");
    assert!(most < budget + BESIDE, "{} MiB", most >> 20);
    let held = live.status()["cache_memory"]["held_bytes"]
        .as_u64()
        .unwrap();
    assert!(held <= budget, "{held}");
    eprintln!(
        "at most {} MiB with a budget of {}",
        most >> 20,
        budget >> 20
    );
    live.assert_sound();
}

/// Numbers that look random.
fn random(state: &mut u64, below: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state % below as u64) as usize
}

#[test]
fn a_thousand_open_samples_read_at_random_stay_inside_the_budget() {
    if !can_mount() {
        return;
    }
    const LEN: usize = 64_000;
    let budget = 8 << 20;
    let place = Place::new();
    let distinct: Vec<_> = (0..20).map(|seed| noise(LEN, seed)).collect();
    let payloads = (0..1000).map(|n| &distinct[n % 20]);
    let fixture = Fixture::new().cache_id(7).lz4().payloads(payloads);
    let (live, _group) = mount(&place, fixture, budget);
    let path = |n: usize| live.path(&format!("samples/7/{n}"));
    let files: Vec<File> = (0..1000).map(|n| File::open(path(n)).unwrap()).collect();
    std::thread::scope(|scope| {
        for thread in 1..=8 {
            let (files, distinct) = (&files, &distinct);
            scope.spawn(move || {
                let mut state = thread * 0x9E37_79B9;
                for _ in 0..500 {
                    let n = random(&mut state, 1000);
                    let at = random(&mut state, LEN - 5000);
                    let mut piece = vec![0; 5000];
                    files[n].read_exact_at(&mut piece, at as u64).unwrap();
                    assert!(piece == distinct[n % 20][at..at + 5000], "{n} at {at}");
                }
            });
        }
    });
    assert_bounded(&live, budget);
    drop(files);
    live.stop();
}

#[test]
fn eight_readers_of_one_large_sample_stay_inside_the_budget() {
    if !can_mount() {
        return;
    }
    const LEN: usize = 24 << 20;
    // Decoded and stored bytes together: what cannot be compressed is stored as long as it is.
    let budget = 2 * LEN as u64 + (4 << 20);
    let place = Place::new();
    let payload = noise(LEN, 5);
    let fixture = Fixture::new().cache_id(7).lz4().payloads([&payload]);
    let (live, _group) = mount(&place, fixture, budget);
    std::thread::scope(|scope| {
        for reader in 0..8 {
            let (payload, path) = (&payload, live.path("samples/7/0"));
            scope.spawn(move || {
                let file = File::open(path).unwrap();
                let mut piece = vec![0; 1 << 20];
                // Each begins elsewhere.
                for n in 0..24 {
                    let at = ((n + 3 * reader) % 24) << 20;
                    file.read_exact_at(&mut piece, at as u64).unwrap();
                    assert!(piece == payload[at..at + (1 << 20)], "{at}");
                }
            });
        }
    });
    assert_eq!(
        live.status()["counters"]["payloads_decoded"],
        1,
        "one decodes for all"
    );
    assert_bounded(&live, budget);
    live.stop();
}

#[test]
fn a_sample_larger_than_the_budget_is_read_from_disk_and_checked_in_little_memory() {
    if !can_mount() {
        return;
    }
    const LEN: usize = 96 << 20;
    let budget = 1 << 20;
    let place = Place::new();
    let payload = noise(LEN, 1);
    let fixture = Fixture::new().cache_id(7).lz4().payloads([&payload]);
    let (live, _group) = mount(&place, fixture, budget);
    let file = File::open(live.path("samples/7/0")).unwrap();
    let mut piece = vec![0; 1 << 20];
    for n in [95, 0, 40, 41, 94] {
        file.read_exact_at(&mut piece, n << 20).unwrap();
        let start = usize::try_from(n << 20).unwrap();
        assert!(piece == payload[start..start + piece.len()], "{n}");
    }
    let status = live.status();
    assert_eq!(status["counters"]["payloads_decoded"], 1);
    assert_eq!(status["temp_disk"]["held_bytes"], LEN);
    // A check behind the mount has the same budget.
    let report = checked(&live, "all");
    assert_eq!(report["damage"], 0, "{report}");
    assert!(live.damaged().is_empty());
    assert_bounded(&live, budget);
    live.stop();
}

#[test]
fn a_sample_that_no_budget_has_room_for_is_refused_with_what_to_do_and_others_are_served() {
    if !can_mount() {
        return;
    }
    const LEN: usize = 3 << 20;
    let place = Place::new();
    let payloads = [noise(LEN, 1), noise(1000, 2)];
    let cache = place.cache(
        "cache",
        Fixture::new().cache_id(7).lz4().payloads(payloads.clone()),
    );
    let mut by = program();
    by.args(["--cache-memory", "1MiB", "--temp-disk", "1MiB"]);
    let live = place.mount_by(by, &[&cache]);
    for _ in 0..3 {
        assert_eq!(live.errno("samples/7/0"), Errno::NOSPC.raw_os_error());
    }
    assert_eq!(live.read("samples/7/1").unwrap(), payloads[1]);
    assert!(live.damaged().is_empty(), "it is not damaged");
    let log = live.log();
    assert_eq!(log.matches("--temp-disk").count(), 1, "{log}");
    live.stop();
}

#[test]
fn a_temporary_file_that_cannot_grow_is_no_damage_and_ends_nothing() {
    if !can_mount() {
        return;
    }
    const LEN: usize = 3 << 20;
    let place = Place::new();
    let payloads = [noise(LEN, 1), noise(1000, 2)];
    let cache = place.cache(
        "cache",
        Fixture::new().cache_id(7).lz4().payloads(payloads.clone()),
    );
    let mut by = limited("-f 1024");
    by.args(["--cache-memory", "1MiB"]);
    let live = place.mount_by(by, &[&cache]);
    assert_eq!(live.errno("samples/7/0"), Errno::NOSPC.raw_os_error());
    assert_eq!(live.read("samples/7/1").unwrap(), payloads[1]);
    assert!(live.damaged().is_empty());
    live.stop();
}
