//! Which names there are, what they are called, and that each has one number for ever.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use datasetrt::dataset::Dataset;
use datasetrt::vfs::{FileKind, Ino, Vfs, VfsError, VfsOptions};
use tempfile::TempDir;

use crate::common::fixture::{Fixture, Sample, TestCache};
use crate::model::{assert_same, assert_unique, list, model, walk};
use crate::{look, read, text, tree_of};

/// One cache of each kind, in a list that gives them the identities 0, 77, 2 and the greatest.
fn kinds() -> Vec<TestCache> {
    vec![
        Fixture::tiny().name("plain").v2().build(),
        Fixture::tiny().name("packed").lz4().cache_id(77).build(),
        Fixture::new().name("nothing").v2().build(),
        Fixture::new()
            .name("edge")
            .cache_id(u64::MAX)
            .max_shard_bytes(64)
            .payloads([
                "",
                "x",
                "",
                "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
            ])
            .build(),
    ]
}

#[test]
fn the_tree_is_the_model_by_listing_and_by_look_up() {
    let caches = kinds();
    let vfs = tree_of(&caches.iter().collect::<Vec<_>>());
    let expected = model(&[
        (0, Some("plain"), &caches[0]),
        (77, Some("packed"), &caches[1]),
        (2, Some("nothing"), &caches[2]),
        (u64::MAX, Some("edge"), &caches[3]),
    ]);
    let (shown, attrs) = walk(&vfs);
    assert_same(&shown, &expected);
    assert_unique(&attrs);
}

#[test]
fn a_listing_goes_on_from_every_offset_and_by_any_number_of_names() {
    let payloads = (0..250_u32).map(|n| n.to_string());
    let many = Fixture::new().payloads(payloads).build();
    let vfs = tree_of(&[&many]);
    let id = many.manifest().number_at::<u64>("cache_id");
    let samples = format!("samples/{id}");
    for path in ["", ".control", "by-name", "caches", "samples", &samples] {
        let folder = look(&vfs, path).unwrap().ino;
        let whole = list(&vfs, folder, 0, usize::MAX);
        for (n, entry) in whole.iter().enumerate() {
            let rest = list(&vfs, folder, entry.next, usize::MAX);
            assert_eq!(rest, whole[n + 1..], "{path} after {:?}", entry.name);
        }
        for most in [1, 2, 7, 100] {
            let (mut offset, mut found) = (0, Vec::new());
            loop {
                let part = list(&vfs, folder, offset, most);
                let Some(last) = part.last() else { break };
                offset = last.next;
                found.extend(part);
            }
            assert_eq!(found, whole, "{path} by {most}");
        }
        for beyond in [whole.len() as u64, 1 << 40, u64::MAX] {
            assert!(list(&vfs, folder, beyond, usize::MAX).is_empty());
        }
    }
    let names = list(&vfs, look(&vfs, &samples).unwrap().ino, 2, usize::MAX);
    let names: Vec<std::ffi::OsString> = names.iter().map(|entry| entry.name.clone()).collect();
    let numbers: Vec<std::ffi::OsString> = (0..250_u32).map(|n| n.to_string().into()).collect();
    assert_eq!(names, numbers);
}

#[test]
fn a_listing_shows_the_old_set_or_the_new_one() {
    let place = tempfile::tempdir().unwrap();
    let publish = |id: u64| {
        let fixture = Fixture::new().cache_id(id).payloads(["x"]);
        let _ = fixture.write(&place.path().join(id.to_string()));
    };
    let _ = [30, 20, 40].map(publish);
    let arguments = [place.path().to_path_buf()];
    for before in 0..=5 {
        for id in [10, 25, 50] {
            let _ = std::fs::remove_dir_all(place.path().join(id.to_string()));
        }
        let dataset = Dataset::open(&datasetrt::dataset::expand(&arguments).unwrap()).unwrap();
        let vfs = Vfs::new(dataset, VfsOptions::default()).unwrap();
        let arguments = arguments.clone();
        vfs.on_rescan(move |dataset, known| dataset.newcomers(&arguments, known));
        let folder = look(&vfs, "samples").unwrap().ino;
        let old = list(&vfs, folder, 0, usize::MAX);
        let mut across = list(&vfs, folder, 0, before);
        let _ = [10, 25, 50].map(publish);
        vfs.rescan();
        let offset = across.last().map_or(0, |entry| entry.next);
        across.extend(list(&vfs, folder, offset, usize::MAX));
        let new = list(&vfs, folder, 0, usize::MAX);
        assert_eq!(new.len(), old.len() + 3);
        assert!(across == old || across == new, "after {before} names");
    }
}

