//! What views call samples, and which they show.

use std::collections::BTreeSet;

use datasetrt::dataset::Dataset;
use datasetrt::format::metadata::{FieldKind, Value};
use datasetrt::view::{
    Extensions, NAME_MAX, NameFault, NameSeries, OnCollision, Scope, Subject, View, ViewSpec,
};
use proptest::prelude::*;

use super::tiny_views::{Tiny, open, text};

struct Bin;

impl Extensions for Bin {
    fn extension(&self, _: Subject<'_>) -> &'static str {
        "bin"
    }
}

fn view(dataset: &Dataset, spec: &str) -> View {
    View::bind(
        ViewSpec::parse(spec).unwrap(),
        dataset.entries(),
        OnCollision::Refuse,
    )
    .unwrap()
}

fn subjects(dataset: &Dataset) -> impl Iterator<Item = Subject<'_>> {
    dataset
        .entries()
        .iter()
        .enumerate()
        .flat_map(|(cache, entry)| {
            (0..entry.cache.sample_count()).map(move |sample| Subject {
                cache,
                entry,
                sample,
            })
        })
}

fn render(view: &View, subject: Subject<'_>) -> Result<String, NameFault> {
    let (mut path, mut name) = (b"left over".to_vec(), Vec::new());
    let rendered = view.render(subject, Scope::Path, &Bin, &mut path);
    if rendered.is_ok() {
        view.render(subject, Scope::Name, &Bin, &mut name).unwrap();
        assert_eq!(path.rsplit(|byte| *byte == b'/').next().unwrap(), name);
    }
    rendered.map(|()| String::from_utf8(path).unwrap())
}

/// Paths of all samples in a template. Names in a row are those of the paths.
fn paths(dataset: &Dataset, template: &str) -> Vec<String> {
    let view = view(dataset, &format!("v={template}"));
    let mut series = NameSeries::new(&view, &Bin);
    let mut name = b"left over".to_vec();
    subjects(dataset)
        .map(|subject| {
            let path = render(&view, subject).unwrap();
            series.name(subject, &mut name).unwrap();
            assert_eq!(path.rsplit('/').next().unwrap().as_bytes(), name);
            path
        })
        .collect()
}

/// Ids of the samples that a filter lets in.
fn shown(dataset: &Dataset, filter: &str) -> Vec<u64> {
    let view = view(dataset, &format!("v={{sample_id}} where {filter}"));
    let shown = subjects(dataset).filter(|subject| view.shows(*subject));
    shown.map(|subject| subject.sample).collect()
}

/// One cache with a text field `t`.
fn texts(dir: &std::path::Path, values: &[&str]) -> Dataset {
    let mut cache = Tiny::new(7, &[("t", FieldKind::String)]);
    cache.source_name = "a/b".to_owned();
    for value in values {
        cache = cache.with(vec![text(value)], b"");
    }
    open(dir, &[cache])
}

#[test]
fn names_in_a_row_are_of_their_own_caches() {
    let dir = tempfile::tempdir().unwrap();
    let caches = ["", ".", "..", ".h", "a/b", "é"].iter().zip(1..);
    let caches = caches.map(|(source_name, cache_id)| {
        let mut cache = Tiny::new(cache_id, &[("t", FieldKind::String)]);
        cache.source_name = (*source_name).to_owned();
        ["x", "", "."]
            .iter()
            .fold(cache, |cache, value| cache.with(vec![text(value)], b""))
    });
    let dataset = open(dir.path(), &caches.collect::<Vec<_>>());
    assert_eq!(
        paths(&dataset, "f/{source_name}{t}"),
        [
            "f/x", "f/%", "f/%2E", "f/.x", "f/%2E", "f/%2E.", "f/..x", "f/%2E.", "f/...", "f/.hx",
            "f/.h", "f/.h.", "f/a%2Fbx", "f/a%2Fb", "f/a%2Fb.", "f/éx", "f/é", "f/é."
        ]
    );
    let named = paths(&dataset, "{cache_id}-{source_name}-{sample_id:03}.{t}");
    assert_eq!(named[..2], ["1--000.x", "1--001."]);
    assert_eq!(named[16..], ["6-é-001.", "6-é-002.."]);
    assert_eq!(
        paths(&dataset, "{sample_id}/{source_name}")[3..5],
        ["0/%2E", "1/%2E"]
    );
    assert_eq!(paths(&dataset, "{source_name}{ext}")[2..4], ["%", "%2E"]);
}

