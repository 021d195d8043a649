//! Sizes, times, owners and modes.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use datasetrt::vfs::{FileKind, SetAttr, Ttl, Vfs, VfsError, VfsOptions};

use crate::common::fixture::{Fixture, TestCache};
use crate::{look, tree_of, tree_with};

fn tiny() -> TestCache {
    Fixture::tiny().v2().build()
}

fn chmod(cache: &TestCache, index: u32, folder: u32) {
    fs::set_permissions(cache.path("index.bin"), Permissions::from_mode(index)).unwrap();
    fs::set_permissions(&cache.dir, Permissions::from_mode(folder)).unwrap();
}

fn modes(vfs: &Vfs) -> (u16, u16) {
    let file = look(vfs, "samples/0/0").unwrap();
    let folder = look(vfs, "samples/0").unwrap();
    (file.perm, folder.perm)
}

#[test]
fn a_size_that_was_seen_is_known_without_the_shard() {
    let cache = Fixture::tiny().v2().lz4().build();
    let vfs = tree_of(&[&cache]);
    let seen = look(&vfs, "samples/0/0").unwrap();
    fs::rename(cache.path("shards"), cache.path("elsewhere")).unwrap();
    // The shard may be open still; what was never looked at shows that it cannot be opened anew.
    fs::write(cache.path("elsewhere/000000.bin"), "").unwrap();
    assert_eq!(look(&vfs, "samples/0/0").unwrap(), seen);
    assert!(matches!(
        look(&vfs, "samples/0/1"),
        Err(VfsError::Damaged(_))
    ));
}

#[test]
fn nobody_gets_a_bit_that_the_cache_does_not_give() {
    let cache = tiny();
    for (index, folder, file, dir) in [
        (0o644, 0o755, 0o444, 0o755),
        (0o777, 0o777, 0o444, 0o755),
        (0o640, 0o755, 0o440, 0o750),
        (0o600, 0o755, 0o400, 0o700),
        (0o604, 0o755, 0o404, 0o705),
        // Who may not enter the folder may not read what is in it.
        (0o644, 0o750, 0o440, 0o750),
        (0o644, 0o700, 0o400, 0o700),
        (0o644, 0o705, 0o404, 0o705),
        (0o644, 0o754, 0o440, 0o750),
        (0o444, 0o711, 0o444, 0o755),
    ] {
        chmod(&cache, index, folder);
        let found = modes(&tree_of(&[&cache]));
        assert_eq!(
            found,
            (file, dir),
            "index {index:o}, folder {folder:o}: {found:?}"
        );
    }
    chmod(&cache, 0o600, 0o700);
    for (umask, file, dir) in [
        (0o000, 0o444, 0o755),
        (0o077, 0o400, 0o700),
        (0o027, 0o440, 0o750),
        (0o222, 0o444, 0o555),
        (0o777, 0, 0),
    ] {
        let options = VfsOptions {
            umask: Some(umask),
            ..VfsOptions::default()
        };
        assert_eq!(
            modes(&tree_with(&[&cache], options)),
            (file, dir),
            "umask {umask:o}"
        );
    }
}

#[test]
fn a_group_that_the_folder_does_not_have_enters_as_others_do() {
    let cache = tiny();
    let info = fs::metadata(cache.path("index.bin")).unwrap();
    if chown(&cache.dir, None, Some(info.gid() + 1)).is_err() {
        eprintln!("SKIPPED: changing a group takes root");
        return;
    }
    chmod(&cache, 0o644, 0o750);
    assert_eq!(modes(&tree_of(&[&cache])), (0o400, 0o700));
    // Who is of the folder's group may not enter it, and nobody knows who that is.
    chmod(&cache, 0o644, 0o705);
    assert_eq!(modes(&tree_of(&[&cache])), (0o400, 0o700));
    chmod(&cache, 0o644, 0o715);
    assert_eq!(modes(&tree_of(&[&cache])), (0o444, 0o755));
}

