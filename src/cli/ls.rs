//! `datasetrt ls`: the samples of a cache as a table, as lines of JSON, or as an Arrow file.

mod arrow;
mod json;
mod table;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::output::written;
use super::tool::PROGRAM;
use super::{EXIT_REFUSED, refuse};
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::parallel::in_parallel;
use crate::storage::{OpenFileLimit, with_window};

/// Samples whose records are looked at together, on all cores.
const BATCH: u64 = 1 << 14;
/// Samples that one core takes at once.
const PIECE: u64 = 1 << 8;

/// List the samples of a cache: number, size in bytes, metadata
///
/// A sample whose record contradicts its metadata is shown as damaged. Payloads are not decoded:
/// `datasetrt verify` does that.
///
/// Exit status: 0 good; 1 the cache is refused or a sample is damaged; 2 wrong usage.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The cache folder
    cache: PathBuf,
    /// Print one JSON object a line: `sample_id`, `size`, `metadata`, or `sample_id`, `damaged`
    #[arg(long)]
    json: bool,
    /// Write an Arrow IPC file with the columns `sample_id`, `size` and the metadata, `-` for
    /// stdout; damaged samples are left out, and named on stderr
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    arrow: Option<PathBuf>,
    /// Stop after the first N samples
    #[arg(long, value_name = "N")]
    head: Option<u64>,
}

/// Takes the samples of a cache one after another.
trait Listing {
    /// A sample and the length of its payload.
    ///
    /// # Errors
    /// The outer result is the cache's, the inner one that of writing.
    fn good(&mut self, cache: &Cache, sample: u64, size: u64) -> Result<io::Result<()>>;

    /// A damaged sample.
    ///
    /// # Errors
    /// As of writing.
    fn damaged(&mut self, sample: u64, reason: &str) -> io::Result<()>;

    /// The end.
    ///
    /// # Errors
    /// As of writing.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

impl Args {
    /// Runs the command.
    #[must_use]
    pub fn run(self) -> ExitCode {
        match self.list() {
            Ok(code) => code,
            Err(error) => refuse(PROGRAM, &error.chain(), false),
        }
    }

    fn list(&self) -> Result<ExitCode> {
        let cache = Cache::open(&self.cache, &OpenFileLimit::for_process())?;
        let count = cache.sample_count().min(self.head.unwrap_or(u64::MAX));
        let target = match &self.arrow {
            Some(path) if path != Path::new("-") => Some(path.as_path()),
            _ => None,
        };
        let out = output(target)?;
        let listing: io::Result<Box<dyn Listing>> = match (&self.arrow, self.json) {
            (Some(_), _) => arrow::Arrow::new(out, &cache).map(|listing| Box::new(listing) as _),
            (None, true) => Ok(Box::new(json::Lines::new(out))),
            (None, false) => Ok(Box::new(table::Table::new(out, &cache))),
        };
        let (damaged, result) = match listing {
            Ok(listing) => walk(&cache, count, listing)?,
            Err(error) => (0, Err(error)),
        };
        let code = match damaged {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::from(EXIT_REFUSED),
        };
        match (target, result) {
            (Some(path), Err(source)) => Err(Error::io(path, "write", source)),
            (_, result) => Ok(written(PROGRAM, result, code)),
        }
    }
}

fn output(target: Option<&Path>) -> Result<Box<dyn Write>> {
    match target {
        None => Ok(Box::new(BufWriter::new(io::stdout()))),
        Some(path) => match File::create(path) {
            Ok(file) => Ok(Box::new(BufWriter::new(file))),
            Err(source) => Err(Error::io(path, "create", source)),
        },
    }
}

/// Passes the first `count` samples to `listing`; gives the number of damaged ones and how writing
/// went.
fn walk(cache: &Cache, count: u64, mut listing: Box<dyn Listing>) -> Result<(u64, io::Result<()>)> {
    let mut damaged = 0;
    let mut start = 0;
    while start < count {
        let end = count.min(start + BATCH);
        let pieces = usize::try_from((end - start).div_ceil(PIECE)).unwrap_or(0);
        let sizes = in_parallel(pieces, |n| {
            let first = start + n as u64 * PIECE;
            let samples = first..end.min(first + PIECE);
            let size = |sample| cache.with_record(sample, 0, |record| record.decoded_len());
            with_window(|| samples.map(size).collect::<Vec<_>>())
        });
        for (sample, size) in (start..end).zip(sizes.into_iter().flatten()) {
            let result = match size {
                Ok(size) => listing.good(cache, sample, size)?,
                Err(error) => {
                    damaged += 1;
                    listing.damaged(sample, &error.chain())
                }
            };
            if result.is_err() {
                return Ok((damaged, result));
            }
        }
        start = end;
    }
    Ok((damaged, listing.finish()))
}