#[test]
fn a_value_is_one_component_or_several() {
    let dir = tempfile::tempdir().unwrap();
    let values = [
        "a/b",
        "",
        ".",
        "..",
        ".h",
        "/a//./b/../c/",
        "../../x",
        "%",
        "a\nb",
        "é",
        "a/..",
        "...",
    ];
    let dataset = texts(dir.path(), &values);
    assert_eq!(
        paths(&dataset, "{t}"),
        [
            "a%2Fb",
            "%",
            "%2E",
            "%2E.",
            ".h",
            "%2Fa%2F%2F.%2Fb%2F..%2Fc%2F",
            "..%2F..%2Fx",
            "%",
            "a\nb",
            "é",
            "a%2F..",
            "..."
        ]
    );
    assert_eq!(
        paths(&dataset, "{t...}"),
        [
            "a/b", "%", "%", "%", ".h", "a/c", "x", "%", "a\nb", "é", "%", "..."
        ]
    );
    assert_eq!(
        paths(&dataset, "top/x{t...}.{ext}{ext}/{sample_id:03}{ext}")[..6],
        [
            "top/xa/b..bin.bin/000",
            "top/x..bin.bin/001",
            "top/x..bin.bin/002",
            "top/x..bin.bin/003",
            "top/x.h..bin.bin/004",
            "top/xa/c..bin.bin/005"
        ]
    );
    assert_eq!(
        paths(&dataset, ".{t}")[..5],
        [".a%2Fb", "%2E", "%2E.", "...", "..h"],
        "the dots of text that the user wrote stay, unless the whole name is dots of a path"
    );
    assert_eq!(
        paths(&dataset, ".{t...}")[..5],
        [".a/b", "%2E", "%2E", "%2E", "..h"]
    );
    assert_eq!(
        paths(&dataset, "{source_name}/{cache_id:03}")[0],
        "a%2Fb/007"
    );
    assert_eq!(paths(&dataset, "{t|none}")[..2], ["a%2Fb", "none"]);
    assert_eq!(paths(&dataset, "{t...|no/ne}")[..2], ["a/b", "no/ne"]);
    assert_eq!(paths(&dataset, "{ext}/{ext}x")[0], ".bin/.binx");
}

#[test]
fn numbers_are_spelled_plainly() {
    let dir = tempfile::tempdir().unwrap();
    let fields = [
        ("b", FieldKind::Bool),
        ("i", FieldKind::Int),
        ("f", FieldKind::Float),
    ];
    let row = |b, i, f| vec![Value::Bool(b), Value::Int(i), Value::Float(f)];
    let cache = Tiny::new(3, &fields)
        .with(row(true, -5, 0.5), b"")
        .with(row(false, i64::MIN, f64::NAN), b"")
        .with(row(true, i64::MAX, -0.0), b"")
        .with(row(true, 0, 1e300), b"");
    let dataset = open(dir.path(), &[cache]);
    assert_eq!(
        paths(&dataset, "{b}/{i}/{i:06}/{f}"),
        [
            "true/-5/-00005/0.5",
            "false/-9223372036854775808/-9223372036854775808/NaN",
            "true/9223372036854775807/9223372036854775807/-0.0",
            "true/0/000000/1e300",
        ]
    );
}

#[test]
fn names_that_are_too_long_are_cut_and_paths_that_are_too_deep_refused() {
    let dir = tempfile::tempdir().unwrap();
    let long = "x".repeat(255);
    let deep = "a/".repeat(3000);
    let dataset = texts(dir.path(), &[&long, "/", &deep]);
    let whole = view(&dataset, "v={t}");
    let first = subjects(&dataset).next().unwrap();
    assert_eq!(render(&whole, first).unwrap(), long);
    let longer = render(&view(&dataset, "v={t}x"), first).unwrap();
    assert!(longer.len() <= NAME_MAX && longer.starts_with(&long[..200]));
    let other = render(&view(&dataset, "v={t}y"), first).unwrap();
    assert_ne!(longer, other);
    let several = view(&dataset, "v={t...}");
    let last = subjects(&dataset).last().unwrap();
    assert_eq!(render(&several, last), Err(NameFault::TooDeep));
}

#[test]
fn fields_are_checked_in_every_cache() {
    let dir = tempfile::tempdir().unwrap();
    let caches = [
        Tiny::new(1, &[("label", FieldKind::String), ("n", FieldKind::Int)])
            .with(vec![text("cat"), Value::Int(1)], b""),
        Tiny::new(2, &[("label", FieldKind::Int)]).with(vec![Value::Int(9)], b""),
    ];
    let dataset = open(dir.path(), &caches);
    let refused = |spec: &str| {
        let spec = ViewSpec::parse(spec).unwrap();
        let error = View::bind(spec, dataset.entries(), OnCollision::Refuse).unwrap_err();
        error.to_string()
    };
    let no_field = refused("v={n}");
    assert!(no_field.contains("\"n\"") && no_field.contains("cache-00000000000000000002"));
    assert!(refused("v={label...}").contains("string"));
    assert!(refused("v={label:03}").contains("int"));
    for filter in [
        "label == \"cat\"",
        "label == 5",
        "label",
        "n == 1",
        "nothing == 1",
        "label in [1, \"x\"]",
        "`cache_id` == 1",
        "source_name == 1",
        "cache_id == \"1\"",
    ] {
        let message = refused(&format!("v={{sample_id}} where {filter}"));
        assert!(
            message.contains("expected") && message.contains("found"),
            "{message}"
        );
    }
    assert_eq!(paths(&dataset, "{n|none}/{label}"), ["1/cat", "none/9"]);
}