#[test]
fn owners_are_those_of_each_cache_unless_the_options_say_otherwise() {
    let (first, second) = (tiny(), tiny());
    let root = chown(first.path("index.bin"), Some(1234), Some(4321)).is_ok();
    let info = fs::metadata(first.path("index.bin")).unwrap();
    assert!(!root || (info.uid(), info.gid()) == (1234, 4321));
    let owner = |vfs: &Vfs, path: &str| {
        let attr = look(vfs, path).unwrap();
        (attr.uid, attr.gid)
    };
    let mounter = VfsOptions {
        uid: 7,
        gid: 8,
        ..VfsOptions::default()
    };
    let vfs = tree_with(&[&first, &second], mounter.clone());
    for path in [
        "samples/0",
        "samples/0/2",
        "caches/0",
        "caches/0/manifest.json",
        "caches/0/metadata.arrow",
    ] {
        assert_eq!(owner(&vfs, path), (info.uid(), info.gid()), "{path}");
    }
    let other = fs::metadata(second.path("index.bin")).unwrap();
    assert_eq!(owner(&vfs, "samples/1/0"), (other.uid(), other.gid()));
    for path in [
        "",
        "samples",
        "caches",
        "by-name",
        ".control",
        ".control/status",
        ".control/migrate",
    ] {
        assert_eq!(owner(&vfs, path), (7, 8), "{path}");
    }
    let shown = VfsOptions {
        show_uid: Some(5),
        show_gid: Some(6),
        ..mounter
    };
    let vfs = tree_with(&[&first, &second], shown);
    for path in ["samples/0", "samples/1/0", "caches/0/manifest.json"] {
        assert_eq!(owner(&vfs, path), (5, 6), "{path}");
    }
    assert_eq!(owner(&vfs, ".control"), (7, 8));
}

#[test]
fn times_are_those_of_the_index_and_folders_count_their_folders() {
    let (first, second) = (tiny(), Fixture::tiny().lz4().build());
    let stamp = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    for (cache, time) in [(&first, stamp), (&second, stamp + Duration::from_secs(1))] {
        let file = fs::File::options()
            .write(true)
            .open(cache.path("index.bin"))
            .unwrap();
        file.set_modified(time).unwrap();
    }
    let options = VfsOptions {
        // Each view that shows a sample is one more link to it.
        auto_views: false,
        ..VfsOptions::default()
    };
    let vfs = tree_with(&[&first, &second], options);
    for path in [
        "samples/0",
        "samples/0/1",
        "caches/0",
        "caches/0/manifest.json",
        "caches/0/metadata.arrow",
    ] {
        assert_eq!(look(&vfs, path).unwrap().mtime, stamp, "{path}");
    }
    for path in ["", "samples", "caches", "by-name"] {
        assert_eq!(
            look(&vfs, path).unwrap().mtime,
            stamp + Duration::from_secs(1),
            "{path}"
        );
    }
    for (path, links) in [
        ("", 7),
        ("samples", 4),
        ("caches", 4),
        ("by-name", 2),
        (".control", 2),
        ("samples/0", 2),
        ("caches/0", 2),
        ("samples/0/0", 1),
        (".control/status", 1),
    ] {
        assert_eq!(look(&vfs, path).unwrap().nlink, links, "{path}");
    }
}

#[test]
fn answers_hold_for_ever_where_nothing_changes_and_for_no_time_where_it_does() {
    let cache = tiny();
    let vfs = tree_of(&[&cache]);
    for path in [
        "",
        "samples",
        "samples/0",
        "samples/0/0",
        "caches/0/metadata.arrow",
        "by-name/source",
        ".control",
    ] {
        assert_eq!(look(&vfs, path).unwrap().ttl, Ttl::Forever, "{path}");
    }
    for path in [
        ".control/status",
        ".control/damaged",
        ".control/migrate",
        "caches/0/manifest.json",
    ] {
        assert_eq!(look(&vfs, path).unwrap().ttl, Ttl::Never, "{path}");
    }
    for path in ["", "samples/0", "caches/0", "views"] {
        assert!(vfs.is_static_dir(look(&vfs, path).unwrap().ino), "{path}");
    }
    // Caches may join.
    for path in [".control", "samples", "caches", "by-name"] {
        assert!(!vfs.is_static_dir(look(&vfs, path).unwrap().ino), "{path}");
    }
}

