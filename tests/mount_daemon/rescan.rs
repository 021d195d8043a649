//! Caches that are published while a mount is in use.

use std::fs;
use std::path::Path;

use serde_json::Value as Json;

use crate::common::fixture::Fixture;
use crate::common::mount::{MountGuard, can_mount, program, within};
use crate::{Place, place, text};

const CONTROL: &str = ".control/caches";

fn names(guard: &MountGuard, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(guard.point.join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn publish(folder: &Path, name: &str, id: u64) {
    let fixture = Fixture::new().name(name).cache_id(id);
    // Under another name first, as those who publish do.
    let staged = folder.with_extension("staged");
    let _ = fixture.payloads([name]).write(&staged);
    fs::rename(staged, folder.join(name)).unwrap();
}

/// A folder of caches with `first` in it, id 5.
fn published(place: &Place) -> std::path::PathBuf {
    let folder = place.point("caches");
    publish(&folder, "first", 5);
    folder
}

fn rescan(guard: &MountGuard) -> Json {
    fs::write(guard.point.join(CONTROL), "rescan\n").unwrap();
    serde_json::from_slice(&guard.read(CONTROL).unwrap()).unwrap()
}

#[test]
fn what_was_published_since_is_there_after_a_rescan() {
    if !can_mount() {
        return;
    }
    let place = place();
    let folder = published(&place);
    let mut guard = MountGuard::at(place.point("m"));
    guard.foreground(program(), &folder);
    assert_eq!(guard.read(CONTROL).unwrap(), b"");
    // The kernel has heard that it is not there.
    assert!(guard.read("samples/7/0").is_err());
    assert!(guard.read("by-name/second/0").is_err());
    assert_eq!(names(&guard, "samples"), ["5"]);

    publish(&folder, "second", 7);
    assert!(guard.read("samples/7/0").is_err(), "not asked for yet");
    let result = rescan(&guard);
    assert_eq!(result["added"][0]["cache_id"], 7);
    assert_eq!(result["refused"], Json::Array(Vec::new()));
    assert_eq!(names(&guard, "samples"), ["5", "7"]);
    assert_eq!(names(&guard, "caches"), ["5", "7"]);
    assert_eq!(names(&guard, "by-name"), ["first", "second"]);
    assert_eq!(guard.read("samples/7/0").unwrap(), b"second");
    assert_eq!(guard.read("by-name/second/0").unwrap(), b"second");
    let status: Json = serde_json::from_slice(&guard.read(".control/status").unwrap()).unwrap();
    assert_eq!(status["caches"][1]["cache_id"], 7);

    assert_eq!(rescan(&guard)["added"], Json::Array(Vec::new()));
    for word in ["", "rescan all", "3", "RESCAN"] {
        let error = fs::write(guard.point.join(CONTROL), format!("{word}\n")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(22), "{word:?}");
    }
}

#[test]
fn what_cannot_join_is_refused_by_name_and_what_went_is_served_on() {
    if !can_mount() {
        return;
    }
    let place = place();
    let folder = published(&place);
    let mut guard = MountGuard::at(place.point("m"));
    let mut command = program();
    command.arg("--validate-cache");
    command.args(["--no-receipts"]);
    guard.foreground(command, &folder);

    publish(&folder, "same-id", 5);
    let _ = Fixture::tiny().v2().write(&folder.join("old"));
    let damaged = Fixture::new().cache_id(8).payloads(["x"]);
    let damaged = damaged.write(&folder.join("damaged"));
    let shard = damaged.path("shards/000000.bin");
    let mut bytes = fs::read(&shard).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&shard, bytes).unwrap();
    fs::create_dir(folder.join("unfinished")).unwrap();
    publish(&folder, "good", 9);
    fs::rename(folder.join("first"), place.point("elsewhere").join("first")).unwrap();

    let result = rescan(&guard);
    assert_eq!(result["added"].as_array().unwrap().len(), 1, "{result}");
    assert_eq!(result["added"][0]["cache_id"], 9);
    let refused: Vec<_> = result["refused"].as_array().unwrap().iter().collect();
    assert_eq!(refused.len(), 3, "{result}");
    for (name, reason) in [
        ("damaged", "sha-256"),
        ("old", "format 2"),
        ("same-id", "5"),
    ] {
        let names_both = |text: &&Json| {
            let text = text.as_str().unwrap().to_lowercase();
            text.contains(&format!("/{name}")) && text.contains(reason)
        };
        assert_eq!(
            refused.iter().filter(|text| names_both(text)).count(),
            1,
            "{name}: {result}"
        );
    }
    assert!(
        result["gone"][0].as_str().unwrap().ends_with("/first"),
        "{result}"
    );
    assert_eq!(names(&guard, "samples"), ["5", "9"]);
    assert_eq!(guard.read("samples/5/0").unwrap(), b"first");
    assert_eq!(guard.read("samples/9/0").unwrap(), b"good");
}

#[test]
fn a_damaged_newcomer_is_hashed_once_and_again_when_it_has_changed() {
    if !can_mount() {
        return;
    }
    const LEN: usize = 4 << 20;
    let place = place();
    let folder = published(&place);
    let mut guard = MountGuard::at(place.point("m"));
    let mut command = program();
    command.args(["--validate-cache", "--no-receipts"]);
    guard.foreground(command, &folder);
    let damaged = Fixture::new().cache_id(8).payloads([vec![b'x'; LEN]]);
    let damaged = damaged.write(&folder.join("damaged"));
    damaged.flip("shards/000000.bin", -1, 1);
    let read = |guard: &MountGuard| -> usize {
        let pid = guard.pid().as_raw_nonzero();
        let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
        let read = io.lines().find_map(|line| line.strip_prefix("rchar: "));
        read.unwrap().parse().unwrap()
    };
    let first = rescan(&guard);
    assert_eq!(first["refused"].as_array().unwrap().len(), 1, "{first}");
    // What changed a moment ago is not yet sure to show another change.
    assert!(within(|| {
        let before = read(&guard);
        assert_eq!(rescan(&guard)["refused"], first["refused"]);
        read(&guard) - before < LEN
    }));
    damaged.flip("shards/000000.bin", -1, 1);
    assert_eq!(rescan(&guard)["added"][0]["cache_id"], 8);
}

#[test]
fn with_skip_invalid_or_watch_the_later_of_two_equal_ids_is_left_out_by_name() {
    if !can_mount() {
        return;
    }
    for words in [&["--skip-invalid"][..], &["--watch", "3600"]] {
        let place = place();
        let folder = published(&place);
        publish(&folder, "second", 5);
        publish(&folder, "third", 6);
        let guard = MountGuard::at(place.point("m"));
        let mut command = program();
        command.args(words);
        let output = guard.background(command, &folder);
        let said = text(&output);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("duplicate cache_id 5"), "{said}");
        assert!(
            said.contains("/first") && said.contains("/second"),
            "{said}"
        );
        assert_eq!(names(&guard, "samples"), ["5", "6"]);
        assert_eq!(guard.read("samples/5/0").unwrap(), b"first");
    }
    let place = place();
    let folder = published(&place);
    publish(&folder, "second", 5);
    let guard = MountGuard::at(place.point("m"));
    let output = guard.background(program(), &folder);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
}

#[test]
fn a_mount_that_watches_needs_no_command() {
    if !can_mount() {
        return;
    }
    let place = place();
    let folder = published(&place);
    let guard = MountGuard::at(place.point("m"));
    let mut command = program();
    command.args(["--watch", "1"]);
    let output = guard.background(command, &folder);
    assert!(output.status.success(), "{}", text(&output));
    publish(&folder, "second", 7);
    assert!(within(|| guard.read("samples/7/0").is_ok()));
}
