//! Receipts: a cache whose files were all found right is not hashed again until one changes.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Value as Json, json};

use crate::common::fixture::{Fixture, TestCache};
use crate::common::mount::{can_mount, program};
use crate::common::noise::noise;
use crate::live::{Live, Place};

/// Bytes of the cache's payloads.
const LEN: usize = 4 << 20;

fn two(place: &Place) -> TestCache {
    let payloads = (0..2).map(|seed| noise(LEN / 2, seed));
    let fixture = Fixture::new().v2().max_shard_bytes(1).payloads(payloads);
    let cache = place.cache("cache", fixture);
    settle();
    cache
}

/// Files that changed a moment ago get no receipt.
fn settle() {
    std::thread::sleep(Duration::from_millis(150));
}

fn mount(place: &Place, cache: &TestCache, words: &[&str]) -> Live {
    let mut by = program();
    by.args(words)
        .arg("-v")
        .arg("--receipts")
        .arg(place.path().join("receipts"));
    place.mount_by(by, &[cache])
}

/// Whether the mount has hashed the cache, by what it says and by what it has read.
fn hashed(live: &Live) -> bool {
    let io = fs::read_to_string(format!("/proc/{}/io", live.pid())).unwrap();
    let read = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    let much = read.unwrap().parse::<usize>().unwrap() >= LEN;
    let cache = &live.status()["caches"][0];
    assert_eq!(cache["verified"]["level"], "all");
    let expected = if much { "checksums" } else { "receipt" };
    assert_eq!(cache["validation"], expected, "{}", live.log());
    assert_eq!(
        live.log().contains("hashing skipped"),
        !much,
        "{}",
        live.log()
    );
    much
}

fn receipt(place: &Place) -> PathBuf {
    let mut entries = fs::read_dir(place.path().join("receipts")).unwrap();
    let path = entries.next().expect("a receipt").unwrap().path();
    assert!(entries.next().is_none(), "one receipt and nothing else");
    path
}

/// Mounts once, so that there is a receipt, and shows that it holds.
fn with_receipt(place: &Place) -> TestCache {
    let cache = two(place);
    let live = mount(place, &cache, &["--validate-cache"]);
    assert!(hashed(&live));
    live.stop();
    let live = mount(place, &cache, &["--validate-cache"]);
    assert!(!hashed(&live));
    live.stop();
    cache
}

#[test]
fn the_next_mount_skips_the_hashing_in_both_forms() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = with_receipt(&place);
    let mode = fs::metadata(receipt(&place)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let live = mount(&place, &cache, &["--validate-cache=access"]);
    assert!(!hashed(&live));
    for sample in 0..2 {
        let read = live.read(&format!("samples/0/{sample}")).unwrap();
        assert_eq!(read, cache.samples[sample].payload);
    }
    live.stop();
    // Whoever wants no receipts gets none.
    let live = mount(&place, &cache, &["--validate-cache", "--no-receipts"]);
    assert!(hashed(&live));
    live.stop();
    // Nobody asked for anything to be hashed.
    let live = mount(&place, &cache, &[]);
    assert_eq!(live.status()["caches"][0]["validation"], "structure");
    assert_eq!(live.status()["caches"][0]["verified"]["level"], "structure");
}

#[test]
fn a_receipt_is_void_when_any_file_differs() {
    if !can_mount() {
        return;
    }
    type Change = fn(&TestCache);
    let changes: [(&str, Change); 6] = [
        ("metadata.arrow was touched", |cache| {
            let file = File::options()
                .write(true)
                .open(cache.path("metadata.arrow"));
            file.unwrap().set_modified(SystemTime::now()).unwrap();
        }),
        ("shards/000001.bin was touched", |cache| {
            // The same bytes, and the time put back.
            let path = cache.path("shards/000001.bin");
            let modified = fs::metadata(&path).unwrap().modified().unwrap();
            let bytes = fs::read(&path).unwrap();
            cache.put("shards/000001.bin", bytes);
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(modified).unwrap();
        }),
        ("index.bin is another file", |cache| {
            fs::copy(cache.path("index.bin"), cache.path("copy")).unwrap();
            fs::rename(cache.path("copy"), cache.path("index.bin")).unwrap();
        }),
        ("shards/000000.bin is another file", |cache| {
            // By way of a link, as caches on object stores' gateways have them.
            fs::rename(cache.path("shards/000000.bin"), cache.path("there")).unwrap();
            fs::copy(cache.path("there"), cache.path("other")).unwrap();
            symlink("../other", cache.path("shards/000000.bin")).unwrap();
        }),
        ("the manifest is another one", |cache| {
            cache.set_manifest("source_name", "another");
        }),
        ("manifest.json was touched", |cache| {
            let bytes = cache.read("manifest.json");
            cache.put("manifest.json", bytes);
        }),
    ];
    for (why, change) in changes {
        let place = Place::new();
        let cache = with_receipt(&place);
        change(&cache);
        settle();
        let live = mount(&place, &cache, &["--validate-cache"]);
        assert!(hashed(&live), "{why}");
        assert!(live.log().contains(why), "{why:?} is not in {}", live.log());
        live.stop();
        // And there is a new one.
        let live = mount(&place, &cache, &["--validate-cache"]);
        assert!(!hashed(&live), "{why}");
    }
}

