//! `.control/verify`: everything is checked behind the running mount, and what is found wrong is not
//! served any more.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value as Json, json};

use crate::common::fixture::{Fixture, TestCache};
use crate::common::mount::{can_mount, program};
use crate::common::noise::noise;
use crate::live::{EIO, Live, Place, run, stdout};

const CONTROL: &str = ".control/verify";
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const LEN: usize = 300_000;
/// Against hanging only.
const LIMIT: Duration = Duration::from_secs(120);

/// A cache of three samples in three shards.
fn three(place: &Place, name: &str, id: u64, lz4: bool) -> TestCache {
    let payloads = (0..3).map(|seed| noise(LEN, seed));
    let fixture = Fixture::new()
        .cache_id(id)
        .max_shard_bytes(1)
        .payloads(payloads);
    let fixture = if lz4 { fixture.lz4() } else { fixture };
    place.cache(name, fixture)
}

fn report(live: &Live) -> Json {
    serde_json::from_str(&live.text(CONTROL)).unwrap()
}

/// Waits for the end of the run and gives its report.
fn ended(live: &Live) -> Json {
    let until = Instant::now() + LIMIT;
    loop {
        let report = report(live);
        if report["state"] != "running" {
            return report;
        }
        assert!(Instant::now() < until, "{report}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Has everything that `word` names checked, and gives the report.
pub(crate) fn checked(live: &Live, word: &str) -> Json {
    fs::write(live.path(CONTROL), word).unwrap();
    let report = ended(live);
    assert_eq!(report["state"], "done", "{report}");
    report
}

fn errno(live: &Live, word: &str) -> i32 {
    let failed = fs::write(live.path(CONTROL), word).unwrap_err();
    failed.raw_os_error().unwrap()
}

fn verified(live: &Live, cache: usize) -> Json {
    live.status()["caches"][cache]["verified"].clone()
}

/// The findings of `datasetrt verify --json`.
fn by_tool(caches: &[&TestCache]) -> Json {
    let mut command = Command::new(env!("CARGO_BIN_EXE_datasetrt"));
    let dirs = caches.iter().map(|cache| &cache.dir);
    command.args(["verify", "--json"]).args(dirs);
    let output = run(&mut command, LIMIT);
    let report: Json = serde_json::from_slice(&output.stdout).unwrap();
    report["findings"].clone()
}

#[test]
fn good_caches_are_found_good_and_the_status_says_how_far() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let plain = three(&place, "plain", 7, false);
    let packed = three(&place, "packed", 8, true);
    let live = place.mount(&[&plain, &packed]);
    assert_eq!(report(&live), json!({"state": "never run"}));
    let before = verified(&live, 0);
    assert_eq!(before["level"], "structure");
    assert_eq!(before["at"], Json::Null);
    let done = checked(&live, "8\n");
    assert_eq!((&done["target"], &done["damage"]), (&json!(8), &json!(0)));
    assert_eq!(verified(&live, 0)["level"], "structure");
    let after = verified(&live, 1);
    assert_eq!(after["level"], "all");
    assert_eq!((&after["shards"], &after["of"]), (&json!(3), &json!(3)));
    assert!(after["at"].as_u64().unwrap() > 1_700_000_000);
    let done = checked(&live, "all");
    assert_eq!(
        (&done["target"], &done["findings"]),
        (&json!("all"), &json!([]))
    );
    assert_eq!(done["caches"].as_array().unwrap().len(), 2);
    assert!(done["bytes"].as_u64() <= done["total_bytes"].as_u64());
    assert_eq!(verified(&live, 0)["level"], "all");
    assert!(
        live.log().contains("check done: 0 findings"),
        "{}",
        live.log()
    );
    live.assert_sound();
}

#[test]
fn nobody_reads_the_word_that_another_writes() {
    // The kernel puts what is written into the pages of the file at once.
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = three(&place, "cache", 7, false);
    let live = place.mount(&[&cache]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for word in ["stop", "all", "no such command"].iter().cycle().take(600) {
                match fs::write(live.path(CONTROL), word) {
                    Ok(()) => {}
                    Err(error) => assert!(matches!(error.raw_os_error(), Some(EBUSY | EINVAL))),
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            assert!(report(&live)["state"].is_string());
        }
    });
    live.assert_sound();
}

#[test]
fn a_shard_that_is_found_wrong_is_not_served_also_from_what_the_kernel_kept() {
    if !can_mount() {
        return;
    }
    for lz4 in [false, true] {
        let place = Place::new();
        let cache = three(&place, "cache", 7, lz4);
        let live = place.mount(&[&cache]);
        // The kernel has the pages of all, and the daemon those that were decoded.
        for sample in 0..3 {
            let read = live.read(&format!("samples/7/{sample}")).unwrap();
            assert_eq!(read, cache.samples[sample].payload);
        }
        cache.flip("shards/000001.bin", -1000, 1);
        let report = checked(&live, "all");
        assert_eq!(report["findings"], by_tool(&[&cache]));
        assert_eq!(live.errno("samples/7/1"), EIO);
        for sample in [0, 2] {
            let read = live.read(&format!("samples/7/{sample}")).unwrap();
            assert_eq!(read, cache.samples[sample].payload);
        }
        let damaged = live.damaged();
        assert!(
            damaged.len() == 1 && damaged[0].starts_with("7/1: "),
            "{damaged:?}"
        );
        assert!(damaged[0].contains("shards/000001.bin"), "{damaged:?}");
        let state = verified(&live, 0);
        assert_eq!(
            (&state["level"], &state["shards"]),
            (&json!("shards"), &json!(2))
        );
        // When the disk gives the right bytes again, the next check says so.
        cache.flip("shards/000001.bin", -1000, 1);
        assert_eq!(live.errno("samples/7/1"), EIO);
        checked(&live, "7");
        assert_eq!(live.damaged(), [""; 0]);
        let read = live.read("samples/7/1").unwrap();
        assert_eq!(read, cache.samples[1].payload);
        assert_eq!(verified(&live, 0)["level"], "all");
        live.assert_sound();
    }
}

#[test]
fn wrong_tables_close_their_cache_and_no_other() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let bad = three(&place, "bad", 7, false);
    let good = three(&place, "good", 8, false);
    let live = place.mount(&[&bad, &good]);
    // A byte that no reader looks at.
    bad.edit("metadata.arrow", |bytes| {
        let at = bytes.len() - 7;
        bytes[at] ^= 1;
    });
    let report = checked(&live, "all");
    assert_eq!(report["caches"][1]["damage"], 0);
    assert!(report["damage"].as_u64().unwrap() >= 1);
    assert_eq!(live.damaged().len(), 3);
    assert_eq!(verified(&live, 0)["level"], "none");
    for sample in 0..3 {
        assert_eq!(live.errno(&format!("samples/7/{sample}")), EIO);
        live.read(&format!("samples/8/{sample}")).unwrap();
    }
    live.assert_sound();
}

#[test]
fn damage_of_single_samples_is_what_the_tool_finds() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = place.cache(
        "cache",
        Fixture::new()
            .cache_id(7)
            .lz4()
            .payloads((0..4).map(|seed| noise(2000, seed))),
    );
    cache.set_json(1, br#"{"n":7}"#);
    cache.set_stored(2, &[0xFF, 0, 0, 0, 0x10]);
    cache.reseal();
    let live = place.mount(&[&cache]);
    let report = checked(&live, "all");
    assert_eq!(report["findings"], by_tool(&[&cache]));
    let damaged = live.damaged();
    assert_eq!(damaged.len(), 2, "{damaged:?}");
    for sample in 0..4 {
        let read = live.read(&format!("samples/7/{sample}"));
        assert_eq!(read.is_err(), sample == 1 || sample == 2);
    }
    live.assert_sound();
}

#[test]
fn a_manifest_that_was_exchanged_is_found_and_a_migrated_one_is_none() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = place.cache("cache", Fixture::tiny().v2());
    let live = place.mount(&[&cache]);
    fs::write(live.path(".control/migrate"), "3").unwrap();
    assert_eq!(checked(&live, "all")["damage"], 0);
    cache.set_manifest("source_name", "another");
    let report = checked(&live, "all");
    assert_eq!(report["damage"], 1);
    assert_eq!(report["findings"][0]["kind"], "replaced");
    // The mount has what it loaded.
    live.read("samples/0/0").unwrap();
    live.assert_sound();
}

