//! The metrics of a mount, as read from its text.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// The name of the metric that every mount has.
const BUILD: &str = "datasetrt_build_info";

/// The metrics at one moment.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    /// Values by name and labels.
    values: BTreeMap<(String, Labels), f64>,
    /// Seconds since 1970.
    taken: f64,
}

/// Labels by name.
type Labels = BTreeMap<String, String>;

/// How long requests of one kind took: how many took at most so many seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Latency {
    /// Bound in seconds and number up to it, both growing.
    pub(super) buckets: Vec<(f64, f64)>,
    /// Seconds of all of them.
    pub(super) sum: f64,
}

impl Metrics {
    /// `None` for a text that is not of a mount of ours. Lines that are not understood are left out.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let values: BTreeMap<_, _> = text.lines().filter_map(value).collect();
        let ours = values.keys().any(|(name, _)| name == BUILD);
        let taken = SystemTime::now().duration_since(UNIX_EPOCH);
        ours.then(|| Self {
            values,
            taken: taken.unwrap_or_default().as_secs_f64(),
        })
    }

    /// A value without labels; 0 when it is not there.
    pub(super) fn get(&self, name: &str) -> f64 {
        self.labelled(name).map(|(_, value)| value).sum()
    }

    /// The values of a metric, each with its labels.
    pub(super) fn labelled<'a>(
        &'a self,
        name: &'a str,
    ) -> impl Iterator<Item = (&'a Labels, f64)> + 'a {
        let first = (name.to_owned(), Labels::new());
        let from = self.values.range(first..);
        from.take_while(move |((found, _), _)| found == name)
            .map(|((_, labels), value)| (labels, *value))
    }

    /// The value of a metric for one kind of requests.
    pub(super) fn of_operation(&self, name: &str, operation: &str) -> f64 {
        let values = self.labelled(name);
        let values = values.filter(|(labels, _)| is_of(labels, operation));
        values.map(|(_, value)| value).sum()
    }

    /// Seconds since the mount started.
    pub(super) fn age(&self) -> f64 {
        (self.taken - self.get("process_start_time_seconds")).max(0.0)
    }

    /// Seconds since `before`, or since the start.
    pub(super) fn since(&self, before: Option<&Self>) -> f64 {
        before.map_or(self.age(), |before| self.taken - before.taken)
    }

    /// How long requests of one kind took since `before`, or since the start.
    pub(super) fn latency(&self, operation: &str, before: Option<&Self>) -> Latency {
        let of = |metrics: &Self| {
            let buckets = metrics.labelled("datasetrt_request_seconds_bucket");
            let mut buckets: Vec<(f64, f64)> = buckets
                .filter(|(labels, _)| is_of(labels, operation))
                .filter_map(|(labels, count)| Some((bound(labels.get("le")?)?, count)))
                .collect();
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            let sum = metrics.of_operation("datasetrt_request_seconds_sum", operation);
            Latency { buckets, sum }
        };
        let mut latency = of(self);
        if let Some(before) = before.map(of) {
            latency.sum = (latency.sum - before.sum).max(0.0);
            for ((_, count), (_, earlier)) in latency.buckets.iter_mut().zip(before.buckets) {
                *count = (*count - earlier).max(0.0);
            }
        }
        latency
    }
}

impl Latency {
    pub(super) fn count(&self) -> f64 {
        self.buckets.last().map_or(0.0, |(_, count)| *count)
    }

    /// Mean in seconds; `None` when there was no request.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.count() > 0.0).then(|| self.sum / self.count())
    }

    /// The bound that this part of all requests kept to, in seconds.
    pub(super) fn quantile(&self, part: f64) -> Option<f64> {
        let wanted = self.count() * part;
        let found = self.buckets.iter().find(|(_, count)| *count >= wanted);
        found
            .filter(|_| self.count() > 0.0)
            .map(|(bound, _)| *bound)
    }
}

fn is_of(labels: &Labels, operation: &str) -> bool {
    labels
        .get("operation")
        .is_some_and(|found| found == operation)
}

/// A line `name{label="value",...} number`.
fn value(line: &str) -> Option<((String, Labels), f64)> {
    if line.starts_with('#') {
        return None;
    }
    let (name, number) = line.rsplit_once(' ')?;
    let number = bound(number)?;
    let Some((name, labels)) = name.split_once('{') else {
        return Some(((name.to_owned(), Labels::new()), number));
    };
    // None of our values has a comma or a quotation mark in it.
    let labels = labels.strip_suffix('}')?.split(',').map(|label| {
        let (label, value) = label.split_once('=')?;
        let value = value.strip_prefix('"')?.strip_suffix('"')?;
        Some((label.to_owned(), value.to_owned()))
    });
    Some(((name.to_owned(), labels.collect::<Option<_>>()?), number))
}

fn bound(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        text => text.parse().ok().filter(|number: &f64| number.is_finite()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# HELP datasetrt_build_info Version.
# TYPE datasetrt_build_info gauge
datasetrt_build_info{version=\"0.1.0\"} 1
datasetrt_request_seconds_bucket{operation=\"read\",le=\"0.001\"} 90
datasetrt_request_seconds_bucket{operation=\"read\",le=\"0.002\"} 99
datasetrt_request_seconds_bucket{operation=\"read\",le=\"+Inf\"} 100
datasetrt_request_seconds_sum{operation=\"read\"} 0.5
datasetrt_request_seconds_bucket{operation=\"lookup\",le=\"+Inf\"} 7
damaged{cache_id=\"1\"} 2
damaged{cache_id=\"2\"} 3
what is this
";

    #[test]
    fn values_are_found_by_name_and_labels() {
        let metrics = Metrics::parse(TEXT).unwrap();
        assert_eq!(metrics.get("damaged"), 5.0);
        assert_eq!(metrics.get("nothing"), 0.0);
        let ids: Vec<_> = metrics.labelled("damaged").collect();
        assert_eq!((ids[1].0["cache_id"].as_str(), ids[1].1), ("2", 3.0));
        assert!(Metrics::parse("other 1\n").is_none());
    }

    #[test]
    fn latencies_are_those_between_two_looks() {
        let before = Metrics::parse(TEXT).unwrap();
        let all = before.latency("read", None);
        assert_eq!((all.count(), all.mean()), (100.0, Some(0.005)));
        assert_eq!(all.quantile(0.5), Some(0.001));
        assert_eq!(all.quantile(0.99), Some(0.002));
        assert_eq!(all.quantile(1.0), Some(f64::INFINITY));
        let none = before.latency("read", Some(&before));
        assert_eq!(
            (none.count(), none.mean(), none.quantile(0.5)),
            (0.0, None, None)
        );
        let later = TEXT
            .replace("} 99\n", "} 109\n")
            .replace("} 100\n", "} 110\n");
        let later = Metrics::parse(&later)
            .unwrap()
            .latency("read", Some(&before));
        assert_eq!((later.count(), later.quantile(0.5)), (10.0, Some(0.002)));
    }
}
