//! Views that nobody uses give their memory back, and come back as they were.

use std::time::{Duration, Instant};

use datasetrt::dataset::Dataset;
use datasetrt::format::manifest::FieldKind;
use datasetrt::vfs::{Vfs, VfsOptions};
use serde_json::Value as Json;

use super::tiny_views::{Tiny, open, text};
use super::walk::{at, options, read, vfs, walk};

const VIEWS: [&str; 2] = ["a={label}/{sample_id}", "b={sample_id}-{label}"];

fn dataset(dir: &std::path::Path) -> Dataset {
    let mut tiny = Tiny::new(7, &[("label", FieldKind::String)]);
    for n in 0..200_u64 {
        tiny = tiny.with(vec![text(&format!("l{}", n % 17))], &n.to_le_bytes());
    }
    open(dir, &[tiny])
}

fn status(vfs: &Vfs) -> Json {
    let status = read(vfs, at(vfs, ".control/status").unwrap().ino);
    serde_json::from_slice(&status).unwrap()
}

fn views(vfs: &Vfs) -> Vec<Json> {
    status(vfs)["views"].as_array().unwrap().clone()
}

fn states(vfs: &Vfs) -> Vec<String> {
    let views = views(vfs);
    let states = views
        .iter()
        .map(|view| view["state"].as_str().unwrap().to_owned());
    states.collect()
}

#[test]
fn a_view_without_use_is_dropped_and_comes_back_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let vfs = vfs(&dataset(dir.path()), options(&VIEWS));
    let before = walk(&vfs, at(&vfs, "views").unwrap().ino);
    let lines = read(&vfs, at(&vfs, "views/a/metadata.jsonl").unwrap().ino);
    assert_eq!(states(&vfs), ["built", "built"]);
    assert!(views(&vfs)[0]["memory_bytes"].as_u64().unwrap() > 200);
    // Ten minutes.
    for _ in 0..125 {
        vfs.tidy();
    }
    assert_eq!(states(&vfs), ["evicted", "evicted"]);
    assert_eq!(views(&vfs)[0]["memory_bytes"], Json::Null);
    let folder = at(&vfs, "views/a/l3").unwrap();
    assert_eq!(states(&vfs), ["built", "evicted"]);
    assert_eq!(vfs.getattr(folder.ino).unwrap(), folder);
    assert!(
        walk(&vfs, at(&vfs, "views").unwrap().ino) == before,
        "names and numbers"
    );
    assert_eq!(
        read(&vfs, at(&vfs, "views/a/metadata.jsonl").unwrap().ino),
        lines
    );
    // What is used stays.
    for _ in 0..125 {
        vfs.tidy();
        at(&vfs, "views/b/3-l3").unwrap();
    }
    assert_eq!(states(&vfs), ["evicted", "built"]);
}

#[test]
fn a_look_at_a_file_over_all_samples_makes_no_temporary_file() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = dataset(dir.path());
    let held = |vfs: &Vfs| status(vfs)["temp_disk"]["held_bytes"].as_u64().unwrap();
    for file in ["metadata.arrow", "views/a/metadata.jsonl"] {
        let vfs = vfs(&dataset, options(&VIEWS));
        let attr = at(&vfs, file).unwrap();
        assert!(attr.size > 1000);
        assert_eq!(held(&vfs), 0, "{file}");
        let bytes = read(&vfs, attr.ino);
        // A status is given again for a second.
        let until = Instant::now() + Duration::from_secs(60);
        while held(&vfs) != attr.size {
            assert!(Instant::now() < until, "{}", held(&vfs));
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(read(&vfs, attr.ino), bytes);
    }
}

#[test]
fn views_beyond_the_budget_make_room_for_the_one_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let options = VfsOptions {
        cache_memory: 0,
        ..options(&VIEWS)
    };
    let vfs = vfs(&dataset(dir.path()), options);
    // A minute after the start.
    for _ in 0..14 {
        vfs.tidy();
    }
    assert_eq!(states(&vfs), ["evicted", "evicted"]);
    at(&vfs, "views/a/l3/3").unwrap();
    at(&vfs, "views/b/3-l3").unwrap();
    assert_eq!(states(&vfs), ["evicted", "built"]);
    at(&vfs, "views/a/l3/3").unwrap();
    assert_eq!(states(&vfs), ["built", "evicted"]);
}