#[test]
fn a_run_is_slow_by_its_rate_shows_how_far_it_is_and_can_be_stopped() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = three(&place, "cache", 7, false);
    let mut by = program();
    // The first piece alone takes minutes.
    by.args(["--scrub-rate", "1KiB"]);
    let live = place.mount_by(by, &[&cache]);
    for word in ["", "\n", "ALL", "all all", "9", "-1", "07", "3 "] {
        if word.is_empty() {
            continue;
        }
        assert_eq!(errno(&live, word), EINVAL, "{word:?}");
    }
    fs::write(live.path(CONTROL), "stop").unwrap();
    assert_eq!(report(&live)["state"], "never run");
    fs::write(live.path(CONTROL), "all\n").unwrap();
    let running = report(&live);
    assert_eq!(running["state"], "running");
    assert!(running.get("findings").is_none());
    assert_eq!(errno(&live, "all"), EBUSY);
    assert_eq!(errno(&live, "7"), EBUSY);
    // Readers are not held up.
    for sample in 0..3 {
        live.read(&format!("samples/7/{sample}")).unwrap();
    }
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "echo stop >> \"$0\""])
        .arg(live.path(CONTROL));
    stdout(&mut shell);
    let stopped = report(&live);
    assert_eq!(stopped["state"], "stopped");
    assert!(stopped["bytes"].as_u64() < stopped["total_bytes"].as_u64());
    assert_eq!(stopped["findings"], json!([]));
    // The end of the daemon ends a run.
    fs::write(live.path(CONTROL), "7").unwrap();
    assert_eq!(report(&live)["state"], "running");
    live.stop();
}

