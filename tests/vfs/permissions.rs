//! The right of a node is that of all files that its bytes come from.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use datasetrt::vfs::{Vfs, VfsOptions};

use crate::common::acl::{ACCESS, set_acl};
use crate::common::fixture::{Fixture, Sample, TestCache};
use crate::{look, tree_of, tree_with};

/// One sample in each of two shards.
fn two_shards() -> TestCache {
    let samples = ["one", "two"].map(|payload| Sample::new(payload).with("label", 1));
    let cache = Fixture::new().v2().samples(samples).max_shard_bytes(1);
    let cache = cache.build();
    for name in [
        "manifest.json",
        "metadata.arrow",
        "index.bin",
        "shards/000001.bin",
    ] {
        chmod(&cache, name, 0o644);
    }
    chmod(&cache, "", 0o755);
    chmod(&cache, "shards", 0o755);
    cache
}

fn chmod(cache: &TestCache, name: &str, mode: u32) {
    fs::set_permissions(cache.path(name), fs::Permissions::from_mode(mode)).unwrap();
}

/// The bits that let others read.
fn bits(vfs: &Vfs, path: &str) -> u16 {
    look(vfs, path).unwrap().perm & 0o444
}

const NODES: [&str; 8] = [
    "samples/0",
    "samples/0/0",
    "samples/0/1",
    "caches/0",
    "caches/0/manifest.json",
    "caches/0/metadata.arrow",
    "views/by-label",
    "metadata.arrow",
];

#[test]
fn each_node_has_the_right_of_all_files_that_it_is_made_of() {
    // What is private, and which nodes are then.
    let all = 0b1111_1111;
    for (private, mode, expected) in [
        ("shards/000001.bin", 0o600, 0b1100_0100),
        ("shards", 0o700, 0b1100_0111),
        ("index.bin", 0o600, 0b1100_0111),
        ("metadata.arrow", 0o600, 0b1110_0111),
        ("manifest.json", 0o600, 0b1101_0111),
        ("", 0o700, all),
        ("", 0o744, all),
    ] {
        let cache = two_shards();
        let vfs = tree_of(&[&cache]);
        for node in NODES {
            assert_eq!(bits(&vfs, node), 0o444, "{node}");
        }
        chmod(&cache, private, mode);
        let vfs = tree_of(&[&cache]);
        for (n, node) in NODES.iter().enumerate() {
            let mode = if expected & (1 << n) == 0 {
                0o444
            } else {
                0o400
            };
            assert_eq!(bits(&vfs, node), mode, "{private:?} is {mode:o}: {node}");
        }
    }
}

#[test]
fn lists_of_names_and_texts_about_all_caches_are_for_those_who_may_read_all() {
    let (open, private) = (two_shards(), two_shards());
    let told = [".control/status", ".control/damaged", ".control/log"];
    let vfs = tree_of(&[&open, &private]);
    for path in told.into_iter().chain(["by-name", "views"]) {
        assert_eq!(bits(&vfs, path), 0o444, "{path}");
    }
    chmod(&private, "shards/000001.bin", 0o640);
    let vfs = tree_of(&[&open, &private]);
    for path in told {
        assert_eq!(bits(&vfs, path), 0o440, "{path}");
    }
    for path in ["by-name", "views", ".control/metrics"] {
        assert_eq!(bits(&vfs, path), 0o444, "{path}");
    }
    chmod(&private, "metadata.arrow", 0o600);
    let vfs = tree_of(&[&open, &private]);
    for path in told.into_iter().chain(["by-name", "views"]) {
        assert_eq!(bits(&vfs, path), 0o400, "{path}");
    }
    // Names that are known can be used.
    for path in ["by-name", "views"] {
        assert_eq!(look(&vfs, path).unwrap().perm & 0o111, 0o111, "{path}");
    }
    assert_eq!(bits(&vfs, "samples/0/0"), 0o444);
    assert_eq!(bits(&vfs, ".control/metrics"), 0o444);
}

#[test]
fn a_link_adds_the_folders_that_it_leads_through() {
    let cache = two_shards();
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("shard");
    fs::rename(cache.path("shards/000001.bin"), &target).unwrap();
    symlink(&target, cache.path("shards/000001.bin")).unwrap();
    for (mode, bits_of_one) in [(0o755, 0o444), (0o700, 0o400), (0o754, 0o440)] {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(elsewhere.path(), mode).unwrap();
        let vfs = tree_of(&[&cache]);
        assert_eq!(bits(&vfs, "samples/0/1"), bits_of_one);
        assert_eq!(bits(&vfs, "samples/0/0"), 0o444);
    }
}

#[test]
fn an_acl_is_read_and_its_mask_is_not_taken_for_the_group() {
    let cache = two_shards();
    // The mode of each of these says 0644 or more.
    for (acl, expected) in [
        ("u::rw-,u:1000:r--,g::---,m::r--,o::r--", 0o404),
        ("u::rw-,u:1000:---,g::r--,m::r--,o::r--", 0o400),
        ("u::rw-,g::r--,g:1000:---,m::r--,o::r--", 0o440),
        ("u::rw-,u:1000:r--,g::r--,m::r--,o::r--", 0o444),
        ("u::rw-,u:1000:r--,g::r--,g:7:r--,m::r--,o::---", 0o440),
    ] {
        for file in [
            "shards/000001.bin",
            "index.bin",
            "metadata.arrow",
            "manifest.json",
        ] {
            if !set_acl(&cache.path(file), ACCESS, acl) {
                return;
            }
            let vfs = tree_of(&[&cache]);
            assert_eq!(bits(&vfs, "samples/0/1"), expected, "{file}: {acl}");
            let open = "u::rw-,g::r--,o::r--";
            assert!(set_acl(&cache.path(file), ACCESS, open));
        }
    }
    assert!(set_acl(
        &cache.path(""),
        ACCESS,
        "u::rwx,u:1000:r--,g::r-x,m::r-x,o::r-x"
    ));
    assert_eq!(bits(&tree_of(&[&cache]), "samples/0/1"), 0o400);
}

#[test]
fn who_is_let_in_by_an_acl_alone_can_read_the_own_mount() {
    let cache = two_shards();
    let acl = "u::rw-,u:1000:r--,g::---,m::r--,o::---";
    if !set_acl(&cache.path("shards/000001.bin"), ACCESS, acl) {
        return;
    }
    let mounter = VfsOptions {
        uid: 1000,
        gid: 1000,
        ..VfsOptions::default()
    };
    let vfs = tree_with(&[&cache], mounter);
    let found = look(&vfs, "samples/0/1").unwrap();
    assert_eq!((found.uid, found.perm & 0o444), (1000, 0o400));
    assert_ne!(look(&vfs, "samples/0/0").unwrap().uid, 1000);
}

#[test]
fn who_is_shown_instead_takes_nobody_elses_place() {
    let cache = two_shards();
    chmod(&cache, "shards/000001.bin", 0o604);
    let options = VfsOptions {
        show_gid: Some(4_000_000),
        ..VfsOptions::default()
    };
    // Who is of the group is one of the others now.
    assert_eq!(
        bits(&tree_with(&[&cache], options.clone()), "samples/0/1"),
        0o400
    );
    let options = VfsOptions {
        umask: Some(0o022),
        ..options
    };
    chmod(&cache, "metadata.arrow", 0o600);
    let vfs = tree_with(&[&cache], options);
    for path in ["samples/0/1", "by-name", "views", ".control/status"] {
        assert_eq!(bits(&vfs, path), 0o444, "{path}");
    }
}
