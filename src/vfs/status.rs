//! The texts of `/.control/status` and `/.control/damaged`.

use std::time::SystemTime;

use serde_json::json;

use super::counters::Request;
use super::payloads::Place;
use super::{Mounted, Vfs};
use crate::cache::Level;
use crate::dataset::Validated;
use crate::error::{json_pretty, printable};

/// Changed shards that are named, of each cache.
const MOST_NAMED: usize = 1000;

impl Vfs {
    /// JSON, described in docs/semantics.md.
    pub(super) fn status_text(&self) -> Vec<u8> {
        let caches: Vec<_> = self
            .caches
            .iter()
            .map(|mounted| {
                let cache = &mounted.entry.cache;
                json!({
                    "folder": cache.dir().to_string_lossy(),
                    "cache_id": mounted.entry.cache_id,
                    "cache": mounted.entry.cache_id.to_string(),
                    "position": mounted.entry.position,
                    "source_name": cache.manifest().source_name,
                    "format_version": mounted.manifest_version().number(),
                    "samples": cache.sample_count(),
                    "decoded_bytes": cache.manifest().decoded_len(),
                    "validation": match mounted.entry.validated {
                        Validated::Structure => "structure",
                        Validated::OnAccess => "access",
                        Validated::Checksums => "checksums",
                        Validated::Receipt => "receipt",
                    },
                    "shards": cache.manifest().shards.len(),
                    "shards_checked_on_access": cache.shards_checked_on_access(),
                    "verified": verified(mounted),
                    "changed_shards": cache.changed_shards().take(MOST_NAMED).collect::<Vec<_>>(),
                    "damaged": self.damage.count(mounted.slot()),
                })
            })
            .collect();
        let requests: serde_json::Map<_, _> = Request::ALL
            .into_iter()
            .map(|request| {
                let count = self.counters.requests(request);
                (request.name().to_owned(), count.into())
            })
            .collect();
        let status = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "mountpoint": self.options.mountpoint.to_string_lossy(),
            "control_at": self.options.control_at.as_ref().map(|at| at.to_string_lossy()),
            "pid": std::process::id(),
            "skipped": self.skipped,
            "caches": caches,
            "views": self.views.status(),
            "slow_requests": self.slow_requests(),
            "counters": {
                "requests": requests,
                "bytes_read": self.counters.bytes_read(),
                "payloads_decoded": self.counters.payloads_decoded(),
                "payload_hits": self.counters.payload_hits(),
                "names_made": self.counters.names_made(),
                "panics": self.counters.panics(),
                "writes_refused": self.tamper.refused(),
            },
            "prefetch": self.prefetch_status(),
            "cache_memory": {
                "budget_bytes": self.payloads.budget(Place::Memory),
                "held_bytes": self.payloads.held(Place::Memory),
            },
            "temp_disk": {
                "budget_bytes": self.payloads.budget(Place::Disk),
                "held_bytes": self.payloads.held(Place::Disk),
            },
        });
        let mut text = json_pretty(&status);
        text.push('\n');
        text.into_bytes()
    }

    /// How far `/.control/prefetch` has come.
    fn prefetch_status(&self) -> serde_json::Value {
        let progress = self.prefetch.progress();
        let mut status = json!({
            "pending": progress.pending,
            "ahead_samples": progress.ahead,
            "ahead_bytes": progress.ahead_bytes,
        });
        if let Some(status) = status.as_object_mut() {
            let totals = progress.totals().into_iter();
            status.extend(totals.map(|(name, count)| (name.to_owned(), count.into())));
        }
        status
    }

    /// One line for each damaged sample: `<cache_id>/<sample_id>: <what is wrong>`.
    pub(super) fn damaged_text(&self) -> Vec<u8> {
        let mut text = String::new();
        self.damage.for_each(|slot, sample, message| {
            if let Some(mounted) = self.at_slot(slot) {
                let id = mounted.entry.cache_id;
                text.push_str(&format!("{id}/{sample}: {}\n", printable(message)));
            }
        });
        let unlisted = self.damage.unlisted();
        if unlisted > 0 {
            text.push_str(&format!("{unlisted} more failed reads are not listed\n"));
        }
        text.into_bytes()
    }
}

/// How far the checksums of a cache were compared, and when one was last found right.
fn verified(mounted: &Mounted) -> serde_json::Value {
    let cache = mounted.cache();
    let verified = cache.verified();
    let since_epoch =
        |at: SystemTime| Some(at.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs());
    json!({
        "level": match verified.level {
            Level::None => "none",
            Level::Structure => "structure",
            Level::Shards => "shards",
            Level::All => "all",
        },
        "shards": verified.shards,
        "of": cache.manifest().shards.len(),
        "at": verified.at.and_then(since_epoch),
    })
}
