//! Views show stored names as they are, byte for byte, but for what no name can be.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;

use datasetrt::dataset::Dataset;
use datasetrt::format::metadata::{FieldKind, Value};
use datasetrt::vfs::{Ino, Vfs, VfsError, VfsOptions, ViewMetadata};

use super::tiny_views::{Tiny, open, text};
use super::walk::{at, list, options, read, suffixing, try_vfs, vfs, walk};

/// One cache with these texts as `path` and as `label`; each payload is the place of its sample.
fn stored(dir: &std::path::Path, texts: &[&str]) -> Dataset {
    let fields = [("path", FieldKind::String), ("label", FieldKind::String)];
    let mut cache = Tiny::new(7, &fields);
    for (n, value) in texts.iter().enumerate() {
        cache = cache.with(vec![text(value), text(value)], n.to_string().as_bytes());
    }
    open(dir, &[cache])
}

/// The names of a view with the samples that they lead to, by listing and by look-up.
fn shown(vfs: &Vfs, view: &str) -> BTreeMap<String, usize> {
    let top = at(vfs, &format!("views/{view}")).unwrap().ino;
    let mut found = walk(vfs, top);
    found.remove("metadata.jsonl");
    let sample = |ino: Ino| {
        String::from_utf8(read(vfs, ino))
            .unwrap()
            .parse::<usize>()
            .unwrap()
    };
    let found: BTreeMap<_, _> = found
        .into_iter()
        .map(|(path, ino)| (path, sample(ino)))
        .collect();
    for (path, sample) in &found {
        let mut at = top;
        for name in path.split('/') {
            at = vfs.lookup(at, OsStr::new(name)).unwrap().ino;
        }
        assert_eq!(read(vfs, at), sample.to_string().as_bytes(), "{path:?}");
    }
    found
}

/// What is expected: each name with the place of its sample.
fn expected(names: &[&str]) -> BTreeMap<String, usize> {
    names
        .iter()
        .enumerate()
        .map(|(n, name)| ((*name).to_owned(), n))
        .collect()
}

#[test]
fn a_zarr_store_and_hive_partitions_come_back_name_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let long = format!("{}/{}.bin", "d".repeat(255), "f".repeat(251));
    let paths = [
        "store.zarr/.zgroup",
        "store.zarr/.zattrs",
        "store.zarr/a/.zarray",
        "store.zarr/a/0.0",
        "store.zarr/a/c/0/0",
        "events/city=New%20York/day=2024-01-01/part-0.parquet",
        "events/city=S%C3%A3o%20Paulo/part-0.parquet",
        "events/city=__HIVE_DEFAULT_PARTITION__/part-0.parquet",
        "odd/100%",
        "odd/%",
        "odd/%2E",
        "odd/%2Fetc%2Fpasswd",
        "odd/%null",
        "odd/...",
        "odd/..a",
        "odd/a\nb",
        "odd/\x1b[31mred\x7f",
        "odd/\u{202e}txt.exe",
        "odd/ leading and trailing ",
        "odd/back\\slash",
        "odd/caf\u{e9}",
        "odd/cafe\u{301}",
        &long,
    ];
    let dataset = stored(dir.path(), &paths);
    let automatic = vfs(&dataset, VfsOptions::default());
    assert_eq!(shown(&automatic, "path"), expected(&paths));
    let asked = vfs(&dataset, options(&["all=x/{path...}"]));
    let below: Vec<String> = paths.iter().map(|path| format!("x/{path}")).collect();
    let below: Vec<&str> = below.iter().map(String::as_str).collect();
    assert_eq!(shown(&asked, "all"), expected(&below));
}