#[test]
fn filters_decide_as_written() {
    let dir = tempfile::tempdir().unwrap();
    let fields = [
        ("label", FieldKind::String),
        ("score", FieldKind::Float),
        ("n", FieldKind::Int),
        ("ok", FieldKind::Bool),
        ("in", FieldKind::Bool),
    ];
    let row = |label, score, n, ok| {
        vec![
            text(label),
            Value::Float(score),
            Value::Int(n),
            Value::Bool(ok),
            Value::Bool(!ok),
        ]
    };
    let big = (1 << 53) + 1;
    let cache = Tiny::new(4, &fields)
        .with(row("cat", 0.9, 0, true), b"")
        .with(row("cat", 0.5, 1, false), b"")
        .with(row("dog", f64::NAN, big, true), b"")
        .with(row("", f64::INFINITY, -3, false), b"")
        .with(row("Cat", -0.0, i64::MAX, false), b"");
    let dataset = open(dir.path(), &[cache]);
    for (filter, ids) in [
        ("label == \"cat\" and score > 0.5", vec![0]),
        ("label == 'cat' or score > 0.5", vec![0, 1, 3]),
        ("not (label == 'cat' or score > 0.5)", vec![2, 4]),
        ("score == 0", vec![4]),
        ("score != 0", vec![0, 1, 2, 3]),
        ("score < 9e99 or score >= 9e99", vec![0, 1, 3, 4]),
        ("score in [0.5, 1]", vec![1]),
        ("n == 9007199254740993", vec![2]),
        ("n == 9007199254740992.0", vec![]),
        ("n > 9007199254740992.0", vec![2, 4]),
        ("n >= 0.5", vec![1, 2, 4]),
        ("n <= 99999999999999999999", vec![0, 1, 2, 3, 4]),
        ("0 < n", vec![1, 2, 4]),
        ("n not in [0, 1]", vec![2, 3, 4]),
        ("ok", vec![0, 2]),
        ("ok == false", vec![1, 3, 4]),
        ("true != ok", vec![1, 3, 4]),
        ("`in` and not ok", vec![1, 3, 4]),
        ("label < 'a'", vec![3, 4]),
        ("label in ['dog', '']", vec![2, 3]),
        (
            "sample_id >= 3 and cache_id == 4 and source_name == 'source-4'",
            vec![3, 4],
        ),
        ("true", vec![0, 1, 2, 3, 4]),
        ("false", vec![]),
    ] {
        assert_eq!(shown(&dataset, filter), ids, "{filter}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Values of any text: one component comes back as it was, several never leave the view.
    #[test]
    fn no_value_leaves_its_place(values in prop::collection::vec("(?s)([./%a]|.){0,12}", 1..20)) {
        let dir = tempfile::tempdir().unwrap();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let dataset = texts(dir.path(), &values);
        for (path, value) in paths(&dataset, "{t}").iter().zip(&values) {
            if !matches!(*value, "" | "." | "..") && !value.contains(['/', '\0']) {
                prop_assert_eq!(path, value);
            }
        }
        let distinct: BTreeSet<_> = values.iter().collect();
        let by_name = view(&dataset, "v={t}");
        let mut name = Vec::new();
        let names: BTreeSet<_> = subjects(&dataset)
            .map(|subject| {
                by_name.render_marked(subject, Scope::Path, &Bin, &mut name).unwrap();
                name.clone()
            })
            .collect();
        prop_assert_eq!(names.len(), distinct.len());
        for template in ["{t...}", ".{t...}", "..{t}", "{t}{t}", "a/{t...}/{t...}", "{t...}{t...}"] {
            for path in paths(&dataset, template) {
                for component in path.split('/') {
                    prop_assert!(!matches!(component, "" | "." | ".."), "{template} {path:?}");
                    prop_assert!(!component.contains('\0') && component.len() <= NAME_MAX);
                }
                if template.starts_with("a/") {
                    prop_assert!(path.starts_with("a/"));
                }
            }
        }
    }
}
