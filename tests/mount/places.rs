//! Mountpoints that would hide or hold the cache.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use crate::common::fixture::Fixture;
use crate::common::mount::{MountGuard, can_mount, program};
use crate::live::{Place, run};

fn refused(cache: &Path, point: &Path, cause: &str) {
    let guard = MountGuard::at(point);
    let output = run(program().arg(cache).arg(point), Duration::from_secs(10));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(cause), "{said}");
    assert!(guard.is_gone());
}

#[test]
fn a_mount_over_its_own_cache_is_refused_however_the_paths_are_spelled() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = place.cache("cache", Fixture::tiny().v2());
    let at = |path: &str| place.path().join(path);
    refused(&cache.dir, &cache.path("shards"), "lies inside");
    refused(&cache.dir, &cache.path("shards/../shards"), "lies inside");
    // The cache below the mountpoint, named by a link from elsewhere.
    fs::create_dir(at("mount")).unwrap();
    fs::rename(&cache.dir, at("mount/cache")).unwrap();
    symlink(at("mount/cache"), at("link")).unwrap();
    refused(&at("link"), &at("mount"), "contains");
    // One shard that lies below the mountpoint.
    fs::rename(at("mount/cache"), at("cache")).unwrap();
    fs::rename(at("cache/shards/000000.bin"), at("mount/shard")).unwrap();
    symlink(at("mount/shard"), at("cache/shards/000000.bin")).unwrap();
    refused(&at("cache"), &at("mount"), "contains");
}
