//! A million samples in one folder.

use std::fs::File;

use datasetrt::format::metadata::{Field, FieldKind, ValueRef};
use datasetrt::format::record::Compression;
use datasetrt::writer::{CacheWriter, WriterOptions};
use rustix::fs::Dir;

use crate::common::fixture::TestCache;
use crate::common::mount::can_mount;
use crate::counted::{Counted, Requests, marks};
use crate::live::{Live, Place, command, stdout};

const MANY: usize = 1_000_003;
const HALF: usize = 500_000;

/// A cache of `count` samples of one byte.
fn of_bytes(place: &Place, name: &str, count: usize) -> TestCache {
    let schema = vec![Field {
        name: "n".to_owned(),
        kind: FieldKind::Int,
    }];
    let options = WriterOptions {
        compression: Compression::None,
        ..WriterOptions::default()
    };
    let mut writer = CacheWriter::create(place.path(), name, schema, options).unwrap();
    for n in 0..count {
        writer
            .push_row(&[n as u8], &[ValueRef::Int(n as i64)])
            .unwrap();
    }
    TestCache::at(&writer.finish().unwrap().dir)
}

/// The names of a folder and the offsets behind them.
fn names(dir: &mut Dir) -> Vec<(String, i64)> {
    dir.map(|entry| {
        let entry = entry.unwrap();
        (
            entry.file_name().to_str().unwrap().to_owned(),
            entry.offset(),
        )
    })
    .collect()
}

/// Opens a folder and reads all its names, each of which must be there once.
fn each_name_once(live: &Live, folder: &str, count: usize) -> (Dir, Vec<(String, i64)>) {
    let file = File::open(live.path(folder)).unwrap();
    let mut dir = Dir::read_from(&file).unwrap();
    let all = names(&mut dir);
    assert_eq!(all.len(), count + 2);
    let mut seen = vec![false; count];
    for (name, _) in &all[2..] {
        let n: usize = name.parse().unwrap();
        assert!(!std::mem::replace(&mut seen[n], true), "{n} twice");
    }
    (dir, all)
}

/// Goes back to places that were passed, in no order, and on from there.
fn from_every_offset(dir: &mut Dir, all: &[(String, i64)]) {
    for at in [
        500_001,
        3,
        1_000_000,
        0,
        999_999,
        250_000,
        MANY + 1,
        131_071,
    ] {
        dir.seek(all[at].1).unwrap();
        let next: Vec<_> = dir
            .take(1000)
            .map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned())
            .collect();
        let expected: Vec<_> = all[at + 1..]
            .iter()
            .take(1000)
            .map(|(name, _)| name)
            .collect();
        assert_eq!(next.iter().collect::<Vec<_>>(), expected, "from {at}");
    }
    dir.rewind();
    assert_eq!(dir.nth(2).unwrap().unwrap().file_name(), c"0");
}

/// Walks a folder as find does, with a stat of each file.
fn walk(live: &Live, folder: &str) {
    let path = live.path(folder);
    let walked = stdout(
        command(&["find"])
            .arg(path)
            .args(["-type", "f", "-size", "1c", "-printf", "."]),
    );
    assert_eq!(walked.len(), MANY);
}

fn pages(cost: &Requests) -> u64 {
    let count = |kind| cost.get(kind).copied().unwrap_or(0);
    count("readdir") + count("readdirplus")
}

#[test]
fn a_million_samples_are_listed_once_each_in_straight_time_and_flat_memory() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (half, many) = (
        of_bytes(&place, "half", HALF),
        of_bytes(&place, "many", MANY),
    );
    let id = |cache: &TestCache| cache.manifest().number_at::<u64>("cache_id");
    let live = place.mount(&[&marks(&place), &half, &many]);
    let folder = |cache| format!("samples/{}", id(cache));

    // Requests, since time says little here: one page is as dear as another.
    let counted = Counted::new(&live);
    let (mut small, mut large) = (Vec::new(), Vec::new());
    let half_cost = counted.cost(|| small.push(each_name_once(&live, &folder(&half), HALF)));
    let many_cost = counted.cost(|| large.push(each_name_once(&live, &folder(&many), MANY)));
    let (half_pages, many_pages) = (pages(&half_cost), pages(&many_cost));
    assert!(many_pages <= 1000 + MANY as u64 / 50, "{many_pages} pages");
    assert!(
        many_pages * 2 <= half_pages * 5,
        "{half_pages} for half, {many_pages} for all"
    );
    let (mut dir, all) = large.pop().unwrap();
    from_every_offset(&mut dir, &all);

    walk(&live, &folder(&many));
    let (rss, descriptors) = (live.memory("VmRSS"), live.descriptors());
    walk(&live, &folder(&many));
    let after = live.memory("VmRSS");
    assert!(after <= rss + (4 << 20), "{rss} bytes, then {after}");
    assert_eq!(live.descriptors(), descriptors);
    let peak = live.memory("VmHWM");
    assert!(peak < 600 << 20, "{peak}");
    assert_eq!(
        live.read(&format!("{}/{}", folder(&many), MANY - 1))
            .unwrap(),
        [(MANY - 1) as u8]
    );
    live.assert_sound();
}
