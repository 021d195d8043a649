//! `/.control/log`, `/.control/metrics` and `/.control/prefetch` as programs meet them.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::common::fixture::Fixture;
use crate::common::mount::can_mount;
use crate::common::noise::noise;
use crate::live::{Live, Place, command, run, stdout};
use crate::metrics;

const COUNT: u64 = 200;
const LEN: usize = 3000;
const CONTROL: &str = ".control/prefetch";

fn fixture() -> Fixture {
    Fixture::new()
        .lz4()
        .cache_id(7)
        .payloads((0..COUNT).map(|n| noise(LEN, n)))
}

/// Waits until the progress is as `expected`, which is all that stands still.
fn until(live: &Live, expected: &Json) {
    let hangs = Instant::now() + Duration::from_secs(120);
    loop {
        let found = live.status()["prefetch"].clone();
        let expected = expected.as_object().unwrap();
        if expected.iter().all(|(key, value)| found[key] == *value) {
            return;
        }
        assert!(Instant::now() < hangs, "{found}, expected {expected:?}");
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_loader_reads_what_a_list_has_made_ready() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = place.cache("cache", fixture());
    let live = place.mount(&[&cache]);
    let samples: Vec<_> = (0..COUNT)
        .map(|n| live.path(&format!("samples/7/{n}")))
        .collect();
    // More than one write of any program, with lines cut anywhere.
    let lines: String = samples
        .iter()
        .map(|path| format!("{}\n", path.display()))
        .collect();
    let list = place.path().join("list");
    let times = 400_000 / lines.len() + 1;
    fs::write(&list, lines.repeat(times)).unwrap();
    let control = live.path(CONTROL);
    let (from, to) = (list.to_str().unwrap(), control.to_str().unwrap());
    let python = "import sys\nwith open(sys.argv[2], 'w') as f:\n    for line in open(sys.argv[1]): f.write(line)";
    let mut accepted = 0;
    for words in [
        &["sh", "-c", "cat \"$0\" > \"$1\"", from, to][..],
        &["sh", "-c", "cat \"$0\" >> \"$1\"", from, to],
        &["cp", from, to],
        &[
            "dd",
            "bs=5000",
            "status=none",
            &format!("if={from}"),
            &format!("of={to}"),
        ],
        &["python3", "-c", python, from, to],
    ] {
        stdout(&mut command(words));
        accepted += COUNT * times as u64;
        until(&live, &json!({"accepted": accepted, "pending": 0}));
        let said: Json = serde_json::from_str(&live.text(CONTROL)).unwrap();
        assert!(said["accepted"].as_u64().unwrap() > 0, "{words:?}: {said}");
    }
    for (n, sample) in samples.iter().enumerate() {
        assert!(fs::read(sample).unwrap() == noise(LEN, n as u64));
    }
    let metrics = metrics::parse(&live.text(".control/metrics"));
    // At the least those that were made ready a moment ago.
    assert!(metrics["datasetrt_payload_hits_total"] > 0.0, "{metrics:?}");
    assert!(metrics["datasetrt_prefetch_samples_total{state=\"used\"}"] > 0.0);
    assert_eq!(live.damaged(), [""; 0]);
    live.assert_sound();
}

#[test]
fn a_bad_list_is_an_error_of_write_itself() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = place.cache("cache", fixture());
    let live = place.mount(&[&cache]);
    let control = live.path(CONTROL);
    for list in ["7/200\n", "7/1\n8/1\n", "nonsense", "samples/7\n"] {
        let mut file = File::options().write(true).open(&control).unwrap();
        let error = file.write(list.as_bytes()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(22), "{list:?}");
        let said: Json = serde_json::from_str(&live.text(CONTROL)).unwrap();
        let line = list.trim_end().lines().last().unwrap();
        assert_eq!(said["refused"]["text"], line);
        assert!(live.text(".control/log").contains(line), "it is logged too");
    }
    let shell = [
        "sh",
        "-c",
        "echo 7/1000 > \"$0\"",
        control.to_str().unwrap(),
    ];
    let output = run(&mut command(&shell), Duration::from_secs(60));
    assert!(!output.status.success());
    assert_eq!(live.status()["prefetch"]["accepted"], 0);
    live.assert_sound();
}

#[test]
fn the_metrics_agree_with_what_was_read() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = place.cache("cache", fixture());
    let live = place.mount(&[&cache]);
    for n in 0..COUNT {
        assert!(live.read(&format!("samples/7/{n}")).unwrap() == noise(LEN, n));
    }
    let open = File::open(live.path(".control/metrics")).unwrap();
    let len = open.metadata().unwrap().len() as usize;
    let mut text = vec![0; len];
    open.read_exact_at(&mut text, 0).unwrap();
    let text = String::from_utf8(text).unwrap();
    metrics::assert_histograms_are_whole(&text);
    let found = metrics::parse(&text);
    let reads = found["datasetrt_requests_total{operation=\"read\"}"];
    assert!(reads >= COUNT as f64);
    assert_eq!(
        found["datasetrt_request_seconds_count{operation=\"read\"}"],
        reads
    );
    assert!(found["datasetrt_request_seconds_count{operation=\"lookup\"}"] >= COUNT as f64);
    assert_eq!(
        found["datasetrt_read_bytes_total"],
        (COUNT as usize * LEN) as f64
    );
    assert_eq!(found["datasetrt_payloads_decoded_total"], COUNT as f64);
    assert_eq!(found["datasetrt_samples"], COUNT as f64);
    // The open text stays, whatever happens meanwhile.
    sleep(Duration::from_millis(1100));
    live.read("samples/7/0").unwrap();
    live.text(".control/metrics");
    let mut again = vec![0; len + 100];
    assert_eq!(open.read_at(&mut again, 0).unwrap(), len);
    assert!(again[..len] == *text.as_bytes());
    live.assert_sound();
}

#[test]
fn the_log_is_there_without_a_file() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = place.cache("cache", fixture());
    cache.flip(&cache.shard_file(0), cache.row(5).offset as i64 + 9, 1);
    let live = place.mount(&[&cache]);
    live.read("samples/7/5").unwrap_err();
    let log = live.text(".control/log");
    let lines: Vec<_> = log.lines().collect();
    assert!(lines.iter().all(|line| line.starts_with("20")), "{log}");
    assert!(
        lines.last().unwrap().contains("cache 7, sample 5: "),
        "{log}"
    );
    assert_eq!(log, live.log(), "the same as in the file");
}
