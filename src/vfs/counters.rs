//! What the mount has done, in numbers that only grow.

use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Everything else.
    Other,
}

impl Request {
    /// All requests, in the order in which they are shown.
    pub const ALL: [Self; 18] = [
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
            Self::Other => "other",
        }
    }
}

/// A number on a cache line of its own, so that threads that count different things do not wait
/// for each other.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counter(AtomicU64);

/// Counters of one mount.
#[derive(Debug, Default)]
pub struct Counters {
    requests: [Counter; Request::ALL.len()],
    bytes_read: Counter,
    payloads_decoded: Counter,
    names_made: Counter,
    panics: Counter,
}

impl Counters {
    /// Notes a request.
    pub fn note(&self, request: Request) {
        if let Some(counter) = self.requests.get(request as usize) {
            counter.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many requests of this kind there were.
    #[must_use]
    pub fn requests(&self, request: Request) -> u64 {
        let counter = self.requests.get(request as usize);
        counter.map_or(0, |counter| counter.0.load(Ordering::Relaxed))
    }

    /// Notes a request that panicked.
    pub fn note_panic(&self) {
        self.panics.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many requests panicked.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.panics.0.load(Ordering::Relaxed)
    }

    pub(super) fn note_read(&self, bytes: u64) {
        self.bytes_read.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of samples given out.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.0.load(Ordering::Relaxed)
    }

    pub(super) fn note_names(&self, names: u64) {
        self.names_made.0.fetch_add(names, Ordering::Relaxed);
    }

    /// Names of files in views made of metadata.
    #[must_use]
    pub fn names_made(&self) -> u64 {
        self.names_made.0.load(Ordering::Relaxed)
    }

    pub(super) fn note_decoded(&self) {
        self.payloads_decoded.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Compressed payloads decoded.
    #[must_use]
    pub fn payloads_decoded(&self) -> u64 {
        self.payloads_decoded.0.load(Ordering::Relaxed)
    }
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
}
