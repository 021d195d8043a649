//! The folders of views, against plain maps of what they should show.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;

use datasetrt::dataset::Dataset;
use datasetrt::error::Error;
use datasetrt::format::metadata::{FieldKind, Value};
use datasetrt::format::record::Compression;
use datasetrt::vfs::{FileKind, Ino, Vfs, VfsError, VfsOptions, ViewMetadata};
use datasetrt::view::automatic;

use super::tiny_views::{Tiny, open, text};
use super::walk::{at, list, options, read, suffixing, try_vfs, vfs, walk};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
const JPG: &[u8] = b"\xff\xd8\xff\xe0\0\x10JFIF\0";
const WAV: &[u8] = b"RIFF\x24\0\0\0WAVEfmt ";

const FIELDS: [(&str, FieldKind); 4] = [
    ("label", FieldKind::String),
    ("path", FieldKind::String),
    ("n", FieldKind::Int),
    ("ok", FieldKind::Bool),
];

/// What one sample is, in plain values.
struct Sample {
    cache_id: u64,
    sample: u64,
    label: String,
    path: String,
    n: i64,
    ok: bool,
    ext: &'static str,
}

/// Two caches of samples with odd labels and paths, and the same samples in plain values.
fn samples(dir: &std::path::Path) -> (Dataset, Vec<Sample>) {
    let labels = ["cat", "dog", "", "..", "a/b", ".hidden", "50%", "é\n"];
    let payloads = [(PNG, "png"), (JPG, "jpg"), (WAV, "wav"), (&b"?"[..], "bin")];
    let mut plain = Vec::new();
    let caches: Vec<Tiny> = [(10, Compression::None, 37_u64), (2, Compression::Lz4, 23)]
        .into_iter()
        .map(|(cache_id, compression, count)| {
            let mut cache = Tiny::new(cache_id, &FIELDS);
            cache.compression = compression;
            for sample in 0..count {
                let seed = usize::try_from(cache_id * 31 + sample * 7).unwrap();
                let (payload, ext) = payloads[seed % 4];
                let label = labels[seed % labels.len()].to_owned();
                let path = format!("/x{}/../d{}//f-{cache_id}-{sample}.{ext}", seed, seed % 3);
                let n = i64::try_from(seed % 5).unwrap() - 2;
                let values = vec![text(&label), text(&path), Value::Int(n), Value::Bool(n > 0)];
                cache = cache.with(values, payload);
                plain.push(Sample {
                    cache_id,
                    sample,
                    path: format!("d{}/f-{cache_id}-{sample}.{ext}", seed % 3),
                    label,
                    n,
                    ok: n > 0,
                    ext,
                });
            }
            cache
        })
        .collect();
    (open(dir, &caches), plain)
}

/// Number of the sample's node under `/samples`.
fn sample_ino(vfs: &Vfs, cache_id: u64, sample: u64) -> Ino {
    at(vfs, &format!("samples/{cache_id}/{sample}"))
        .unwrap()
        .ino
}

/// Compares a view with the paths that `path` gives to the samples it should show.
fn check(vfs: &Vfs, plain: &[Sample], name: &str, path: impl Fn(&Sample) -> Option<String>) {
    let expected: BTreeMap<String, Ino> = plain
        .iter()
        .filter_map(|s| Some((path(s)?, sample_ino(vfs, s.cache_id, s.sample))))
        .collect();
    let top = at(vfs, &format!("views/{name}")).unwrap();
    let mut found = walk(vfs, top.ino);
    found.remove("metadata.jsonl");
    assert_eq!(found, expected, "{name}");
}

