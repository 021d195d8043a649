//! What the mount has done, in numbers that only grow.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// A request of the kernel, by name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Request {
    /// Name to node.
    Lookup,
    /// Attributes of a node.
    Getattr,
    /// Change of attributes.
    Setattr,
    /// Target of a link.
    Readlink,
    /// Opening a file; refused once for the life of the mount.
    Open,
    /// Bytes of a file.
    Read,
    /// Bytes for a file.
    Write,
    /// Close of a file; refused once for the life of the mount.
    Flush,
    /// Opening a directory.
    Opendir,
    /// Names of a directory.
    Readdir,
    /// Names and attributes of a directory.
    Readdirplus,
    /// Closing a directory.
    Releasedir,
    /// Capacity.
    Statfs,
    /// Extended attributes.
    Xattr,
    /// Permission check.
    Access,
    /// Device control.
    Ioctl,
    /// Anything that would change the tree.
    Change,
    /// The kernel drops an inode; it waits for no answer.
    Forget,
    /// Everything else.
    Other,
}

impl Request {
    /// All requests, in the order in which they are shown.
    pub const ALL: [Self; 19] = [
        Self::Lookup,
        Self::Getattr,
        Self::Setattr,
        Self::Readlink,
        Self::Open,
        Self::Read,
        Self::Write,
        Self::Flush,
        Self::Opendir,
        Self::Readdir,
        Self::Readdirplus,
        Self::Releasedir,
        Self::Statfs,
        Self::Xattr,
        Self::Access,
        Self::Ioctl,
        Self::Change,
        Self::Forget,
        Self::Other,
    ];

    /// Its name in `/.control/status`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Getattr => "getattr",
            Self::Setattr => "setattr",
            Self::Readlink => "readlink",
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Opendir => "opendir",
            Self::Readdir => "readdir",
            Self::Readdirplus => "readdirplus",
            Self::Releasedir => "releasedir",
            Self::Statfs => "statfs",
            Self::Xattr => "xattr",
            Self::Access => "access",
            Self::Ioctl => "ioctl",
            Self::Change => "change",
            Self::Forget => "forget",
            Self::Other => "other",
        }
    }
}

/// Sets of counters; each thread adds to one of them, so that event threads do not wait for each other's
/// cache lines. There are as many as threads that serve at once, or more.
const SHARDS: usize = 32;
/// Upper bounds of the times of requests: 1, 2, 4, ... microseconds, and what took longer.
pub(super) const TIMES: usize = 25;

/// The counters that some threads add to.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    requests: [AtomicU64; Request::ALL.len()],
    times: [Times; Request::ALL.len()],
    bytes_read: AtomicU64,
    payloads_decoded: AtomicU64,
    decode_nanos: AtomicU64,
    payload_hits: AtomicU64,
    names_made: AtomicU64,
    panics: AtomicU64,
}

/// How long requests of one kind took.
#[derive(Debug, Default)]
struct Times {
    /// Requests by time, each in one bucket only.
    buckets: [AtomicU64; TIMES],
    nanos: AtomicU64,
}

/// [`Times`] of all threads together.
#[derive(Clone, Debug, Default)]
pub(super) struct Latency {
    /// Requests that took at most 2^n microseconds and more than half of that; the last bucket has
    /// all that took longer.
    pub(super) buckets: [u64; TIMES],
    /// Time of all of them, in nanoseconds.
    pub(super) nanos: u64,
}

/// Counters of one mount.
#[derive(Debug)]
pub struct Counters {
    shards: Box<[Shard]>,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
        }
    }
}

/// Which shard this thread adds to: threads get them in turn as they start to count.
fn own_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    OWN.try_with(|own| *own).unwrap_or(0)
}

impl Counters {
    fn add(&self, counter: impl FnOnce(&Shard) -> Option<&AtomicU64>, n: u64) {
        if let Some(counter) = self.shards.get(own_shard()).and_then(counter) {
            counter.fetch_add(n, Ordering::Relaxed);
        }
    }

    fn sum(&self, counter: impl Fn(&Shard) -> Option<&AtomicU64>) -> u64 {
        let counters = self.shards.iter().filter_map(counter);
        counters.map(|n| n.load(Ordering::Relaxed)).sum()
    }

    /// Notes a request.
    pub fn note(&self, request: Request) {
        self.add(|shard| shard.requests.get(request as usize), 1);
    }

    /// How many requests of this kind there were.
    #[must_use]
    pub fn requests(&self, request: Request) -> u64 {
        self.sum(|shard| shard.requests.get(request as usize))
    }

