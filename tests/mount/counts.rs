//! How many requests each way of using the mount costs, from the daemon's own counters.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use memmap2::MmapOptions;

use crate::common::fixture::Fixture;
use crate::common::mount::{can_mount, program};
use crate::common::noise::noise;
use crate::counted::{Counted, Requests, marks, requests};
use crate::live::{Live, Place, command, stdout};

const MIB: usize = 1 << 20;

/// Marks, an uncompressed and a compressed cache: small samples, and one of 1 MiB at the end.
fn mounted(place: &Place) -> Live {
    let payloads = || (0..200).map(|n| noise(if n == 199 { MIB } else { 3000 }, n));
    let plain = place.cache("plain", Fixture::new().v2().payloads(payloads()));
    let packed = place.cache("packed", Fixture::new().v2().lz4().payloads(payloads()));
    let marks = marks(place);
    place.mount(&[&marks, &plain, &packed])
}

/// Opens, reads to the end and closes, as programs do that know what they want.
fn read_plainly(path: &Path) {
    let mut room = [0; 4096];
    let mut file = File::open(path).unwrap();
    assert_eq!(file.read(&mut room).unwrap(), 3000);
    assert_eq!(file.read(&mut room).unwrap(), 0);
}

#[test]
fn a_cold_sample_costs_a_look_up_and_a_read_and_a_hot_one_nothing() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let live = mounted(&place);
    let counted = Counted::new(&live);
    let cold = requests(&[("lookup", 1), ("read", 1)]);
    let nothing = Requests::new();
    for id in 1..3 {
        let sample = |n: u32| live.path(&format!("samples/{id}/{n}"));
        let read = |n| read_plainly(&sample(n));
        let first = counted.cost(|| read(0));
        assert_eq!(
            first,
            requests(&[("lookup", 2), ("read", 1)]),
            "with its folder"
        );
        assert_eq!(counted.cost(|| read(1)), cold);
        let hundred = counted.cost(|| (2..102).for_each(read));
        assert_eq!(hundred, requests(&[("lookup", 100), ("read", 100)]));
        let again = counted.cost(|| (0..3).for_each(|_| (0..102).for_each(read)));
        assert_eq!(again, nothing, "hot");
        let missing = || drop(fs::metadata(live.path(&format!("samples/{id}/no"))).unwrap_err());
        assert_eq!(counted.cost(missing), requests(&[("lookup", 1)]));
        assert_eq!(counted.cost(missing), nothing, "absence is remembered");
    }
    live.assert_sound();
}

#[test]
fn a_stat_costs_nothing_but_once_after_a_read() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let live = mounted(&place);
    let counted = Counted::new(&live);
    let path = live.path("samples/1/110");
    fs::metadata(live.path("samples/1")).unwrap();
    let stat = || assert!(fs::metadata(&path).is_ok());
    assert_eq!(counted.cost(stat), requests(&[("lookup", 1)]));
    assert_eq!(counted.cost(stat), Requests::new());
    assert_eq!(
        counted.cost(|| read_plainly(&path)),
        requests(&[("read", 1)])
    );
    // The kernel takes the time of access for stale when it has read, and asks once.
    assert_eq!(counted.cost(stat), requests(&[("getattr", 1)]));
    assert_eq!(counted.cost(stat), Requests::new());
    assert_eq!(
        counted.cost(|| drop(fs::read(&path).unwrap())),
        Requests::new()
    );
}

#[test]
fn a_second_pass_over_a_read_only_mount_asks_nothing() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let marks = marks(&place);
    let payloads = (0..200).map(|n| noise(3000, n));
    let plain = place.cache("plain", Fixture::new().v2().payloads(payloads));
    let control = place.path().join("control");
    fs::create_dir(&control).unwrap();
    for option in [["-o", "ro"], ["--control-at", control.to_str().unwrap()]] {
        let mut read_only = program();
        read_only.args(option);
        let live = place.mount_by(read_only, &[&marks, &plain]);
        let counted = Counted::new(&live);
        // As Python's open does: it looks at the file's length first.
        let pass = || {
            for n in 0..200 {
                let file = File::open(live.path(&format!("samples/1/{n}"))).unwrap();
                assert_eq!(file.metadata().unwrap().len(), 3000);
                read_plainly(&live.path(&format!("samples/1/{n}")));
            }
        };
        let mut first = counted.cost(pass);
        // Once in the life of a mount.
        first.retain(|name, _| name != "open" && name != "flush");
        assert_eq!(first, requests(&[("lookup", 201), ("read", 200)]));
        assert_eq!(counted.cost(pass), Requests::new(), "{option:?}");
        assert_eq!(counted.cost(pass), Requests::new(), "{option:?}");
    }
}

