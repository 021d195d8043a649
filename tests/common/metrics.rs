//! The exposition format of Prometheus, read strictly.

use std::collections::{BTreeMap, BTreeSet};

/// Values by name and labels, as `name{label="value"}`.
pub(crate) type Values = BTreeMap<String, f64>;

/// The values of a text in which every metric is declared, has a value once, and is complete.
pub(crate) fn parse(text: &str) -> Values {
    assert!(text.ends_with('\n'));
    let (mut kinds, mut values) = (BTreeMap::new(), Values::new());
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            assert!(help.split_once(' ').unwrap().1.ends_with('.'), "{line}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kinds.insert(name.to_owned(), kind.to_owned()), None);
        } else {
            let (name, value) = line.rsplit_once(' ').expect(line);
            let value: f64 = value.parse().expect(line);
            assert!(value >= 0.0, "{line}");
            let base = name.split('{').next().unwrap();
            let known = |base: &str| kinds.contains_key(base);
            let part = ["_bucket", "_sum", "_count"]
                .iter()
                .any(|end| base.strip_suffix(end).is_some_and(known));
            assert!(known(base) || part, "{line} was not declared");
            assert_eq!(values.insert(name.to_owned(), value), None, "{line} again");
        }
    }
    values
}

/// Checks that the buckets of each histogram grow and that the last is its count.
pub(crate) fn assert_histograms_are_whole(text: &str) {
    let values = parse(text);
    let mut operations = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("datasetrt_request_seconds_bucket{operation=\"") {
            operations.insert(rest.split('"').next().unwrap());
        }
    }
    for operation in operations {
        let start = format!("datasetrt_request_seconds_bucket{{operation=\"{operation}\",le=");
        let buckets: Vec<(f64, f64)> = text
            .lines()
            .filter_map(|line| line.strip_prefix(&start))
            .map(|rest| {
                let (bound, value) = rest.split_once("} ").unwrap();
                let bound = bound.trim_matches('"').replace("+Inf", "inf");
                (bound.parse().unwrap(), value.parse().unwrap())
            })
            .collect();
        let grow = |pair: &[(f64, f64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
        assert!(buckets.windows(2).all(grow), "{operation}: {buckets:?}");
        let (bound, last) = *buckets.last().unwrap();
        assert!(bound.is_infinite());
        let count = format!("datasetrt_request_seconds_count{{operation=\"{operation}\"}}");
        assert_eq!(last, values[&count], "{operation}");
    }
}
