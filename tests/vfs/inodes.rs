//! Inode numbers: small, one for each node, the same in each mount of the same list.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use datasetrt::dataset::Dataset;
use datasetrt::format::metadata::FieldKind;
use datasetrt::vfs::{FileKind, Ino, Vfs, VfsOptions};
use datasetrt::view::ViewSpec;

use crate::common::fixture::{Fixture, Sample, TestCache};
use crate::{look, tree_with};

/// All paths with their numbers, but for the files of `.control`, which are made anew.
fn numbers(vfs: &Vfs) -> BTreeMap<Vec<u8>, u64> {
    let mut found = BTreeMap::new();
    let mut folders = vec![(Vec::new(), Ino::ROOT)];
    while let Some((path, folder)) = folders.pop() {
        let mut entries = Vec::new();
        vfs.readdir(folder, 0, &mut |entry| {
            entries.push((entry.name.as_bytes().to_vec(), entry.kind, entry.ino));
            true
        })
        .unwrap();
        for (name, kind, listed) in entries {
            let path = [&path[..], b"/", &name].concat();
            if name == b"." || name == b".." {
                continue;
            }
            if path.starts_with(b"/.control/") {
                found.insert(path, listed.0);
                continue;
            }
            let attr = vfs.lookup(folder, OsStr::from_bytes(&name)).unwrap();
            assert_eq!(attr.ino, listed, "{}", String::from_utf8_lossy(&path));
            if kind == FileKind::Directory {
                folders.push((path.clone(), attr.ino));
            }
            found.insert(path, attr.ino.0);
        }
    }
    found
}

/// One number for each node, which samples alone have under several names.
fn assert_sound(found: &BTreeMap<Vec<u8>, u64>) {
    let mut nodes: HashMap<u64, Vec<&[u8]>> = HashMap::new();
    for (path, number) in found {
        assert!((1..1 << 32).contains(number), "{path:?}: {number}");
        nodes.entry(*number).or_default().push(path);
    }
    for (number, paths) in nodes {
        let first = |top: &[u8]| paths.iter().filter(|path| path.starts_with(top)).count();
        let one = paths.len() == 1;
        let sample = first(b"/samples/") == 1 && first(b"/views/") + 1 == paths.len();
        assert!(one || sample, "{number}: {paths:?}");
    }
}

fn cache(id: u64, samples: usize) -> TestCache {
    let samples = (0..samples).map(|n| {
        let path = format!("{}/{n}", ["a", "b/c", "b/d/e/f/g/h", "i/j"][n % 4]);
        Sample::new(n.to_string())
            .with("path", path.as_str())
            .with("label", ["x", "y"][n % 2])
    });
    let fields = [("path", FieldKind::String), ("label", FieldKind::String)];
    let fixture = Fixture::new().cache_id(id).schema(&fields);
    fixture.name(&format!("s{id}")).samples(samples).build()
}

fn options() -> VfsOptions {
    VfsOptions {
        views: vec![ViewSpec::parse("deep={label}/{path...}/{cache_id}/{sample_id}/x").unwrap()],
        ..VfsOptions::default()
    }
}

#[test]
fn numbers_are_small_distinct_and_the_same_in_each_mount() {
    let caches = [
        cache(7, 40),
        cache(u64::MAX >> 1, 0),
        cache(3, 1),
        cache(1 << 60, 9),
    ];
    let all: Vec<_> = caches.iter().collect();
    let first = tree_with(&all, options());
    let found = numbers(&first);
    assert!(found.len() > 200, "{}", found.len());
    assert_sound(&found);
    // Other views are built first in the second mount.
    let second = tree_with(&all, options());
    look(&second, "views/path/i/j/39").unwrap();
    assert_eq!(numbers(&second), found);
}

#[test]
fn texts_and_commands_have_small_numbers_of_their_own() {
    let cache = cache(7, 3);
    let vfs = tree_with(&[&cache], options());
    let control = look(&vfs, ".control").unwrap().ino;
    let mut seen: HashMap<u64, String> = HashMap::new();
    for (path, number) in numbers(&vfs) {
        seen.insert(number, String::from_utf8(path).unwrap());
    }
    for name in ["status", "damaged", "log", "metrics"] {
        let ino = vfs.lookup(control, name.as_ref()).unwrap().ino.0;
        assert!(ino < 1 << 32);
        let other = seen.insert(ino, name.to_owned());
        assert_eq!(other, None, "{name}: {ino}");
    }
    for caller in [1, 2, 70_000, (1 << 22) - 1] {
        for name in ["caches", "log-level", "migrate", "prefetch", "verify"] {
            let ino = vfs
                .lookup_by(Some(caller), control, name.as_ref())
                .unwrap()
                .ino;
            assert!(ino.0 < 1 << 32);
            let other = seen.insert(ino.0, format!("{name} of {caller}"));
            assert_eq!(other, None, "{name}: {ino:?}");
            assert_eq!(vfs.getattr(ino).unwrap().ino, ino);
        }
    }
}

#[test]
fn caches_that_join_get_numbers_behind_all_others() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, id: u64| {
        let fixture = Fixture::new().cache_id(id).name(name);
        fixture
            .payloads(["a", "b"])
            .write(&folder.path().join(name))
    };
    put("m", 5);
    let arguments = vec![folder.path().to_path_buf()];
    let known: Vec<PathBuf> = datasetrt::dataset::expand(&arguments).unwrap();
    let vfs = Vfs::new(Dataset::open(&known).unwrap(), options_without_views()).unwrap();
    let vfs = Arc::new(vfs);
    vfs.on_rescan(move |dataset, known| dataset.newcomers(&arguments, known));
    let before = numbers(&vfs);
    put("a", 6);
    put("z", 4);
    vfs.rescan();
    let after = numbers(&vfs);
    assert_sound(&after);
    let last = before.values().max().copied();
    for (path, number) in &after {
        match before.get(path) {
            Some(known) => assert_eq!(known, number, "{path:?}"),
            None => assert!(Some(*number) > last, "{path:?}: {number}"),
        }
    }
    assert_eq!(after.len(), before.len() + 2 * 7);
}

fn options_without_views() -> VfsOptions {
    VfsOptions {
        auto_views: false,
        ..VfsOptions::default()
    }
}
