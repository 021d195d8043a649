//! Metrics as lines for people.

use rustix::termios::tcgetwinsize;

use super::metrics::{Latency, Metrics};
use crate::cli::output::{bytes, count, counted};

/// Room for lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    columns: usize,
    rows: usize,
}

impl Size {
    /// For a file or a pipe.
    pub(super) const UNBOUNDED: Self = Self {
        columns: usize::MAX,
        rows: usize::MAX,
    };

    /// That of the terminal at stdout.
    pub(super) fn of_terminal() -> Self {
        match tcgetwinsize(std::io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => Self {
                columns: size.ws_col.into(),
                // The last row holds the cursor.
                rows: usize::from(size.ws_row) - 1,
            },
            _ => Self {
                columns: 80,
                rows: 23,
            },
        }
    }
}

/// What the mount at `shown` does: `now`, compared with `before` or with its start.
pub(super) fn render(
    shown: &str,
    now: &Metrics,
    before: Option<&Metrics>,
    size: Size,
) -> Vec<String> {
    let mut lines = vec![
        format!(
            "{shown}: {}, {}, up {}",
            counted(integer(now.get("datasetrt_caches")), "cache"),
            counted(integer(now.get("datasetrt_samples")), "sample"),
            duration(now.age())
        ),
        match before {
            Some(_) => format!("rates of the last {:.1} s", now.since(before)),
            None => "rates since the start".to_owned(),
        },
        String::new(),
    ];
    totals(&mut lines, now, before);
    lines.push(String::new());
    operations(&mut lines, now, before);
    lines.push(String::new());
    memory(&mut lines, now);
    slowest(&mut lines, now);
    lines.truncate(size.rows);
    for line in &mut lines {
        if let Some((end, _)) = line.char_indices().nth(size.columns) {
            line.truncate(end);
        }
    }
    lines
}

fn totals(lines: &mut Vec<String>, now: &Metrics, before: Option<&Metrics>) {
    let seconds = now.since(before);
    let rate = |name: &str| {
        let gain = now.get(name) - before.map_or(0.0, |before| before.get(name));
        if seconds > 0.0 {
            gain.max(0.0) / seconds
        } else {
            0.0
        }
    };
    lines.push(format!("{:16}{:>16}{:>16}", "", "per second", "total"));
    let mut row = |title: &str, name: &str, show: fn(f64) -> String| {
        let (rate, total) = (show(rate(name)), show(now.get(name)));
        lines.push(format!("{title:16}{rate:>16}{total:>16}"));
    };
    row("requests", "datasetrt_requests_total", whole);
    row("bytes read", "datasetrt_read_bytes_total", size);
    row("decoded", "datasetrt_payloads_decoded_total", whole);
    row("decoded before", "datasetrt_payload_hits_total", whole);
    row("decode time", "datasetrt_decode_seconds_total", time);
}

fn operations(lines: &mut Vec<String>, now: &Metrics, before: Option<&Metrics>) {
    lines.push(format!(
        "{:16}{:>16}{:>16}{:>10}{:>10}{:>10}",
        "operation", "per second", "total", "mean", "50% <=", "99% <="
    ));
    let seconds = now.since(before);
    let name = "datasetrt_requests_total";
    for (labels, total) in now.labelled(name) {
        let Some(operation) = labels.get("operation") else {
            continue;
        };
        let gain = total - before.map_or(0.0, |before| before.of_operation(name, operation));
        let rate = if seconds > 0.0 {
            gain.max(0.0) / seconds
        } else {
            0.0
        };
        let latency = now.latency(operation, before);
        let [mean, half, most] = times(&latency);
        let (rate, total) = (whole(rate), whole(total));
        lines.push(format!(
            "{operation:16}{rate:>16}{total:>16}{mean:>10}{half:>10}{most:>10}"
        ));
    }
}

fn times(latency: &Latency) -> [String; 3] {
    let show = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), time);
    [
        latency.mean(),
        latency.quantile(0.5),
        latency.quantile(0.99),
    ]
    .map(show)
}

fn memory(lines: &mut Vec<String>, now: &Metrics) {
    lines.push(format!(
        "memory: {} in use by the daemon; {} of {} for decoded samples",
        size(now.get("process_resident_memory_bytes")),
        size(now.get("datasetrt_payload_memory_bytes")),
        size(now.get("datasetrt_payload_memory_limit_bytes")),
    ));
    let listed = now.labelled("datasetrt_prefetch_samples_total");
    let listed: Vec<String> = listed
        .filter(|(_, count)| *count > 0.0)
        .filter_map(|(labels, count)| Some(format!("{} {}", whole(count), labels.get("state")?)))
        .collect();
    if !listed.is_empty() {
        lines.push(format!(
            "prefetch: {} pending, {} ready; {}",
            whole(now.get("datasetrt_prefetch_pending")),
            size(now.get("datasetrt_prefetch_ahead_bytes")),
            listed.join(", ").replace('_', " ")
        ));
    }
    let damaged =
        now.get("datasetrt_damaged_samples") + now.get("datasetrt_damaged_unlisted_total");
    if damaged > 0.0 {
        let damaged = whole(damaged);
        lines.push(format!(
            "damaged samples: {damaged} (.control/damaged lists them)"
        ));
    }
    let panics = now.get("datasetrt_panics_total");
    if panics > 0.0 {
        lines.push(format!("internal errors: {} (.control/log)", whole(panics)));
    }
}

