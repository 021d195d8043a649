//! The daemon's own counters, as they are at a moment.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;

use crate::common::fixture::{Fixture, TestCache};
use crate::live::{Live, Place};

/// Requests by kind; kinds that did not occur are left out.
pub(crate) type Requests = BTreeMap<String, u64>;

/// A mount whose counters can be read at any moment. A status is up to a second old unless damage
/// was found since, so damage is what we find before each look: samples of a cache of its own
/// whose length cannot be known, one for each look.
pub(crate) struct Counted<'a> {
    live: &'a Live,
    used: Cell<usize>,
}

/// Position of the cache of damaged samples: the first of the list.
const MARKS: usize = 0;

/// The cache of damaged samples.
pub(crate) fn marks(place: &Place) -> TestCache {
    let payloads = (0..60_u32).map(|n| n.to_string());
    let cache = place.cache("marks", Fixture::new().v2().lz4().payloads(payloads));
    let rows: Vec<_> = (0..60).map(|sample| cache.row(sample)).collect();
    cache.edit(&cache.shard_file(0), |bytes| {
        for row in rows {
            let record = &mut bytes[row.offset as usize..][..row.length as usize];
            let json = u64::from_le_bytes(record[..8].try_into().unwrap()) as usize;
            record[8 + json..][..4].fill(0xFF);
        }
    });
    cache
}

impl<'a> Counted<'a> {
    /// Counts on `live`, whose first cache is [`marks`].
    pub(crate) fn new(live: &'a Live) -> Self {
        let counted = Self {
            live,
            used: Cell::new(0),
        };
        // The first of each kind asks for what the kernel then knows: folders, and that there is
        // no open, no flush and no extended attribute.
        counted.look();
        counted.look();
        let (first, second) = (counted.cost(|| ()), counted.cost(|| ()));
        assert_eq!((first, second), (Requests::new(), Requests::new()));
        counted
    }

    /// The counters as they are now.
    fn look(&self) -> Requests {
        let mark = self.used.replace(self.used.get() + 1);
        fs::metadata(self.live.path(&format!("samples/{MARKS}/{mark}"))).unwrap_err();
        let status = self.live.status();
        let requests = status["counters"]["requests"].as_object().unwrap();
        // The kernel drops inodes when it likes, and nobody waits for that.
        requests
            .iter()
            .filter(|(name, _)| *name != "forget")
            .map(|(name, n)| (name.clone(), n.as_u64().unwrap()))
            .collect()
    }

    /// What `work` costs.
    pub(crate) fn cost(&self, work: impl FnOnce()) -> Requests {
        let (start, idle) = (self.look(), self.look());
        work();
        let end = self.look();
        end.iter()
            .map(|(name, n)| {
                let looking = idle[name] - start[name];
                (name.clone(), (n - idle[name]).saturating_sub(looking))
            })
            .filter(|(_, n)| *n > 0)
            .collect()
    }
}

/// These counts.
pub(crate) fn requests(counts: &[(&str, u64)]) -> Requests {
    counts
        .iter()
        .map(|(name, n)| ((*name).to_owned(), *n))
        .collect()
}