#[test]
fn tools_cost_what_plain_reads_cost() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let live = mounted(&place);
    let counted = Counted::new(&live);
    let copy = place.path().join("copy");
    let cold = requests(&[("lookup", 1), ("read", 1)]);
    for id in 1..3 {
        let sample = |n: u32| live.path(&format!("samples/{id}/{n}"));
        // The folder, and that there are no extended attributes.
        stdout(command(&["cp", "-a"]).arg(sample(100)).arg(&copy));
        // It is read-only too: an ordinary user cannot write over it.
        fs::remove_file(&copy).unwrap();
        let map = |n| {
            let file = File::open(sample(n)).unwrap();
            // SAFETY: nobody changes a sample of a mount, and the map does not outlive it.
            #[allow(unsafe_code)]
            let map = unsafe { MmapOptions::new().map(&file) }.unwrap();
            assert_eq!(map.len(), 3000);
            std::hint::black_box(map.iter().map(|byte| u64::from(*byte)).sum::<u64>());
        };
        let cat = |n| drop(stdout(command(&["cat"]).arg(sample(n))));
        let cp = |n| {
            stdout(command(&["cp"]).arg(sample(n)).arg(&copy));
            fs::remove_file(&copy).unwrap();
        };
        let tools: [(&str, &dyn Fn(u32)); 3] = [("mmap", &map), ("cat", &cat), ("cp", &cp)];
        for (n, (name, tool)) in (120..).zip(tools) {
            assert_eq!(counted.cost(|| tool(n)), cold, "{name}");
            let stat = counted.cost(|| tool(n));
            assert!(
                stat.keys().all(|kind| kind == "getattr"),
                "{name}: {stat:?}"
            );
            assert!(stat.values().all(|n| *n <= 1), "{name}: {stat:?}");
            assert_eq!(counted.cost(|| tool(n)), Requests::new(), "{name}");
        }
    }
    live.assert_sound();
}

#[test]
fn a_large_sample_is_read_in_few_pieces_and_kept() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let live = mounted(&place);
    let counted = Counted::new(&live);
    for id in 1..3 {
        let path = live.path(&format!("samples/{id}/199"));
        fs::metadata(&path).unwrap();
        let read = || {
            let (mut file, mut bytes) = (File::open(&path).unwrap(), vec![0; MIB]);
            file.read_exact(&mut bytes).unwrap();
            assert!(bytes == noise(MIB, 199));
        };
        let cold = counted.cost(read);
        assert_eq!(cold.keys().collect::<Vec<_>>(), ["read"]);
        // One, where the kernel reads ahead as far as root lets it.
        assert!(cold["read"] <= 8, "{cold:?}");
        assert_eq!(counted.cost(read), Requests::new());
    }
}

#[test]
fn listing_costs_pages_of_names_and_nothing_for_each_file() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let live = mounted(&place);
    let counted = Counted::new(&live);
    let (folder, copied) = (live.path("samples/1"), place.path().join("copied"));
    // What is asked for once in the life of the mount: extended attributes of files and folders.
    stdout(command(&["ls", "-l"]).arg(live.path("samples")));
    stdout(
        command(&["cp", "-a"])
            .arg(live.path("caches/0"))
            .arg(&copied),
    );
    fs::metadata(&folder).unwrap();
    let total = |cost: &Requests| cost.values().sum::<u64>();
    for words in [
        &["ls", "-f"][..],
        &["ls", "-l"],
        &["ls", "-la", "--color=always"],
        &["find", "-size", "-2"],
        &["du", "-s"],
    ] {
        let cost = counted.cost(|| match words {
            ["find", tests @ ..] => drop(stdout(command(&["find"]).arg(&folder).args(tests))),
            _ => drop(stdout(command(words).arg(&folder))),
        });
        // 200 files: opening, two or three pages of names, closing, a few looks at the folder.
        assert!(total(&cost) <= 12, "{words:?}: {cost:?}");
        assert!(
            cost["opendir"] == 1 && cost["releasedir"] == 1,
            "{words:?}: {cost:?}"
        );
        for kind in [
            "xattr", "access", "open", "flush", "ioctl", "read", "lookup",
        ] {
            assert_eq!(cost.get(kind), None, "{words:?}: {cost:?}");
        }
        assert!(
            cost.get("statfs").is_none_or(|n| *n == 1),
            "{words:?}: {cost:?}"
        );
    }
    // Copying it all reads each file, and stats it once more.
    let cost = counted.cost(|| {
        stdout(
            command(&["cp", "-a"])
                .arg(&folder)
                .arg(place.path().join("samples")),
        );
    });
    assert!((200..=210).contains(&cost["read"]), "{cost:?}");
    assert!(cost.get("getattr").is_none_or(|n| *n <= 210), "{cost:?}");
    assert!(total(&cost) <= 430, "{cost:?}");
    for kind in ["xattr", "access", "open", "flush", "ioctl", "statfs"] {
        assert_eq!(cost.get(kind), None, "{cost:?}");
    }
    live.assert_sound();
}