    /// Notes how long a request took.
    pub(super) fn note_time(&self, request: Request, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.add(
            |shard| {
                shard
                    .times
                    .get(request as usize)?
                    .buckets
                    .get(bucket_of(nanos))
            },
            1,
        );
        self.add(
            |shard| shard.times.get(request as usize).map(|times| &times.nanos),
            nanos,
        );
    }

    /// How long requests of this kind took.
    pub(super) fn latency(&self, request: Request) -> Latency {
        let mut latency = Latency::default();
        for times in self
            .shards
            .iter()
            .filter_map(|s| s.times.get(request as usize))
        {
            for (sum, bucket) in latency.buckets.iter_mut().zip(&times.buckets) {
                *sum += bucket.load(Ordering::Relaxed);
            }
            latency.nanos += times.nanos.load(Ordering::Relaxed);
        }
        latency
    }

    /// Notes a request that panicked.
    pub fn note_panic(&self) {
        self.add(|shard| Some(&shard.panics), 1);
    }

    /// How many requests panicked.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.sum(|shard| Some(&shard.panics))
    }

    pub(super) fn note_read(&self, bytes: u64) {
        self.add(|shard| Some(&shard.bytes_read), bytes);
    }

    /// Bytes of samples given out.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.sum(|shard| Some(&shard.bytes_read))
    }

    pub(super) fn note_names(&self, names: u64) {
        self.add(|shard| Some(&shard.names_made), names);
    }

    /// Names of files in views made of metadata.
    #[must_use]
    pub fn names_made(&self) -> u64 {
        self.sum(|shard| Some(&shard.names_made))
    }

    /// Notes a compressed payload that was decoded, and how long that took.
    pub(super) fn note_decoded(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.add(|shard| Some(&shard.payloads_decoded), 1);
        self.add(|shard| Some(&shard.decode_nanos), nanos);
    }

    /// Compressed payloads decoded.
    #[must_use]
    pub fn payloads_decoded(&self) -> u64 {
        self.sum(|shard| Some(&shard.payloads_decoded))
    }

    /// Time that decoding took, of all threads together.
    #[must_use]
    pub fn decode_time(&self) -> Duration {
        Duration::from_nanos(self.sum(|shard| Some(&shard.decode_nanos)))
    }

    pub(super) fn note_payload_hit(&self) {
        self.add(|shard| Some(&shard.payload_hits), 1);
    }

    /// Reads that found their payload decoded.
    #[must_use]
    pub fn payload_hits(&self) -> u64 {
        self.sum(|shard| Some(&shard.payload_hits))
    }
}

/// The bucket of a time in nanoseconds.
fn bucket_of(nanos: u64) -> usize {
    let above = nanos.saturating_sub(1) / 1000;
    let bits = u64::BITS - above.leading_zeros();
    usize::try_from(bits).map_or(TIMES - 1, |bits| bits.min(TIMES - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_a_counter_of_its_own() {
        let counters = Counters::default();
        for (n, request) in Request::ALL.into_iter().enumerate() {
            assert_eq!(request as usize, n);
            counters.note(request);
            assert_eq!(counters.requests(request), 1);
        }
    }

    #[test]
    fn threads_that_count_are_summed() {
        let counters = Counters::default();
        std::thread::scope(|scope| {
            for _ in 0..SHARDS + 3 {
                scope.spawn(|| {
                    counters.note(Request::Read);
                    counters.note_read(10);
                    counters.note_time(Request::Read, Duration::from_micros(3));
                });
            }
        });
        let threads = SHARDS as u64 + 3;
        assert_eq!(counters.requests(Request::Read), threads);
        assert_eq!(counters.bytes_read(), threads * 10);
        let latency = counters.latency(Request::Read);
        assert_eq!(latency.nanos, threads * 3000);
        assert_eq!(latency.buckets[2], threads);
        assert_eq!(latency.buckets.iter().sum::<u64>(), threads);
    }

    #[test]
    fn a_bucket_holds_what_took_no_longer_than_its_bound() {
        for (nanos, bucket) in [
            (0, 0),
            (1000, 0),
            (1001, 1),
            (2000, 1),
            (2001, 2),
            (4000, 2),
        ] {
            assert_eq!(bucket_of(nanos), bucket, "{nanos} ns");
        }
        let bound = |bucket: usize| 1000_u64 << bucket;
        for bucket in 0..TIMES - 1 {
            assert_eq!(bucket_of(bound(bucket)), bucket);
            assert_eq!(bucket_of(bound(bucket) + 1), bucket + 1);
        }
        assert_eq!(bucket_of(u64::MAX), TIMES - 1);
    }
}
