//! `/.control/log` and `/.control/metrics`.

use std::sync::Arc;
use std::time::Duration;

use datasetrt::vfs::{Ino, LogLines, Request, Vfs, VfsOptions};

use crate::common::fixture::Fixture;
use crate::metrics::{self, Values};
use crate::{look, read, read_node, text, tree_of, tree_with};

#[test]
fn the_log_shows_the_last_lines_as_they_are_noted() {
    let cache = Fixture::tiny().v2().build();
    let log = Arc::new(LogLines::default());
    let options = VfsOptions {
        log: Arc::clone(&log),
        ..VfsOptions::default()
    };
    let vfs = tree_with(&[&cache], options);
    let log_text = || text(&vfs, ".control/log");
    assert_eq!(log_text(), "");
    log.note("first");
    let first = look(&vfs, ".control/log").unwrap();
    assert_eq!(log_text(), "first\n");
    log.note("second");
    assert_eq!(log_text(), "first\nsecond\n", "at once");
    let second = look(&vfs, ".control/log").unwrap();
    assert_eq!(second.ino, first.ino, "who follows it has the same file");
    assert!(second.mtime > first.mtime);
    assert_eq!(read_node(&vfs, second).unwrap(), b"first\nsecond\n");
    let long = "x".repeat(4000);
    (0..1200).for_each(|n| log.note(&format!("line {n} {long}")));
    let anew = look(&vfs, ".control/log").unwrap();
    assert_ne!(anew.ino, first.ino, "it has started anew");
    assert!(log_text().starts_with("line ") && log_text().len() > 200_000);
    assert!(log_text().ends_with(&format!("line 1199 {long}\n")));
    let mut end = vec![0; 5000];
    let whole = vfs.getattr(first.ino).unwrap().size;
    let read = vfs.read(first.ino, whole - 4011, &mut end).unwrap();
    assert_eq!(end[..read], *format!("line 1199 {long}\n").as_bytes());
}

fn values(vfs: &Vfs) -> Values {
    let text = text(vfs, ".control/metrics");
    metrics::assert_histograms_are_whole(&text);
    metrics::parse(&text)
}

#[test]
fn the_metrics_count_requests_bytes_decoding_and_damage() {
    let packed = Fixture::tiny().v2().lz4().build();
    packed.flip(&packed.shard_file(0), packed.row(2).offset as i64 + 9, 1);
    let vfs = tree_of(&[&packed]);
    for micros in [1, 3, 5000] {
        vfs.counters().note(Request::Read);
        vfs.note_time(Request::Read, Ino::ROOT, Duration::from_micros(micros));
    }
    vfs.counters().note(Request::Open);
    let slow = look(&vfs, "samples/0/1").unwrap();
    vfs.note_time(Request::Read, slow.ino, Duration::from_millis(1500));
    let bytes = read(&vfs, "samples/0/1").unwrap().len();
    read(&vfs, "samples/0/2").unwrap_err();
    let found = values(&vfs);
    let expect = |name: &str, value: f64| assert_eq!(found.get(name), Some(&value), "{name}");
    expect("datasetrt_caches", 1.0);
    expect("datasetrt_samples", 3.0);
    expect("datasetrt_requests_total{operation=\"read\"}", 3.0);
    expect("datasetrt_requests_total{operation=\"open\"}", 1.0);
    let reads =
        |le: &str| format!("datasetrt_request_seconds_bucket{{operation=\"read\",le=\"{le}\"}}");
    expect(&reads("0.000001000"), 1.0);
    expect(&reads("0.000002000"), 1.0);
    expect(&reads("0.000004000"), 2.0);
    expect(&reads("0.008192000"), 3.0);
    expect(&reads("+Inf"), 4.0);
    expect(
        "datasetrt_request_seconds_sum{operation=\"read\"}",
        1.505_004,
    );
    assert!(!found.contains_key("datasetrt_request_seconds_count{operation=\"open\"}"));
    expect(
        "datasetrt_slow_sample_seconds{cache_id=\"0\",sample_id=\"1\"}",
        1.5,
    );
    expect("datasetrt_read_bytes_total", bytes as f64);
    expect("datasetrt_payloads_decoded_total", 1.0);
    assert!(found["datasetrt_decode_seconds_total"] > 0.0);
    expect("datasetrt_damaged_samples{cache_id=\"0\"}", 1.0);
    expect("datasetrt_payload_memory_limit_bytes", f64::from(1 << 30));
    assert!(found["process_resident_memory_bytes"] > 1e6);
    assert!(found["process_start_time_seconds"] > 1.7e9);
}

#[test]
fn pieces_of_a_decoded_sample_are_hits() {
    let payload = crate::common::noise::noise(100_000, 1);
    let cache = Fixture::new().v2().lz4().payloads([&payload]).build();
    let vfs = tree_of(&[&cache]);
    let ino = look(&vfs, "samples/0/0").unwrap().ino;
    for n in 0..10 {
        let found = crate::piece(&vfs, ino, n * 10_000, 10_000).unwrap();
        assert!(found == payload[n as usize * 10_000..][..10_000]);
    }
    let counters = vfs.counters();
    assert_eq!(
        (counters.payloads_decoded(), counters.payload_hits()),
        (1, 9)
    );
}