#[test]
fn views_show_what_a_plain_map_says() {
    let dir = tempfile::tempdir().unwrap();
    let (dataset, plain) = samples(dir.path());
    let specs = [
        "class={label}/{cache_id}-{sample_id:04}{ext}",
        "flat={cache_id}-{sample_id}",
        "stored=all/{path...} where ok",
        "typed={ext}/{n}/{cache_id}/{sample_id}{ext} where label in ['cat', '..'] or n == -2",
        "none={sample_id} where false",
        "deep={cache_id}/{sample_id}/{label}/{n}",
    ];
    let vfs = vfs(&dataset, options(&specs));
    let label = |s: &Sample| match s.label.as_str() {
        "" => "%".to_owned(),
        ".." => "%2E.".to_owned(),
        label => label.replace('/', "%2F"),
    };
    check(&vfs, &plain, "class", |s| {
        Some(format!(
            "{}/{}-{:04}.{}",
            label(s),
            s.cache_id,
            s.sample,
            s.ext
        ))
    });
    check(&vfs, &plain, "flat", |s| {
        Some(format!("{}-{}", s.cache_id, s.sample))
    });
    check(&vfs, &plain, "stored", |s| {
        s.ok.then(|| format!("all/{}", s.path))
    });
    check(&vfs, &plain, "typed", |s| {
        let shown = s.label == "cat" || s.label == ".." || s.n == -2;
        shown.then(|| format!(".{}/{}/{}/{}.{}", s.ext, s.n, s.cache_id, s.sample, s.ext))
    });
    check(&vfs, &plain, "none", |_| None);
    check(&vfs, &plain, "deep", |s| {
        Some(format!("{}/{}/{}/{}", s.cache_id, s.sample, label(s), s.n))
    });
    let views: Vec<_> = list(&vfs, at(&vfs, "views").unwrap().ino, 2, 99)
        .into_iter()
        .map(|(_, _, name, _)| String::from_utf8(name).unwrap())
        .collect();
    assert_eq!(views, ["class", "flat", "stored", "typed", "none", "deep"]);
}

#[test]
fn a_sample_has_one_link_for_each_view_that_shows_it() {
    let dir = tempfile::tempdir().unwrap();
    let (dataset, plain) = samples(dir.path());
    let specs = [
        "a={cache_id}-{sample_id}",
        "b={cache_id}-{sample_id} where ok",
    ];
    let mut with_auto = options(&specs);
    with_auto.auto_views = true;
    let vfs = vfs(&dataset, with_auto);
    for s in &plain {
        let attr = at(&vfs, &format!("samples/{}/{}", s.cache_id, s.sample)).unwrap();
        // /samples, a, by-label, by-n, by-ok, path; and b.
        assert_eq!(attr.nlink, 6 + u32::from(s.ok));
        let view = at(&vfs, &format!("views/a/{}-{}", s.cache_id, s.sample)).unwrap();
        assert_eq!(view, attr);
    }
}

#[test]
fn default_views_are_made_of_fields_with_few_values() {
    let dir = tempfile::tempdir().unwrap();
    let fields = [
        ("few", FieldKind::String),
        ("many", FieldKind::Int),
        ("real", FieldKind::Float),
        ("flag", FieldKind::Bool),
        ("long", FieldKind::String),
        ("odd/name", FieldKind::Int),
        ("path", FieldKind::String),
    ];
    let mut big = Tiny::new(1, &fields);
    for n in 0..1001_i64 {
        let row = vec![
            text(["x", "y"][usize::from(n % 3 == 0)]),
            Value::Int(n),
            Value::Float(0.5),
            Value::Bool(n == 7),
            text(&"l".repeat(256)),
            Value::Int(n % 1000),
            text(&format!("p/{n}.txt")),
        ];
        big = big.with(row, b"");
    }
    let other = Tiny::new(2, &[("few", FieldKind::Int)]).with(vec![Value::Int(5)], PNG);
    let dataset = open(dir.path(), &[big, other]);
    let vfs = vfs(&dataset, VfsOptions::default());
    let names = |path: &str| -> Vec<String> {
        let entries = list(&vfs, at(&vfs, path).unwrap().ino, 2, 9999).into_iter();
        entries
            .map(|(_, _, name, _)| String::from_utf8(name).unwrap())
            .collect()
    };
    assert_eq!(
        names("views"),
        ["by-few", "by-flag", "by-odd%2Fname", "path"]
    );
    assert_eq!(names("views/by-few"), ["y", "x", "5"]);
    assert_eq!(names("views/by-few/5"), ["2-0.png"]);
    assert_eq!(names("views/by-flag/true"), ["1-7.txt"]);
    assert_eq!(names("views/by-odd%2Fname/0"), ["1-0.txt", "1-1000.txt"]);
    assert_eq!(names("views/path/p").len(), 1001);
    let lone = at(&vfs, "samples/2/0").unwrap();
    assert_eq!(
        lone.nlink, 2,
        "only by-few shows a cache without the other fields"
    );
    let mut options = options(&["path={sample_id} where cache_id == 1"]);
    options.auto_views = true;
    let vfs = try_vfs(&dataset, options).unwrap();
    assert!(
        at(&vfs, "views/path/1000").is_ok(),
        "a view that was asked for comes first"
    );
    assert!(at(&vfs, "views/path/p").is_err());
}

