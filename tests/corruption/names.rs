//! Shard names that would leave the shards folder.

use std::fs;
use std::os::unix::fs::symlink;

use crate::common::fixture::{Fixture, TestCache};
use crate::{fault_at_open, outcome};
use datasetrt::error::FaultKind;

/// A cache whose real shard also lies outside of it, so that a reader that follows the name finds
/// everything in order.
fn with_shard_outside() -> TestCache {
    let cache = Fixture::tiny().build();
    let outside = cache.dir.parent().unwrap().join("x.bin");
    fs::copy(cache.path("shards/000000.bin"), outside).unwrap();
    fs::copy(cache.path("shards/000000.bin"), cache.path("x.bin")).unwrap();
    fs::create_dir(cache.path("shards/a")).unwrap();
    cache
}

#[test]
fn names_that_lead_elsewhere_are_refused_naming_the_entry() {
    // File names taken from a file were joined to the folder as they were: `..` read any file.
    let absolute = with_shard_outside();
    let absolute = absolute.path("x.bin").to_str().unwrap().to_owned();
    let long = "x".repeat(300);
    for name in [
        "../../x.bin",
        "../x.bin",
        &absolute,
        "/etc/passwd",
        "a/../000000.bin",
        "./000000.bin",
        "000000.bin/",
        "",
        ".",
        "..",
        "000000.bin\0",
        &long,
    ] {
        let cache = with_shard_outside();
        cache.set_manifest("shards/0/name", name);
        assert_eq!(fault_at_open(&cache), FaultKind::ShardName, "{name:?}");
        let message = cache.dataset().unwrap_err().chain();
        assert!(message.contains("shards[0]"), "{message}");
    }
}

#[test]
fn plain_names_of_any_sort_are_read() {
    for name in [
        "any name.dat",
        "...",
        "\u{e9}\u{1f642}",
        "a\nb",
        "a\\b",
        "-",
    ] {
        let cache = Fixture::tiny().build();
        fs::rename(
            cache.path("shards/000000.bin"),
            cache.path("shards").join(name),
        )
        .unwrap();
        cache.set_manifest("shards/0/name", name);
        assert_eq!(outcome(&cache), "right", "{name:?}");
    }
}

#[test]
fn links_that_the_owner_made_are_followed() {
    // Caches are spread over disks by links; a name in a file is another matter.
    let cache = with_shard_outside();
    cache.remove("shards/000000.bin");
    symlink("../../x.bin", cache.path("shards/000000.bin")).unwrap();
    assert_eq!(outcome(&cache), "right");
    cache.remove("shards/000000.bin");
    symlink("nowhere", cache.path("shards/000000.bin")).unwrap();
    assert_eq!(outcome(&cache), "open: NotFound shards/000000.bin");
}
