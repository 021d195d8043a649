//! The migration of manifests through the mount: who can write the word, and what it changes.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::fixture::{Fixture, TestCache};
use crate::common::json::Json;
use crate::common::mount::can_mount;
use crate::live::{Live, Place, command, run, stdout};

pub(crate) const CONTROL: &str = ".control/migrate";
pub(crate) const EINVAL: i32 = 22;

/// Version and identity that the manifest on disk has; it must be a whole one.
pub(crate) fn stored(cache: &TestCache) -> (u64, Option<u64>) {
    let manifest = cache.manifest();
    let id = manifest.get("cache_id").map(|id| id.raw().parse().unwrap());
    (manifest.number_at("format_version"), id)
}

/// The names of the cache's files, without what a migration may leave behind when it is killed.
pub(crate) fn temporaries(cache: &TestCache) -> Vec<PathBuf> {
    let entries = fs::read_dir(&cache.dir).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|end| end == "tmp"))
        .collect()
}

/// Runs a line of shell in which `$0` is the control file.
fn shell(live: &Live, line: &str) -> Output {
    run(
        command(&["bash", "-c", line]).arg(live.path(CONTROL)),
        Duration::from_secs(20),
    )
}

fn result(live: &Live) -> serde_json::Value {
    serde_json::from_str(&live.text(CONTROL)).unwrap()
}

fn assert_migrated(live: &Live, cache: &TestCache, how: &str) {
    assert_eq!(stored(cache), (3, Some(0)), "{how}");
    assert_eq!(
        result(live)["Ok"]["entries"][0]["status"],
        "updated",
        "{how}"
    );
    assert_eq!(live.status()["caches"][0]["format_version"], 3, "{how}");
    assert_eq!(temporaries(cache), [""; 0].map(PathBuf::from));
}

#[test]
fn every_way_of_writing_the_word_migrates() {
    if !can_mount() {
        return;
    }
    let lines = [
        r#"echo 3 > "$0""#,
        r#"printf 3 > "$0""#,
        r#"echo 3 >> "$0""#,
        r#"echo 3 | tee "$0""#,
        r#"echo 3 | tee -a "$0""#,
        r#"echo 3 | dd of="$0" status=none"#,
        r#"echo 3 | dd of="$0" conv=notrunc status=none"#,
        r#"printf 3 | dd of="$0" bs=1 conv=notrunc status=none"#,
        r#"printf ' \t3\r\n' > "$0""#,
        r#"f=$(mktemp); echo 3 > "$f"; cp "$f" "$0"; rm "$f""#,
        r#"python3 -c 'import sys; open(sys.argv[1], "w").write("3\n")' "$0""#,
        r#"python3 -c 'import sys; open(sys.argv[1], "r+").write("3")' "$0""#,
        r#"python3 -c 'import sys; open(sys.argv[1], "a").write("3\n")' "$0""#,
        r#"python3 -c 'import os,sys; assert os.pwrite(os.open(sys.argv[1], os.O_WRONLY), b"3", 0) == 1' "$0""#,
        r#"python3 -c 'import os,sys; assert os.pwrite(os.open(sys.argv[1], os.O_RDWR), b"3\n", 7) == 2' "$0""#,
    ];
    for line in lines {
        let place = Place::new();
        let cache = place.cache("cache", Fixture::tiny().v2());
        let live = place.mount(&[&cache]);
        let output = shell(&live, line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{line}: {said}");
        assert_migrated(&live, &cache, line);
        // And once more, over the result of the first.
        assert!(shell(&live, line).status.success(), "{line}");
        assert_eq!(
            result(&live)["Ok"]["entries"][0]["status"],
            "unchanged",
            "{line}"
        );
        live.assert_sound();
    }
}

#[test]
fn nobody_reads_the_word_that_another_writes() {
    // The kernel puts what is written into the pages of the file at once, and there a reader saw it
    // until the migration had ended: the JSON began with the 3.
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let caches = [0, 1, 2].map(|n| place.cache(&format!("cache-{n}"), Fixture::tiny().v2()));
    let live = place.mount(&[&caches[0], &caches[1], &caches[2]]);
    fs::write(live.path(CONTROL), "3").unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let opened = || OpenOptions::new().write(true).open(live.path(CONTROL));
            (0..100).for_each(|_| opened().unwrap().write_all(b"3").unwrap());
            ended.store(true, Ordering::Relaxed);
        });
        while !ended.load(Ordering::Relaxed) {
            assert!(result(&live)["Ok"]["entries"].is_array());
        }
    });
    live.assert_sound();
}