#[test]
fn numbers_are_the_same_on_the_next_mount_and_with_caches_left_out() {
    let caches = kinds();
    let paths: Vec<_> = caches.iter().map(|cache| cache.dir.clone()).collect();
    // Which views are there without asking depends on the values of all caches.
    let options = VfsOptions {
        auto_views: false,
        ..VfsOptions::default()
    };
    let open = |dataset: Dataset| Vfs::new(dataset, options.clone()).unwrap();
    let (_, first) = walk(&open(Dataset::open(&paths).unwrap()));
    let (_, second) = walk(&open(Dataset::open(&paths).unwrap()));
    for (path, attr) in &first {
        if !path.as_bytes().starts_with(b"/.control") {
            assert_eq!(&second[path], attr, "{path:?}");
        }
    }
    caches[1].truncate("index.bin", -1);
    let holed = Dataset::open_valid(&paths).unwrap();
    assert_eq!(holed.skipped().len(), 1);
    let vfs = open(holed);
    let (shown, third) = walk(&vfs);
    assert_same(
        &shown,
        &model(&[
            (0, Some("plain"), &caches[0]),
            (2, Some("nothing"), &caches[2]),
            (u64::MAX, Some("edge"), &caches[3]),
        ]),
    );
    for (path, attr) in third {
        if path.as_bytes().starts_with(b"/samples/") || path.as_bytes().starts_with(b"/caches/") {
            assert_eq!(first[&path], attr, "{path:?}");
        }
    }
    let status = crate::status(&vfs);
    assert_eq!(status["caches"][1]["position"], 2);
    let skipped = status["skipped"][0].as_str().unwrap();
    assert!(skipped.contains("index.bin"), "{skipped}");
}

#[test]
fn names_that_only_look_like_names_do_not_exist() {
    let caches = kinds();
    let vfs = tree_of(&caches.iter().collect::<Vec<_>>());
    let odd: [&[u8]; 18] = [
        b"00",
        b"+0",
        b"-0",
        b"0x0",
        b"01",
        b" 0",
        b"0 ",
        b"0\n",
        b"0.",
        b"0/",
        b"",
        b".",
        b"..",
        b"\xff",
        b"18446744073709551616",
        b"3",
        "\u{663}".as_bytes(),
        &[b'0'; 255],
    ];
    let folders = [
        "",
        ".control",
        "by-name",
        "caches",
        "samples",
        "samples/0",
        "caches/0",
    ];
    for path in folders {
        let folder = look(&vfs, path).unwrap().ino;
        for name in odd {
            let found = vfs.lookup(folder, OsStr::from_bytes(name));
            assert!(
                matches!(found, Err(VfsError::NotFound)),
                "{path}: {name:?}: {found:?}"
            );
        }
        for len in [256, 1000, 4095] {
            let name = "0".repeat(len);
            let found = vfs.lookup(folder, name.as_ref());
            assert!(
                matches!(found, Err(VfsError::NameTooLong)),
                "{path}: {found:?}"
            );
        }
    }
    for ino in [
        0,
        9,
        31,
        63,
        10_000,
        (1 << 31) - 1,
        1 << 32,
        1 << 52,
        u64::MAX,
    ] {
        assert!(
            matches!(vfs.getattr(Ino(ino)), Err(VfsError::NotFound)),
            "{ino}"
        );
        assert!(vfs.read(Ino(ino), 0, &mut [0; 8]).is_err(), "{ino}");
    }
    let last_text = Ino((1 << 32) - 1);
    assert!(matches!(vfs.getattr(last_text), Err(VfsError::Stale)));
}

