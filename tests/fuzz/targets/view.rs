//! A view's name, template and filter as they are typed, and the paths that it makes.
#![no_main]

use std::path::{Component, Path};

use datasetrt::dataset::Dataset;
use datasetrt::format::metadata::FieldKind;
use datasetrt::view::{
    Extensions, NAME_MAX, OnCollision, Scope, Subject, View, ViewSpec, unescape_component,
};
use datasetrt_fuzz::common::fixture::{Fixture, Sample, TestCache};
use libfuzzer_sys::fuzz_target;

struct Bin;

impl Extensions for Bin {
    fn extension(&self, _: Subject<'_>) -> &'static str {
        "bin"
    }
}

fn dataset() -> (TestCache, Dataset) {
    let texts = [
        "",
        "cat",
        "..",
        "a/../b",
        "%/\n",
        "\u{e9}",
        &"long".repeat(70),
    ];
    let samples = (0_i32..).zip(texts).map(|(n, text)| {
        Sample::new([])
            .with("t", text)
            .with("n", n - 3)
            .with("x", f64::from(n) / 3.0)
            .with("b", n > 2)
    });
    let schema = [
        ("t", FieldKind::String),
        ("n", FieldKind::Int),
        ("x", FieldKind::Float),
        ("b", FieldKind::Bool),
    ];
    let cache = Fixture::new().v2().schema(&schema).samples(samples).build();
    let dataset = cache.dataset().expect("a sound cache");
    (cache, dataset)
}

thread_local! {
    static DATASET: (TestCache, Dataset) = dataset();
}

fuzz_target!(|data: &[u8]| {
    let Ok(spec) = ViewSpec::parse_bytes(data) else {
        return;
    };
    DATASET.with(|(_, dataset)| {
        let entries = dataset.entries();
        let Ok(view) = View::bind(spec, entries, OnCollision::Suffix) else {
            return;
        };
        let entry = &entries[0];
        for sample in 0..entry.cache.sample_count() {
            let subject = Subject {
                cache: 0,
                entry,
                sample,
            };
            let _ = view.shows(subject);
            let mut path = Vec::new();
            if view.render(subject, Scope::Path, &Bin, &mut path).is_ok() {
                check(&path);
            }
        }
    });
});

/// A relative path that stays inside its folder, and whose components have names.
fn check(path: &[u8]) {
    let path = std::str::from_utf8(path).expect("UTF-8");
    assert!(!path.is_empty() && !path.contains('\0'), "{path:?}");
    for component in path.split('/') {
        assert!(
            !component.is_empty() && component.len() <= NAME_MAX,
            "{path:?}"
        );
        assert!(component != "." && component != "..", "{path:?}");
        let _ = unescape_component(component);
    }
    assert!(
        Path::new(path)
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
    );
}
