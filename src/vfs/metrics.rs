//! The text of `/.control/metrics`: what Prometheus and `datasetrt top` read.

use std::fmt::{self, Display, Write};
use std::time::SystemTime;

use super::Vfs;
use super::counters::{Latency, Request, TIMES};
use super::payloads::Place;
use crate::storage;

/// A text in the exposition format of Prometheus, version 0.0.4.
#[derive(Default)]
struct Metrics(String);

impl Metrics {
    /// Begins a metric.
    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a text never fails.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// One value of the metric, with its labels in braces or none.
    fn value(&mut self, name: impl Display, value: impl Display) {
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.begin(name, "counter", help);
        self.value(name, value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.begin(name, "gauge", help);
        self.value(name, value);
    }

    fn histogram(&mut self, name: &str, operation: &str, latency: &Latency) {
        let mut count = 0;
        for (n, bucket) in latency.buckets.iter().enumerate() {
            count += bucket;
            let bound = Bound(n);
            let labels = format_args!("operation=\"{operation}\",le=\"{bound}\"");
            self.value(format_args!("{name}_bucket{{{labels}}}"), count);
        }
        let labels = format_args!("operation=\"{operation}\"");
        self.value(
            format_args!("{name}_sum{{{labels}}}"),
            seconds(latency.nanos),
        );
        self.value(format_args!("{name}_count{{{labels}}}"), count);
    }
}

/// The upper bound of a bucket of times, in seconds.
struct Bound(usize);

impl Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 == TIMES - 1 {
            true => f.write_str("+Inf"),
            false => write!(f, "{}", seconds(1000 << self.0)),
        }
    }
}

/// Nanoseconds as seconds, exactly.
fn seconds(nanos: u64) -> impl Display {
    let (whole, part) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    format!("{whole}.{part:09}")
}

impl Vfs {
    /// All metrics, described in docs/semantics.md.
    pub(super) fn metrics_text(&self) -> Vec<u8> {
        let mut out = Metrics::default();
        let version = env!("CARGO_PKG_VERSION");
        out.begin("datasetrt_build_info", "gauge", "Version of the mount.");
        out.value(
            format_args!("datasetrt_build_info{{version=\"{version}\"}}"),
            1,
        );
        let samples: u64 = self.caches.iter().map(|m| m.cache().sample_count()).sum();
        out.gauge("datasetrt_caches", "Caches mounted.", self.caches.len());
        out.gauge("datasetrt_samples", "Samples mounted.", samples);
        self.requests(&mut out);
        self.payload_metrics(&mut out);
        self.prefetch_metrics(&mut out);
        self.damage_metrics(&mut out);
        self.tamper_metrics(&mut out);
        self.process_metrics(&mut out);
        out.0.into_bytes()
    }

    fn requests(&self, out: &mut Metrics) {
        // Only what was asked for: most kinds never are.
        let asked = |request: &Request| self.counters.requests(*request) > 0;
        let requests: Vec<_> = Request::ALL.into_iter().filter(asked).collect();
        let name = "datasetrt_requests_total";
        out.begin(name, "counter", "Requests of the kernel.");
        for request in &requests {
            let labels = format_args!("{name}{{operation=\"{}\"}}", request.name());
            out.value(labels, self.counters.requests(*request));
        }
        let name = "datasetrt_request_seconds";
        let help = "Time to answer a request; those that need no look at anything are not timed.";
        out.begin(name, "histogram", help);
        for request in &requests {
            let latency = self.counters.latency(*request);
            if latency.buckets.iter().any(|count| *count > 0) {
                out.histogram(name, request.name(), &latency);
            }
        }
        let name = "datasetrt_slow_sample_seconds";
        out.begin(name, "gauge", "The slowest reads of the last ten minutes.");
        for read in self.slow.listed() {
            let (slot, sample) = read.sample;
            if let Some(mounted) = self.at_slot(slot) {
                let id = mounted.entry.cache_id;
                let labels = format_args!("{{cache_id=\"{id}\",sample_id=\"{sample}\"}}");
                out.value(format_args!("{name}{labels}"), read.took.as_secs_f64());
            }
        }
        let panics = self.counters.panics();
        out.counter("datasetrt_panics_total", "Requests that panicked.", panics);
    }