#[test]
fn what_is_not_the_word_is_an_error_of_the_write_and_changes_nothing() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = place.cache("cache", Fixture::tiny().v2());
    let live = place.mount(&[&cache]);
    let before = cache.read("manifest.json");
    let empty = shell(&live, r#": > "$0""#);
    assert!(empty.status.success() && empty.stderr.is_empty());
    for line in [
        r#"printf G > "$0""#,
        r#"echo 2 > "$0""#,
        r#"echo 33 >> "$0""#,
        r#"printf '3\0' > "$0""#,
        r#"head -c 1048576 /dev/zero | tr '\0' A > "$0""#,
        r#"printf 12 | dd of="$0" bs=1 conv=notrunc status=none"#,
    ] {
        let output = shell(&live, line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains("Invalid argument"),
            "{line}: {said}"
        );
    }
    for word in [&b"4"[..], b"3 3", b"\n", &[b'3'; 5000]] {
        let mut file = OpenOptions::new()
            .write(true)
            .open(live.path(CONTROL))
            .unwrap();
        assert_eq!(file.write(word).unwrap_err().raw_os_error(), Some(EINVAL));
        assert_eq!(
            file.write_at(word, 100).unwrap_err().raw_os_error(),
            Some(EINVAL)
        );
    }
    assert_eq!(cache.read("manifest.json"), before);
    assert_eq!(live.read(CONTROL).unwrap(), b"", "nothing has run");
    assert_eq!(live.status()["caches"][0]["format_version"], 2);
    // The file works on.
    fs::write(live.path(CONTROL), "3").unwrap();
    assert_migrated(&live, &cache, "at last");
    live.assert_sound();
}

/// Inode number, length, mtime in seconds and nanoseconds, mode, and the bytes.
type Seen = (u64, u64, i64, i64, u32, Vec<u8>);

/// What a program could notice of everything below `/samples`.
fn samples(live: &Live, ids: &[u64]) -> BTreeMap<PathBuf, Seen> {
    let mut seen = BTreeMap::new();
    for id in ids {
        for entry in fs::read_dir(live.path(&format!("samples/{id}"))).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::metadata(&path).unwrap();
            let bytes = fs::read(&path).unwrap();
            let fields = (
                meta.ino(),
                meta.len(),
                meta.mtime(),
                meta.mtime_nsec(),
                meta.mode(),
                bytes,
            );
            seen.insert(path, fields);
        }
    }
    seen
}