/// One cache with labels, and perhaps payloads.
#[test]
fn few_values_are_few_over_all_rows_of_a_large_cache() {
    // More rows than are counted in one piece, whose values are in no order or in that of the rows.
    const ROWS: u64 = 700_000;
    let dir = tempfile::tempdir().unwrap();
    let fields = ["few", "many", "few_in_order", "many_in_order"];
    let mut cache = Tiny::new(1, &fields.map(|field| (field, FieldKind::Int)));
    for n in 0..ROWS {
        let values = [n % 1000, n % 1001, n / (ROWS / 1000), n * 1001 / ROWS];
        let values = values.map(|value| Value::Int(value.cast_signed()));
        cache = cache.with(values.to_vec(), b"");
    }
    // A second cache has one value more.
    let more =
        |field, value| Tiny::new(2, &[(field, FieldKind::Int)]).with(vec![Value::Int(value)], b"");
    let names = |caches: &[Tiny], at: &str| {
        let folder = dir.path().join(at);
        std::fs::create_dir(&folder).unwrap();
        let dataset = open(&folder, caches);
        let views = automatic(dataset.entries(), &HashSet::new());
        views
            .iter()
            .map(|view| view.name().to_owned())
            .collect::<Vec<_>>()
    };
    let one_of_the_same = [cache, more("few", 5)];
    assert_eq!(
        names(&one_of_the_same, "same"),
        ["by-few", "by-few_in_order"]
    );
    let [cache, _] = one_of_the_same;
    assert_eq!(
        names(&[cache, more("few_in_order", -1)], "more"),
        ["by-few"]
    );
}

fn labelled(dir: &std::path::Path, samples: &[(&str, &[u8])]) -> Dataset {
    let mut cache = Tiny::new(5, &[("label", FieldKind::String)]);
    for (label, payload) in samples {
        cache = cache.with(vec![text(label)], payload);
    }
    open(dir, &[cache])
}

fn refusal(dataset: &Dataset, spec: &str) -> String {
    match try_vfs(dataset, options(&[spec])) {
        Err(Error::View { reason, .. }) => reason,
        other => panic!("{spec}: {:?}", other.map(|_| "shown")),
    }
}

#[test]
fn equal_names_are_refused_naming_both_samples() {
    let dir = tempfile::tempdir().unwrap();
    let samples = [
        ("a", PNG),
        ("b", PNG),
        ("c/d", JPG),
        ("b", JPG),
        ("b", PNG),
        ("c", PNG),
        ("b", PNG),
    ];
    let dataset = labelled(dir.path(), &samples);
    let reason = refusal(&dataset, "v=x/{label}{ext}");
    assert!(
        reason.contains("\"x/b.png\"") && reason.contains("sample 1 of cache 5"),
        "{reason}"
    );
    assert!(
        reason.contains("sample 4 of cache 5"),
        "the first that has a name again: {reason}"
    );
    assert!(reason.contains("--on-collision=suffix"));
    assert!(refusal(&dataset, "v={label}").contains("sample 3 of cache 5"));
    let reason = refusal(&dataset, "v={label...} where sample_id in [2, 5]");
    assert!(
        reason.contains("folder") && reason.contains("sample 2") && reason.contains("sample 5")
    );
    let reason = refusal(&dataset, "v=metadata.jsonl where sample_id == 1");
    assert!(reason.contains("--view-metadata=off"), "{reason}");
    let reason = refusal(&dataset, "v=metadata.jsonl/{sample_id}");
    assert!(reason.contains("--view-metadata=off"), "{reason}");
    let twice = options(&["v={sample_id}", "v={sample_id}"]);
    assert!(matches!(try_vfs(&dataset, twice), Err(Error::View { .. })));
    // What cannot collide whatever the values are is not built before it is used.
    let vfs = vfs(&dataset, options(&["v={sample_id}{ext}"]));
    assert_eq!(vfs.counters().names_made(), 0);
}