#[test]
fn a_file_is_no_folder_and_a_folder_no_file() {
    let tiny = Fixture::tiny().v2().build();
    let vfs = tree_of(&[&tiny]);
    for path in [
        "samples/0/0",
        "caches/0/manifest.json",
        ".control/status",
        "by-name/source",
    ] {
        let ino = look(&vfs, path).unwrap().ino;
        let listed = vfs.readdir(ino, 0, &mut |_| true);
        assert!(matches!(listed, Err(VfsError::NotADirectory)), "{path}");
        let inside = vfs.lookup(ino, "0".as_ref());
        assert!(matches!(inside, Err(VfsError::NotADirectory)), "{path}");
        if path != "by-name/source" {
            assert!(
                matches!(vfs.readlink(ino), Err(VfsError::NotASymlink)),
                "{path}"
            );
        }
    }
    for path in [
        "",
        "samples",
        "samples/0",
        "caches/0",
        "by-name",
        ".control",
    ] {
        let attr = look(&vfs, path).unwrap();
        assert_eq!(attr.kind, FileKind::Directory);
        let read = vfs.read(attr.ino, 0, &mut [0; 8]);
        assert!(matches!(read, Err(VfsError::IsADirectory)), "{path}");
    }
}

#[test]
fn source_names_become_one_component_each_and_none_hides_another() {
    let long = "n".repeat(256);
    let names = [
        "cat/dog", "..", "", "a\nb", "%", "twice", "twice", "twice~6", "\u{e9}", "e\u{301}", &long,
    ];
    let links = [
        Some("cat%2Fdog"),
        Some("%2E."),
        Some("%"),
        Some("a%0Ab"),
        Some("%25"),
        Some("twice~5"),
        Some("twice~6"),
        // The name that it would have is taken.
        None,
        Some("\u{e9}"),
        Some("e\u{301}"),
        None,
    ];
    let caches: Vec<_> = names
        .iter()
        .map(|name| {
            Fixture::new()
                .v2()
                .name(name)
                .sample(Sample::new("x").with("n", 1))
                .build()
        })
        .collect();
    let vfs = tree_of(&caches.iter().collect::<Vec<_>>());
    let listed: Vec<_> = (0_u64..)
        .zip(links)
        .zip(&caches)
        .map(|((id, link), cache)| (id, link, cache))
        .collect();
    let (shown, attrs) = walk(&vfs);
    assert_same(&shown, &model(&listed));
    assert_unique(&attrs);
    // The name itself is in the manifest and in the status.
    let status = crate::status(&vfs);
    assert_eq!(status["caches"][10]["source_name"], long.as_str());
}

#[test]
fn the_files_of_a_cache_are_shown_as_they_are() {
    let tiny = Fixture::tiny().v2().build();
    let vfs = tree_of(&[&tiny]);
    for file in ["manifest.json", "metadata.arrow"] {
        let path = format!("caches/0/{file}");
        let whole = tiny.read(file);
        assert_eq!(read(&vfs, &path).unwrap(), whole);
        let ino = look(&vfs, &path).unwrap().ino;
        for (offset, len) in [
            (0, 1),
            (5, 100),
            (whole.len() as u64 - 1, 10),
            (whole.len() as u64, 10),
            (u64::MAX, 10),
        ] {
            let start = usize::try_from(offset).unwrap().min(whole.len());
            let end = (start + len).min(whole.len());
            assert_eq!(
                crate::piece(&vfs, ino, offset, len).unwrap(),
                whole[start..end]
            );
        }
    }
    // metadata.arrow is read from the disk, and must be the file of the start.
    let other = TempDir::new().unwrap();
    let copy = other.path().join("copy");
    std::fs::copy(tiny.path("metadata.arrow"), &copy).unwrap();
    std::fs::rename(&copy, tiny.path("metadata.arrow")).unwrap();
    assert!(matches!(
        read(&vfs, "caches/0/metadata.arrow"),
        Err(VfsError::Damaged(_))
    ));
    // The manifest is the one that was loaded.
    let before = read(&vfs, "caches/0/manifest.json").unwrap();
    tiny.append("manifest.json", b"\n");
    assert_eq!(read(&vfs, "caches/0/manifest.json").unwrap(), before);
    assert_eq!(text(&vfs, ".control/damaged"), "");
}

#[test]
fn the_status_has_each_id_as_a_string_that_is_its_folder() {
    let caches = kinds();
    let vfs = tree_of(&caches.iter().collect::<Vec<_>>());
    for cache in crate::status(&vfs)["caches"].as_array().unwrap() {
        let name = cache["cache"].as_str().unwrap();
        assert_eq!(name, cache["cache_id"].as_u64().unwrap().to_string());
        look(&vfs, &format!("samples/{name}")).unwrap();
    }
}