#[test]
fn damage_is_found_whatever_the_receipt_says() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = with_receipt(&place);
    cache.flip("shards/000001.bin", -1, 1);
    let mut by = program();
    by.arg("--validate-cache")
        .arg("--receipts")
        .arg(place.path().join("receipts"));
    let said = place.refused_by(by, &[&cache]);
    assert!(said.contains("checksum mismatch"), "{said}");
}

fn rewrite(path: &Path, change: impl FnOnce(&mut Json)) {
    let mut receipt = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut receipt);
    fs::write(path, serde_json::to_vec(&receipt).unwrap()).unwrap();
}

#[test]
fn a_receipt_that_is_odd_is_void_and_never_stops_a_mount() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = with_receipt(&place);
    let path = receipt(&place);
    let good = fs::read(&path).unwrap();
    type Change = fn(&Path);
    let changes: [(&str, Change); 12] = [
        ("EOF", |path| {
            let len = fs::metadata(path).unwrap().len();
            File::options()
                .write(true)
                .open(path)
                .unwrap()
                .set_len(len / 2)
                .unwrap();
        }),
        ("EOF", |path| fs::write(path, b"").unwrap()),
        ("expected", |path| fs::write(path, b"\xff\0{}").unwrap()),
        ("expected u32", |path| {
            fs::write(path, "[".repeat(100_000)).unwrap_or(())
        }),
        ("at most", |path| {
            File::options()
                .write(true)
                .open(path)
                .unwrap()
                .set_len(1 << 40)
                .unwrap();
        }),
        ("another folder", |path| {
            rewrite(path, |receipt| receipt["folder_sha256"] = json!("0"))
        }),
        ("another version", |path| {
            rewrite(path, |receipt| receipt["receipt_version"] = json!(2))
        }),
        ("unknown field", |path| {
            rewrite(path, |receipt| receipt["more"] = json!(1))
        }),
        ("has not come yet", |path| {
            rewrite(path, |receipt| receipt["checked_at"] = json!(u64::MAX));
        }),
        ("lists 1 files of 5", |path| {
            rewrite(path, |receipt| {
                receipt["files"].as_array_mut().unwrap().truncate(1)
            });
        }),
        ("invalid", |path| {
            rewrite(path, |receipt| receipt["files"][0]["len"] = json!(-1))
        }),
        ("others than this user", |path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
        }),
    ];
    for (why, change) in changes {
        fs::write(&path, &good).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        change(&path);
        let live = mount(&place, &cache, &["--validate-cache"]);
        assert!(hashed(&live), "{why}");
        let log = live.log();
        let void = log.lines().find(|line| line.contains("is void: "));
        assert!(void.expect(why).contains(why), "{why:?} is not in {log}");
        live.stop();
        assert_eq!(receipt(&place), path, "and a new one is in its place");
    }
    // The receipt of another cache, under this one's name.
    let other = place.cache("other", Fixture::new().v2().payloads([noise(LEN, 9)]));
    settle();
    let receipts = place.path().join("others");
    let mut by = program();
    by.arg("--validate-cache").arg("--receipts").arg(&receipts);
    place.mount_by(by, &[&other]).stop();
    let foreign = fs::read_dir(&receipts)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    fs::copy(foreign, &path).unwrap();
    let live = mount(&place, &cache, &["--validate-cache"]);
    assert!(
        hashed(&live) && live.log().contains("another folder"),
        "{}",
        live.log()
    );
    live.stop();
    // A folder that cannot be one.
    fs::remove_dir_all(place.path().join("receipts")).unwrap();
    fs::write(place.path().join("receipts"), "").unwrap();
    let live = mount(&place, &cache, &["--validate-cache"]);
    assert!(
        hashed(&live) && live.log().contains("no receipt: "),
        "{}",
        live.log()
    );
    live.assert_sound();
}

#[test]
fn the_folder_is_that_of_the_user() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = two(&place);
    let home = place.path().join("home");
    for (variable, folder) in [
        ("HOME", ".cache/datasetrt"),
        ("XDG_CACHE_HOME", "datasetrt"),
    ] {
        let mut by = program();
        by.arg("--validate-cache").env(variable, &home);
        place.mount_by(by, &[&cache]).stop();
        assert_eq!(fs::read_dir(home.join(folder)).unwrap().count(), 1);
    }
}