    fn payload_metrics(&self, out: &mut Metrics) {
        let counters = &self.counters;
        let help = "Bytes of samples given to the kernel.";
        out.counter("datasetrt_read_bytes_total", help, counters.bytes_read());
        let help = "Compressed payloads decoded.";
        out.counter(
            "datasetrt_payloads_decoded_total",
            help,
            counters.payloads_decoded(),
        );
        let help = "Time spent decoding, of all threads together.";
        let time = counters.decode_time().as_secs_f64();
        out.counter("datasetrt_decode_seconds_total", help, time);
        let help = "Reads that found their payload decoded.";
        out.counter(
            "datasetrt_payload_hits_total",
            help,
            counters.payload_hits(),
        );
        let help = "Memory of decoded payloads.";
        let held = self.payloads.held(Place::Memory);
        out.gauge("datasetrt_payload_memory_bytes", help, held);
        let help = "The most that decoded payloads may take (--cache-memory).";
        out.gauge(
            "datasetrt_payload_memory_limit_bytes",
            help,
            self.payloads.budget(Place::Memory),
        );
        let help = "Temporary files of samples and tables.";
        let held = self.payloads.held(Place::Disk);
        out.gauge("datasetrt_temp_disk_bytes", help, held);
        let help = "The most that temporary files may take (--temp-disk).";
        let budget = self.payloads.budget(Place::Disk);
        out.gauge("datasetrt_temp_disk_limit_bytes", help, budget);
        let help = "Names of files in views made of metadata.";
        out.counter("datasetrt_names_made_total", help, counters.names_made());
    }

    fn prefetch_metrics(&self, out: &mut Metrics) {
        let progress = self.prefetch.progress();
        let name = "datasetrt_prefetch_samples_total";
        out.begin(
            name,
            "counter",
            "Samples asked for through .control/prefetch.",
        );
        for (state, count) in progress.totals() {
            out.value(format_args!("{name}{{state=\"{state}\"}}"), count);
        }
        let help = "Samples that wait to be read ahead.";
        out.gauge("datasetrt_prefetch_pending", help, progress.pending);
        let help = "Bytes that were read ahead and not read yet.";
        out.gauge("datasetrt_prefetch_ahead_bytes", help, progress.ahead_bytes);
    }

    fn damage_metrics(&self, out: &mut Metrics) {
        let name = "datasetrt_damaged_samples";
        out.begin(name, "gauge", "Samples that cannot be served.");
        for mounted in self.caches.iter() {
            let id = mounted.entry.cache_id;
            let count = self.damage.count(mounted.slot());
            out.value(format_args!("{name}{{cache_id=\"{id}\"}}"), count);
        }
        let help = "Failed reads of samples that the list of damage had no room for.";
        out.counter(
            "datasetrt_damaged_unlisted_total",
            help,
            self.damage.unlisted(),
        );
    }

    fn tamper_metrics(&self, out: &mut Metrics) {
        let help = "Writes to files that never change, refused.";
        out.counter(
            "datasetrt_writes_refused_total",
            help,
            self.tamper.refused(),
        );
    }

    fn process_metrics(&self, out: &mut Metrics) {
        let started = self.started.duration_since(SystemTime::UNIX_EPOCH);
        let started = started.unwrap_or_default().as_secs_f64();
        let help = "When the mount started, in seconds since 1970.";
        out.gauge("process_start_time_seconds", help, started);
        if let Some(bytes) = storage::resident_memory() {
            let help = "Memory of the daemon, with the pages of files that it has mapped.";
            out.gauge("process_resident_memory_bytes", help, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        assert_eq!(seconds(1000).to_string(), "0.000001000");
        assert_eq!(seconds(61_000_000_001).to_string(), "61.000000001");
        assert_eq!(Bound(0).to_string(), "0.000001000");
        assert_eq!(Bound(TIMES - 1).to_string(), "+Inf");
    }
}