/// Reads a file as cat(1) does, in small pieces, and holds its length against what stat says.
fn whole(path: &Path) -> Option<String> {
    let file = fs::File::open(path).unwrap();
    let len = file.metadata().unwrap().len();
    let mut bytes = Vec::new();
    let mut piece = [0; 64];
    loop {
        match std::io::Read::read(&mut &file, &mut piece) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&piece[..n]),
            // Many texts were made since this one was opened.
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(116), "{error}");
                return None;
            }
        }
    }
    assert_eq!(bytes.len() as u64, len);
    Some(String::from_utf8(bytes).unwrap())
}

#[test]
fn every_reader_sees_a_whole_text_of_its_true_length() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = three(&place, "cache", 7, false);
    let mut by = program();
    // Slow enough that the text changes under its readers for some seconds.
    by.args(["--scrub-rate", "300KiB"]);
    let live = place.mount_by(by, &[&cache]);
    cache.flip("shards/000001.bin", -1000, 1);
    fs::write(live.path(CONTROL), "all").unwrap();
    let (done, running) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let Some(text) = whole(&live.path(CONTROL)) else {
                        continue;
                    };
                    let report: Json = serde_json::from_str(&text).expect(&text);
                    let ended = report["state"] == "done";
                    done.fetch_or(ended, Ordering::Relaxed);
                    running.fetch_add(u64::from(!ended), Ordering::Relaxed);
                }
            });
        }
    });
    assert!(running.into_inner() > 0);
    live.assert_sound();
}

#[test]
fn what_was_written_is_never_read_back() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = three(&place, "cache", 7, false);
    let live = place.mount(&[&cache]);
    for round in 0..6 {
        // A longer report each other time; each is in the kernel when the next word is written.
        cache.flip("shards/000001.bin", -1000, 1);
        let report = checked(&live, if round % 2 == 0 { "all" } else { "7" });
        assert_eq!(report["damage"], 1 - round % 2);
        assert_eq!(errno(&live, "nonsense that is no command"), EINVAL);
        assert_eq!(self::report(&live), report);
    }
    live.assert_sound();
}

#[test]
fn a_run_that_ends_with_its_mount_leaves_no_process() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = three(&place, "cache", 7, false);
    let mut by = program();
    by.args(["-o", "scrub_rate=1K"]);
    let mut live = place.mount_by(by, &[&cache]);
    fs::write(live.path(CONTROL), "all").unwrap();
    live.guard.signal(Signal::INT);
    assert_eq!(live.guard.status().code(), Some(0));
    assert!(live.guard.is_gone());
}