fn slowest(lines: &mut Vec<String>, now: &Metrics) {
    let slow = now.labelled("datasetrt_slow_sample_seconds");
    let mut slow: Vec<(f64, String)> = slow
        .filter_map(|(labels, seconds)| {
            let (cache, sample) = (labels.get("cache_id")?, labels.get("sample_id")?);
            Some((seconds, format!("samples/{cache}/{sample}")))
        })
        .collect();
    if slow.is_empty() {
        return;
    }
    slow.sort_by(|a, b| b.0.total_cmp(&a.0));
    lines.push(String::new());
    lines.push("slowest reads of the last ten minutes".to_owned());
    lines.extend(
        slow.into_iter()
            .map(|(took, path)| format!("{:>10}  {path}", time(took))),
    );
}

/// A number of things, or of things per second.
fn whole(number: f64) -> String {
    match number > 0.0 && number < 9.95 && number.fract() > 0.0 {
        true => format!("{number:.1}"),
        false => count(integer(number)),
    }
}

fn size(number: f64) -> String {
    bytes(integer(number))
}

/// Rounded, and within what an integer holds.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn integer(number: f64) -> u64 {
    number.round() as u64
}

/// Seconds with three digits: `12.3 us`, `4.1 ms`, `2.0 s`.
fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if !s.is_finite() => return "over 8 s".to_owned(),
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s => (s * 1e6, "us"),
    };
    let decimals = usize::from(value < 99.95);
    format!("{value:.decimals$} {unit}")
}

/// Seconds as `1:02:03`, with days before it.
fn duration(seconds: f64) -> String {
    let seconds = integer(seconds.floor());
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let rest = format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60);
    match days {
        0 => rest,
        days => format!("{days} d {rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
datasetrt_build_info{version=\"0.1.0\"} 1
datasetrt_caches 2
datasetrt_samples 128
datasetrt_requests_total{operation=\"lookup\"} 1000
datasetrt_requests_total{operation=\"open\"} 1
datasetrt_requests_total{operation=\"read\"} 2000
datasetrt_request_seconds_bucket{operation=\"read\",le=\"0.000008\"} 2000
datasetrt_request_seconds_bucket{operation=\"read\",le=\"+Inf\"} 2000
datasetrt_request_seconds_sum{operation=\"read\"} 0.01
datasetrt_read_bytes_total 4000000
datasetrt_slow_sample_seconds{cache_id=\"7\",sample_id=\"1\"} 0.002
datasetrt_slow_sample_seconds{cache_id=\"7\",sample_id=\"2\"} 1.5
datasetrt_damaged_samples{cache_id=\"7\"} 3
datasetrt_prefetch_samples_total{state=\"read_ahead\"} 5
datasetrt_prefetch_samples_total{state=\"failed\"} 0
datasetrt_payload_memory_limit_bytes 1000000000
";

    #[test]
    fn a_snapshot_says_what_happened() {
        let now = Metrics::parse(TEXT).unwrap();
        let text = render("/mnt/data", &now, None, Size::UNBOUNDED).join("\n");
        for line in [
            "/mnt/data: 2 caches, 128 samples, up ",
            "rates since the start",
            "memory: 0 B in use by the daemon; 0 B of 1.00 GB for decoded samples",
            "prefetch: 0 pending, 0 B ready; 5 read ahead\n",
            "damaged samples: 3 (",
            "    1.5 s  samples/7/2\n    2.0 ms  samples/7/1",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
        let words = |start: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.starts_with(start)).unwrap();
            line.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(
            words("read ")[2..],
            ["2,000", "5.0", "us", "8.0", "us", "8.0", "us"]
        );
        assert_eq!(words("open ")[2..], ["1", "-", "-", "-"]);
        assert_eq!(words("requests")[2], "3,001");
        assert!(!text.contains("internal errors"));
    }

    #[test]
    fn lines_fit_the_terminal() {
        let now = Metrics::parse(TEXT).unwrap();
        let size = Size {
            columns: 20,
            rows: 5,
        };
        let lines = render("/mnt/d\u{e9}j\u{e0}-vu-and-more", &now, Some(&now), size);
        assert_eq!(lines.len(), 5);
        assert!(lines.iter().all(|line| line.chars().count() <= 20));
    }

    #[test]
    fn numbers_are_short() {
        for (seconds, text) in [
            (0.0, "0.0 us"),
            (12.34e-6, "12.3 us"),
            (123.4e-6, "123 us"),
            (0.0041, "4.1 ms"),
            (8.4, "8.4 s"),
            (f64::INFINITY, "over 8 s"),
        ] {
            assert_eq!(time(seconds), text);
        }
        assert_eq!(
            [whole(0.0), whole(0.25), whole(3.0), whole(1234.5)],
            ["0", "0.2", "3", "1,235"]
        );
        assert_eq!(
            [duration(3723.9), duration(90_061.0)],
            ["1:02:03", "1 d 1:01:01"]
        );
    }
}