#[test]
fn what_no_name_can_be_is_escaped_and_gives_way_to_what_was_stored() {
    let dir = tempfile::tempdir().unwrap();
    let labels = [
        "a/b", "a%2Fb", "a%2Fb~1", "a/b~1", "%2F/", "/%2F", "", "%", ".", "%2E", "..", "x\0",
        "x%00", "plain",
    ];
    let dataset = stored(dir.path(), &labels);
    // As folders.
    let folders = vfs(&dataset, options(&["v={label}/f"]));
    let names = [
        "a%2Fb~2/f",
        "a%2Fb/f",
        "a%2Fb~1/f",
        "a%2Fb~1~1/f",
        "%252F%2F/f",
        "%2F%252F/f",
        "%~1/f",
        "%/f",
        "%2E~1/f",
        "%2E/f",
        "%2E./f",
        "x%00~1/f",
        "x%00/f",
        "plain/f",
    ];
    assert_eq!(shown(&folders, "v"), expected(&names));
    let top = at(&folders, "views/v").unwrap().ino;
    for absent in ["a%2Fb~3", "%2E~2", "plain~1", "%2E.~1", "a", "%~01", "~1"] {
        let found = folders.lookup(top, OsStr::new(absent));
        assert!(matches!(found, Err(VfsError::NotFound)), "{absent}");
    }
    // As files, in a view that refuses equal names: these are not equal.
    let files = vfs(&dataset, options(&["v={label}"]));
    let names = [
        "a%2Fb~7-0",
        "a%2Fb",
        "a%2Fb~1",
        "a%2Fb~1~7-3",
        "%252F%2F",
        "%2F%252F",
        "%~7-6",
        "%",
        "%2E~7-8",
        "%2E",
        "%2E.",
        "x%00~7-11",
        "x%00",
        "plain",
    ];
    assert_eq!(shown(&files, "v"), expected(&names));
    let suffixed = vfs(&dataset, suffixing(&["v={label}"]));
    assert_eq!(
        shown(&suffixed, "v"),
        expected(&names),
        "the same where suffixes are asked for"
    );
    let lines = at(&folders, "views/v/metadata.jsonl").map(|attr| read(&folders, attr.ino));
    if let Ok(lines) = lines {
        let first: serde_json::Value =
            serde_json::from_slice(lines.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
        assert_eq!(first["file_name"], "a%2Fb~2/f");
    }
}

#[test]
fn an_escaped_folder_gives_way_to_a_file_and_a_mixed_path_keeps_its_folders_apart() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["a\0/x", "a%00", "b\0/x", "b%00/x", "/../", "%"];
    let dataset = stored(dir.path(), &paths);
    let vfs = vfs(&dataset, options(&["v={path...}"]));
    let names = ["a%00~1/x", "a%00", "b%00~1/x", "b%00/x", "%~7-4", "%"];
    assert_eq!(shown(&vfs, "v"), expected(&names));
    assert!(try_vfs(&dataset, options(&["v={label}-{path}"])).is_ok());
}

#[test]
fn names_over_255_bytes_are_cut_and_stay_apart() {
    let dir = tempfile::tempdir().unwrap();
    let long = |letter: &str, len, ending: &str| format!("{}{ending}", letter.repeat(len));
    let paths = [
        long("x", 300, ".npy"),
        long("x", 301, ".npy"),
        format!("{}/inside", long("x", 300, ".npy")),
        long("é", 200, ""),
        long("y", 255, ""),
        "short".to_owned(),
    ];
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let dataset = stored(dir.path(), &paths);
    let names = |vfs: &Vfs, view: &str| {
        let found = shown(vfs, view);
        assert_eq!(found.values().collect::<BTreeSet<_>>().len(), paths.len());
        for name in found.keys().flat_map(|path| path.split('/')) {
            assert!(name.len() <= 255, "{name}");
        }
        found
    };
    let found = names(&vfs(&dataset, VfsOptions::default()), "path");
    assert!(found.contains_key(paths[4]) && found.contains_key("short"));
    let cut = |n: usize| found.iter().find(|(_, sample)| **sample == n).unwrap().0;
    assert!(cut(0).ends_with(".npy") && cut(0).starts_with(&"x".repeat(200)));
    assert_eq!(names(&vfs(&dataset, VfsOptions::default()), "path"), found);
    // With an extension of the view, and with suffixes.
    names(&vfs(&dataset, options(&["v={label}{ext}"])), "v");
    let twice: Vec<&str> = paths.iter().chain(&paths).copied().collect();
    let other = tempfile::tempdir().unwrap();
    let dataset = stored(other.path(), &twice);
    for spec in ["v={label}{ext}", "v={path...}"] {
        let found = shown(&vfs(&dataset, suffixing(&[spec])), "v");
        assert_eq!(
            found.values().collect::<BTreeSet<_>>().len(),
            twice.len(),
            "{spec}"
        );
        assert!(
            found
                .keys()
                .flat_map(|path| path.split('/'))
                .all(|name| name.len() <= 255)
        );
    }
}

#[test]
fn a_listing_in_pieces_shows_escaped_folders_once() {
    let dir = tempfile::tempdir().unwrap();
    let labels: Vec<String> = (0..40)
        .flat_map(|n| [format!("{n}/"), format!("{n}%2F")])
        .collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    let dataset = stored(dir.path(), &labels);
    let vfs = vfs(&dataset, options(&["v={label}/f"]));
    let top = at(&vfs, "views/v").unwrap().ino;
    let whole: Vec<_> = list(&vfs, top, 0, 999)
        .into_iter()
        .map(|entry| entry.2)
        .collect();
    let mut pieces = Vec::new();
    let mut offset = 0;
    loop {
        let piece = list(&vfs, top, offset, 3);
        let Some(last) = piece.last() else { break };
        offset = last.3;
        pieces.extend(piece.into_iter().map(|entry| entry.2));
    }
    assert_eq!(pieces, whole);
    assert_eq!(whole.iter().collect::<BTreeSet<_>>().len(), whole.len());
}

