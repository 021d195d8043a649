//! `datasetrt info`: what caches are and what their samples are like.

mod charts;
mod json;
mod stats;
mod svg;
mod text;

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use super::cache_list::CacheList;
use super::output::{plain, written};
use super::tool::PROGRAM;
use super::{EXIT_REFUSED, refuse};
use crate::cache::Cache;
use crate::dataset;
use crate::error::{Error, Result};
use stats::Stats;

/// Tell what caches are: identity, sizes, fields and their values
///
/// Reads metadata.arrow and the header of each record, no payloads. Values of a field are counted
/// as long as it has at most 65,536 distinct ones.
///
/// Exit status: 0 good; 1 a cache is refused or the size of a sample cannot be known; 2 wrong usage.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    caches: CacheList,
    /// Print one JSON object with the list `caches`
    #[arg(long)]
    json: bool,
    /// Also draw the sizes of the samples and the counts of their labels (field `label`, or the
    /// text field with the fewest distinct values)
    #[arg(long, value_name = "FILE.svg", conflicts_with = "quick")]
    plot: Option<PathBuf>,
    /// Tell only what the manifest says: no sizes of samples, no values
    #[arg(long)]
    quick: bool,
}

/// One cache and what is known of it.
struct CacheInfo {
    cache: Arc<Cache>,
    cache_id: u64,
    /// Bytes of all shards.
    stored_len: u64,
    /// `None` when only the manifest was asked for.
    stats: Option<Stats>,
}

impl Args {
    /// Runs the command.
    #[must_use]
    pub fn run(self) -> ExitCode {
        match self.caches.expand().and_then(|paths| self.tell(&paths)) {
            Ok(code) => code,
            Err(error) => refuse(PROGRAM, &error.chain(), false),
        }
    }

    fn tell(&self, paths: &[PathBuf]) -> Result<ExitCode> {
        let mut good = true;
        let mut infos = Vec::new();
        for opened in dataset::open_each(paths) {
            let info = opened.and_then(|entry| self.look(&entry));
            match info {
                Ok(info) => infos.push(info),
                Err(error) => {
                    refuse(PROGRAM, &error.chain(), false);
                    good = false;
                }
            }
        }
        for info in &infos {
            let damaged = info.stats.as_ref().map_or(0, |stats| stats.sizes.damaged);
            if damaged > 0 {
                let reason = format!(
                    "{}: {damaged} damaged samples: `datasetrt verify` lists them",
                    plain(&info.cache.dir().to_string_lossy())
                );
                refuse(PROGRAM, &reason, false);
                good = false;
            }
        }
        if let Some(path) = &self.plot {
            let drawing = charts::draw(&infos);
            fs::write(path, drawing)
                .map_err(|source| Error::io(path, "write the drawing", source))?;
        }
        let text = match self.json {
            true => json::of(&infos),
            false => text::of(&infos),
        };
        let mut out = io::stdout();
        let result = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        let code = match good {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(EXIT_REFUSED),
        };
        Ok(written(PROGRAM, result, code))
    }

    fn look(&self, entry: &dataset::Entry) -> Result<CacheInfo, Error> {
        let cache = Arc::clone(&entry.cache);
        let shards = cache.manifest().shards.iter();
        Ok(CacheInfo {
            cache_id: entry.cache_id,
            stored_len: shards.fold(0, |sum, shard| shard.byte_len.saturating_add(sum)),
            stats: match self.quick {
                true => None,
                false => Some(Stats::gather(&cache)?),
            },
            cache,
        })
    }
}

impl CacheInfo {
    /// How many times larger the payloads are than the shards.
    fn ratio(&self) -> Option<f64> {
        // Shown with two digits.
        #[allow(clippy::cast_precision_loss)]
        let (decoded, stored) = (
            self.cache.manifest().decoded_len() as f64,
            self.stored_len as f64,
        );
        (stored > 0.0).then(|| decoded / stored)
    }

    /// Names of the compressions of the shards, each once.
    fn compressions(&self) -> Vec<&'static str> {
        let shards = self.cache.manifest().shards.iter();
        let mut names: Vec<_> = shards.map(|shard| shard.compression.name()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// How the identity came about.
    fn id_source(&self) -> &'static str {
        match self.cache.manifest().cache_id {
            Some(_) => "stored",
            None => "position",
        }
    }
}