#[test]
fn equal_names_get_a_suffix_when_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let labels = [
        "a.b",
        "a.b",
        "n",
        "a~5-0.b",
        "n",
        "d",
        "d/e",
        "metadata.jsonl",
        "a~5-0~5-3.b",
        "u",
    ];
    let samples: Vec<(&str, &[u8])> = labels.iter().map(|label| (*label, &b""[..])).collect();
    let dataset = labelled(dir.path(), &samples);
    let vfs = vfs(&dataset, suffixing(&["v={label...}", "w={label...}{ext}"]));
    let found = walk(&vfs, at(&vfs, "views/v").unwrap().ino);
    let expected = [
        ("a~5-0.b", 0),
        ("a~5-1.b", 1),
        ("n~5-2", 2),
        ("a~5-0~5-3.b", 3),
        ("n~5-4", 4),
        ("d~5-5", 5),
        ("d/e", 6),
        ("metadata~5-7.jsonl", 7),
        ("a~5-0~5-3~5-8.b", 8),
        ("u", 9),
    ];
    let expected: BTreeMap<String, Ino> = expected
        .into_iter()
        .map(|(path, sample)| (path.to_owned(), sample_ino(&vfs, 5, sample)))
        .collect();
    // Sample 3 was called as sample 0 is now, and sample 8 as sample 3 is now.
    let mut without_lines = found.clone();
    assert!(without_lines.remove("metadata.jsonl").is_some());
    assert_eq!(without_lines, expected);
    let found = walk(&vfs, at(&vfs, "views/w").unwrap().ino);
    assert_eq!(found["a.b~5-0.bin"], sample_ino(&vfs, 5, 0));
    assert_eq!(found["d.bin"], sample_ino(&vfs, 5, 5));
    assert_eq!(found.len(), 11);
}

#[test]
fn a_folder_hides_the_views_own_file_when_it_has_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = labelled(dir.path(), &[("metadata.jsonl/x", b""), ("y", b"")]);
    let vfs = vfs(&dataset, suffixing(&["v={label...}"]));
    let found = walk(&vfs, at(&vfs, "views/v").unwrap().ino);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["metadata.jsonl/x", "y"]);
    let mut without = options(&["v={label...}"]);
    without.view_metadata = ViewMetadata::Off;
    let vfs = try_vfs(&dataset, without).unwrap();
    assert_eq!(walk(&vfs, at(&vfs, "views/v").unwrap().ino).len(), 2);
}

#[test]
fn a_view_that_cannot_be_built_is_eio_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let deep = "x/".repeat(2049);
    let mut cache = Tiny::new(5, &[("path", FieldKind::String)]);
    for path in ["a", &deep] {
        cache = cache.with(vec![text(path)], b"p");
    }
    let dataset = open(dir.path(), &[cache]);
    let vfs = vfs(&dataset, VfsOptions::default());
    let top = at(&vfs, "views/path").unwrap();
    let damaged = |result: Result<(), VfsError>| matches!(result, Err(VfsError::Damaged(_)));
    assert!(damaged(vfs.lookup(top.ino, OsStr::new("a")).map(drop)));
    assert!(damaged(vfs.readdir(top.ino, 0, &mut |_| true)));
    assert_eq!(read(&vfs, sample_ino(&vfs, 5, 1)), b"p");
    let status = read(&vfs, at(&vfs, ".control/status").unwrap().ino);
    let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
    assert_eq!(status["views"][0]["state"], "failed");
    let reason = status["views"][0]["error"].as_str().unwrap();
    assert!(
        reason.contains("sample 1") && reason.contains("2048 components"),
        "{reason}"
    );
}

#[test]
fn many_who_ask_at_once_get_one_view() {
    let dir = tempfile::tempdir().unwrap();
    let (dataset, plain) = samples(dir.path());
    let vfs = vfs(&dataset, suffixing(&["v={label}/{sample_id}{ext}"]));
    let top = at(&vfs, "views/v").unwrap().ino;
    assert_eq!(
        vfs.counters().names_made(),
        0,
        "not built before it is used"
    );
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(vfs.lookup(top, OsStr::new("cat")).is_ok()));
        }
    });
    let built = plain.len() as u64;
    assert!(
        vfs.counters().names_made() < 6 * built,
        "{}",
        vfs.counters().names_made()
    );
}