#[test]
fn endings_are_those_of_the_stored_paths_and_no_payload_is_read_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let fields = [("path", FieldKind::String), ("label", FieldKind::String)];
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    let samples: [(&str, &[u8], &str); 8] = [
        ("a/pic.ppm", b"\xff\xfe", "ppm"),
        ("a/arrays.npz", b"PK\x03\x04", "npz"),
        ("a/words.txt", b"BMW", "txt"),
        ("a/scan.NII", b"", "NII"),
        ("a/frame.0001", png, "png"),
        ("noending", png, "png"),
        ("words", b"BMW 320d", "bin"),
        (".hidden", b"", "bin"),
    ];
    let mut cache = Tiny::new(7, &fields);
    for (path, payload, _) in samples {
        cache = cache.with(vec![text(path), text("l")], payload);
    }
    let dataset = open(dir.path(), &[cache]);
    let tree = vfs(&dataset, options(&["v={label}/{sample_id}{ext}"]));
    let top = at(&tree, "views/v/l").unwrap().ino;
    let names = |vfs: &Vfs, top| -> Vec<String> {
        let entries = list(vfs, top, 2, 99).into_iter();
        entries
            .map(|entry| String::from_utf8(entry.2).unwrap())
            .collect()
    };
    let expected = (0..)
        .zip(samples)
        .map(|(n, (.., ending))| format!("{n}.{ending}"));
    let expected: Vec<String> = expected.collect();
    assert_eq!(names(&tree, top), expected);
    for name in &expected {
        assert!(tree.lookup(top, OsStr::new(name)).is_ok(), "{name}");
    }
    // What the path tells is told without the shard.
    let mut known = Tiny::new(7, &fields);
    known = known.with(vec![text("a.npz"), text("l")], b"x");
    let other = tempfile::tempdir().unwrap();
    let dataset = open(other.path(), &[known]);
    let tree = vfs(&dataset, options(&["v={label}/{sample_id}{ext}"]));
    let shards = other.path().join("cache-00000000000000000007/shards");
    std::fs::rename(&shards, shards.with_extension("away")).unwrap();
    let top = at(&tree, "views/v/l").unwrap().ino;
    assert_eq!(names(&tree, top), ["0.npz"]);
}

#[test]
fn only_views_of_pictures_sound_and_video_have_a_file_of_metadata() {
    let dir = tempfile::tempdir().unwrap();
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    let fields = [("path", FieldKind::String), ("label", FieldKind::String)];
    let mut cache = Tiny::new(7, &fields);
    for n in 0..20 {
        for (folder, ending) in [("pictures", "PNG"), ("texts", "txt"), ("tables", "parquet")] {
            let path = format!("{folder}/{n}.{ending}");
            cache = cache.with(vec![text(&path), text(folder)], png);
        }
    }
    let dataset = open(dir.path(), &[cache]);
    let specs = [
        "pictures={path...} where label == 'pictures'",
        "texts={path...} where label == 'texts'",
        "hive=kind={label}/{sample_id}.parquet where label == 'tables'",
        "numbers={sample_id} where label == 'pictures'",
        "clips={sample_id}.mp4",
        "none={path...} where false",
    ];
    let with = |view_metadata| {
        let options = VfsOptions {
            view_metadata,
            ..options(&specs)
        };
        let tree = vfs(&dataset, options);
        let has = |name: &str| {
            let top = at(&tree, &format!("views/{name}")).unwrap().ino;
            let listed = list(&tree, top, 2, 999)
                .iter()
                .any(|entry| entry.2 == b"metadata.jsonl");
            let found = tree.lookup(top, OsStr::new("metadata.jsonl")).is_ok();
            assert_eq!(listed, found, "{name}");
            found
        };
        ["pictures", "texts", "hive", "numbers", "clips", "none"].map(has)
    };
    assert_eq!(
        with(ViewMetadata::Auto),
        [true, false, false, false, true, false]
    );
    assert_eq!(with(ViewMetadata::On), [true; 6]);
    assert_eq!(with(ViewMetadata::Off), [false; 6]);
}

#[test]
fn a_field_whose_values_are_all_distinct_has_no_view_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let fields = [
        ("path", FieldKind::String),
        ("sha256", FieldKind::String),
        ("label", FieldKind::String),
        ("n", FieldKind::Int),
        ("ok", FieldKind::Bool),
    ];
    let caches = [1, 2].map(|id| {
        (0..5).fold(Tiny::new(id, &fields), |cache, n| {
            let (path, sum) = (format!("{id}/{n}.txt"), format!("{id}{n:063}"));
            let label = ["a", "b"][usize::try_from(n % 2).unwrap()];
            let row = vec![
                text(&path),
                text(&sum),
                text(label),
                Value::Int(n),
                Value::Bool(true),
            ];
            cache.with(row, b"")
        })
    });
    let names = |caches: &[Tiny], dir| -> Vec<String> {
        let tree = vfs(&open(dir, caches), VfsOptions::default());
        let views = list(&tree, at(&tree, "views").unwrap().ino, 2, 99).into_iter();
        views
            .map(|entry| String::from_utf8(entry.2).unwrap())
            .collect()
    };
    // Of both caches, each number is there twice; of one, once.
    assert_eq!(
        names(&caches, dir.path()),
        ["by-label", "by-n", "by-ok", "path"]
    );
    let other = tempfile::tempdir().unwrap();
    assert_eq!(
        names(&caches[..1], other.path()),
        ["by-label", "by-ok", "path"]
    );
}