#[test]
fn samples_stay_as_they_were_and_the_manifest_is_the_new_one() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let first = place.cache("first", Fixture::tiny().v2());
    let stays = place.cache("stays", Fixture::tiny().cache_id(40));
    let last = place.cache("last", Fixture::tiny().v2().lz4());
    let live = place.mount(&[&first, &stays, &last]);
    let before = samples(&live, &[0, 40, 2]);
    let folder = fs::metadata(live.path("samples/0")).unwrap();
    let held = File::open(live.path("samples/2/1")).unwrap();
    let old = File::open(live.path("caches/0/manifest.json")).unwrap();
    let (old_text, old_ino) = (first.read("manifest.json"), old.metadata().unwrap().ino());
    let kept = fs::metadata(stays.path("manifest.json")).unwrap();
    assert_eq!(live.read("caches/0/manifest.json").unwrap(), old_text);
    fs::write(live.path(CONTROL), "3\n").unwrap();
    assert_eq!(samples(&live, &[0, 40, 2]), before);
    assert_eq!(
        fs::metadata(live.path("samples/0")).unwrap().ino(),
        folder.ino()
    );
    let mut bytes = vec![0; last.samples[1].payload.len()];
    held.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, last.samples[1].payload);
    for (id, cache) in [(0, &first), (40, &stays), (2, &last)] {
        assert_eq!(stored(cache), (3, Some(id)));
        let shown = live.read(&format!("caches/{id}/manifest.json")).unwrap();
        assert_eq!(
            shown,
            cache.read("manifest.json"),
            "the tool that reads it sees the new one"
        );
    }
    // Who has the old manifest open goes on reading the old one, as after any rename.
    let mut bytes = vec![0; old_text.len()];
    old.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, old_text);
    assert_ne!(
        fs::metadata(live.path("caches/0/manifest.json"))
            .unwrap()
            .ino(),
        old_ino
    );
    let now = fs::metadata(stays.path("manifest.json")).unwrap();
    assert_eq!(
        (now.ino(), now.modified().unwrap()),
        (kept.ino(), kept.modified().unwrap())
    );
    let status = live.status();
    let versions: Vec<_> = (0..3)
        .map(|n| status["caches"][n]["format_version"].clone())
        .collect();
    assert_eq!(versions, [3, 3, 3]);
    live.stop();
    // Mounted again in another order, each cache keeps its identity, and its numbers go by its place.
    let live = place.mount(&[&last, &stays, &first]);
    for (id, cache) in [(0, &first), (40, &stays), (2, &last)] {
        for (n, sample) in cache.samples.iter().enumerate() {
            assert_eq!(
                live.read(&format!("samples/{id}/{n}")).unwrap(),
                sample.payload
            );
        }
    }
}

#[test]
fn whatever_else_a_manifest_says_stays_to_the_digit() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = place.cache("cache", Fixture::tiny().v2().lz4());
    cache.edit_manifest(|manifest| {
        manifest.set("x_note", Json::parse("{\"a\":[1,2.5,\"\u{e9}\"]}"));
        manifest.set("x_big", Json::parse("18446744073709551615"));
        manifest.set("shards/0/x_in_shard", Json::parse("[true, null]"));
        manifest.set("metadata_schema/0/x_in_field", Json::parse("1e3"));
        manifest.set(
            "shards/0/compression/ratio",
            Json::parse("0.1234567890123456"),
        );
    });
    let old = cache.manifest();
    let live = place.mount(&[&cache]);
    fs::write(live.path(CONTROL), "3\n").unwrap();
    let written = cache.read("manifest.json");
    let mut new = cache.manifest();
    assert_eq!(new.get("cache_id").unwrap().raw(), "0");
    new.remove("cache_id");
    new.set("format_version", 2.into());
    assert_eq!(new, old);
    assert_eq!(new.get("x_big").unwrap().raw(), "18446744073709551615");
    fs::write(live.path(CONTROL), "3\n").unwrap();
    assert_eq!(cache.read("manifest.json"), written);
    live.stop();
    cache.validated().unwrap();
    let live = place.mount(&[&cache]);
    for (n, sample) in cache.samples.iter().enumerate() {
        assert_eq!(
            live.read(&format!("samples/0/{n}")).unwrap(),
            sample.payload
        );
    }
    let shown = stdout(command(&["cat"]).arg(live.path("caches/0/manifest.json")));
    assert_eq!(shown, written);
}

#[test]
fn only_who_mounted_may_write_or_read_the_control_file() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = place.cache("cache", Fixture::tiny().v2());
    let live = place.mount(&[&cache]);
    let meta = fs::metadata(live.path(CONTROL)).unwrap();
    assert_eq!(meta.mode() & 0o7777, 0o600);
    assert_eq!(meta.uid(), rustix::process::geteuid().as_raw());
    for path in [".control/status", ".control/damaged"] {
        let opened = OpenOptions::new().write(true).open(live.path(path));
        let error = opened.and_then(|mut file| file.write(b"3")).unwrap_err();
        // The mode bits stop an ordinary user at open(2).
        let expected = if rustix::process::geteuid().is_root() {
            30
        } else {
            13
        };
        assert_eq!(error.raw_os_error(), Some(expected), "{path}");
    }
    assert_eq!(stored(&cache), (2, None));
}