#[test]
fn statfs_counts_all_bytes_and_files() {
    let caches = [tiny(), Fixture::tiny().lz4().build()];
    let vfs = tree_of(&[&caches[0], &caches[1]]);
    let found = vfs.statfs();
    let payloads: usize = caches
        .iter()
        .flat_map(|cache| &cache.samples)
        .map(|s| s.payload.len())
        .sum();
    let tables: usize = caches
        .iter()
        .map(|cache| cache.read("metadata.arrow").len())
        .sum();
    let bytes = (payloads + tables) as u64;
    assert_eq!(found.blocks, bytes.div_ceil(u64::from(found.block_size)));
    assert!(found.files >= 6 && found.block_size > 0);
    assert_eq!(found.name_max, 255);
}

#[test]
fn nothing_can_be_changed() {
    let cache = tiny();
    let vfs: Arc<Vfs> = tree_of(&[&cache]);
    let changes = [
        SetAttr {
            size: Some(0),
            ..SetAttr::default()
        },
        SetAttr {
            mode: Some(0o644),
            ..SetAttr::default()
        },
        SetAttr {
            uid: Some(0),
            ..SetAttr::default()
        },
        SetAttr {
            gid: Some(0),
            ..SetAttr::default()
        },
        SetAttr {
            times: true,
            ..SetAttr::default()
        },
    ];
    for path in [
        "",
        "samples",
        "samples/0",
        "samples/0/0",
        "caches/0/manifest.json",
        "caches/0/metadata.arrow",
        "by-name/source",
        ".control",
        ".control/status",
        ".control/damaged",
    ] {
        let attr = look(&vfs, path).unwrap();
        for change in changes {
            let refused = vfs.setattr(attr.ino, change);
            assert!(
                matches!(refused, Err(VfsError::ReadOnly)),
                "{path}: {change:?}"
            );
        }
        let refused = vfs.write(attr.ino, b"3");
        assert!(matches!(refused, Err(VfsError::ReadOnly)), "{path}");
        if attr.kind == FileKind::File && !path.starts_with(".control") {
            assert_eq!(look(&vfs, path).unwrap(), attr);
        }
    }
}

#[test]
fn a_listing_knows_without_the_disk_what_it_has_seen_before() {
    let payloads = (1..600_usize).map(|len| vec![7; len]);
    let cache = Fixture::new().v2().payloads(payloads).build();
    let vfs = tree_of(&[&cache]);
    let folder = look(&vfs, "samples/0").unwrap().ino;
    let second = vfs.lookup(folder, "1".as_ref()).unwrap();
    let mut last = second.ino;
    vfs.readdir(folder, 0, &mut |entry| {
        last = entry.ino;
        true
    })
    .unwrap();
    assert!(vfs.lists_from_disk(folder, 0).unwrap());
    assert_eq!(vfs.remembered_entry_attr(last), None);
    assert_eq!(vfs.remembered_entry_attr(second.ino), Some(second));
    // As the kernel goes on, a part at a time.
    for offset in [0, 200, 400] {
        vfs.see_lengths(folder, offset).unwrap();
        assert!(!vfs.lists_from_disk(folder, offset).unwrap());
    }
    let seen = vfs.remembered_entry_attr(last).unwrap();
    assert_eq!((seen.size, seen.ttl), (599, Ttl::Forever));
    assert!(!vfs.lists_from_disk(folder, 10_000).unwrap());
}
