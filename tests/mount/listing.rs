//! A million samples in one folder.

use std::ffi::CStr;
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

fn number(name: &CStr) -> Option<usize> {
    name.to_str().unwrap().parse().ok()
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

fn each_name_once_and_from_every_offset(live: &Live, folder: &str) {
    let file = File::open(live.path(folder)).unwrap();
    let mut dir = Dir::read_from(&file).unwrap();
    let all = names(&mut dir);
    assert_eq!(all.len(), MANY + 2);
    let mut seen = vec![false; MANY];
    for (name, _) in &all {
        if let Ok(n) = name.parse::<usize>() {
            assert!(!std::mem::replace(&mut seen[n], true), "{n} twice");
        }
    }
    assert!(seen.iter().all(|seen| *seen));
    // Back to places that were passed, in no order, and on from there.
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
        let next: Vec<_> = (&mut dir)
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
    assert_eq!(number(dir.nth(2).unwrap().unwrap().file_name()), Some(0));
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
    each_name_once_and_from_every_offset(&live, &folder(&many));

    // Requests, since time says little here: one page is as dear as another.
    let counted = Counted::new(&live);
    let listed = |cache| {
        let list = format!("ls -f {:?} | wc -l", live.path(&folder(cache)));
        counted.cost(|| {
            let lines = String::from_utf8(stdout(&mut command(&["sh", "-c", &list]))).unwrap();
            let expected = if id(cache) == id(&many) { MANY } else { HALF };
            assert_eq!(lines.trim(), (expected + 2).to_string());
        })
    };
    let (small, large) = (pages(&listed(&half)), pages(&listed(&many)));
    assert!(large <= 1000 + MANY as u64 / 50, "{large} pages");
    assert!(
        large * 2 <= small * 5,
        "{small} pages for half, {large} for all"
    );

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