#[test]
fn damaged_samples_have_names_too() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = labelled(dir.path(), &[("a", PNG), ("b", PNG)]);
    let shard = dir
        .path()
        .join("cache-00000000000000000005/shards/000000.bin");
    let mut bytes = std::fs::read(&shard).unwrap();
    // Another label: an envelope still, so that the size is believed, but not that of the table.
    let label = bytes.windows(3).position(|part| part == br#""a""#).unwrap();
    bytes[label + 1] = b'z';
    std::fs::write(&shard, bytes).unwrap();
    let vfs = vfs(&dataset, options(&["v={label}{ext}"]));
    let top = at(&vfs, "views/v").unwrap().ino;
    let names: Vec<_> = list(&vfs, top, 2, 9)
        .into_iter()
        .map(|entry| entry.2)
        .collect();
    assert_eq!(names, [&b"metadata.jsonl"[..], b"a.bin", b"b.png"]);
    let file = at(&vfs, "views/v/a.bin").unwrap();
    let mut out = [0; 4];
    assert!(matches!(
        vfs.read(file.ino, 0, &mut out),
        Err(VfsError::Damaged(_))
    ));
}

#[test]
fn numbers_of_folders_are_the_same_in_every_mount() {
    let dir = tempfile::tempdir().unwrap();
    let (dataset, _) = samples(dir.path());
    let specs = ["v={label}/{n}/{cache_id}-{sample_id}"];
    let numbers = || {
        let vfs = vfs(&dataset, options(&specs));
        let top = at(&vfs, "views/v").unwrap().ino;
        let labels = list(&vfs, top, 2, 999);
        let below = labels.iter().filter(|entry| entry.1 == FileKind::Directory);
        below
            .flat_map(|entry| list(&vfs, entry.0, 0, 999))
            .collect::<Vec<_>>()
    };
    let first = numbers();
    assert_eq!(first, numbers());
    assert!(first.iter().all(|(ino, ..)| ino.0 < 1 << 32));
}

#[test]
fn two_hundred_thousand_names_cost_two_hundred_thousand() {
    let dir = tempfile::tempdir().unwrap();
    let count = 200_000_u64;
    let mut cache = Tiny::new(1, &[("label", FieldKind::Int)]);
    for n in 0..count {
        let scattered = i64::try_from(n * 7919 % 1000).unwrap();
        cache = cache.with(vec![Value::Int(scattered)], b"");
    }
    let dataset = open(dir.path(), &[cache]);
    let vfs = vfs(
        &dataset,
        options(&["flat=n{sample_id}", "class={label}/{sample_id}"]),
    );
    let made = |work: &mut dyn FnMut()| {
        let before = vfs.counters().names_made();
        work();
        vfs.counters().names_made() - before
    };
    let flat = at(&vfs, "views/flat").unwrap().ino;
    let class = at(&vfs, "views/class").unwrap().ino;
    let building = made(&mut || {
        vfs.lookup(flat, OsStr::new("n0")).unwrap();
        vfs.lookup(class, OsStr::new("0")).unwrap();
    });
    assert!(
        building < 2 * count + count / 10,
        "{building} names made for {count}, twice"
    );

    // A listing in pieces makes each name once; the kernel asks again for one name in each piece.
    let mut offset = 2;
    let mut seen = 0;
    let listing = made(&mut || {
        loop {
            let piece = list(&vfs, flat, offset, 1000);
            let Some(last) = piece.last() else { break };
            (offset, seen) = (last.3, seen + piece.len() as u64);
        }
    });
    assert_eq!(seen, count + 1);
    assert!(listing <= count, "{listing} names made to list {count}");

    let mut found = 0;
    let finding = made(&mut || {
        for n in (0..count).step_by(97) {
            let name = format!("n{n}");
            let attr = vfs.lookup(flat, OsStr::new(&name)).unwrap();
            assert_eq!(attr.ino, sample_ino(&vfs, 1, n));
            let absent = format!("n{n}x");
            assert!(vfs.lookup(flat, OsStr::new(&absent)).is_err());
            found += 1;
        }
    });
    assert!(
        finding < found + found / 10,
        "{finding} names made to find {found}"
    );
    let classes = list(&vfs, class, 3, 9999);
    assert_eq!(classes.len(), 1000);
    let one = list(&vfs, classes[500].0, 2, 9999);
    assert_eq!(one.len(), 200);
    let status = read(&vfs, at(&vfs, ".control/status").unwrap().ino);
    let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
    for view in status["views"].as_array().unwrap() {
        let bytes = view["memory_bytes"].as_u64().unwrap();
        assert!(bytes < 13 * count, "{bytes} bytes for {count} samples");
    }
}
