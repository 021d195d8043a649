//! `datasetrt cat`: one sample to stdout.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use super::output::written;
use super::refuse;
use super::tool::PROGRAM;
use crate::cache::{Cache, Record};
use crate::error::{Error, Result};
use crate::format::record::Compression;
use crate::storage::OpenFileLimit;

/// Uncompressed payloads are read in pieces of this many bytes.
const PIECE: u64 = 1 << 20;

/// Print the payload of one sample, whole or not at all
///
/// A damaged sample prints nothing and exits with 1. A reader that goes away early is no error.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The cache folder
    cache: PathBuf,
    /// The sample's number, from 0 on
    sample: u64,
    /// Print the sample's metadata as one line of JSON instead
    #[arg(long)]
    metadata: bool,
}

impl Args {
    /// Runs the command.
    #[must_use]
    pub fn run(self) -> ExitCode {
        let opened = Cache::open(&self.cache, &OpenFileLimit::for_process());
        let done = opened.and_then(|cache| match self.metadata {
            true => metadata(&cache, self.sample),
            false => payload(&cache, self.sample),
        });
        match done {
            Ok(result) => written(PROGRAM, result, ExitCode::SUCCESS),
            Err(error) => refuse(PROGRAM, &error.chain(), false),
        }
    }
}

/// Writes the payload. The outer result is the cache's, the inner one stdout's.
fn payload(cache: &Cache, sample: u64) -> Result<io::Result<()>> {
    let wanted = match cache.compression(sample)? {
        Compression::None => PIECE,
        Compression::Lz4 => u64::MAX,
    };
    cache.with_record(sample, wanted, |record| match record.compression() {
        Compression::None => pieces(record),
        Compression::Lz4 => {
            let mut payload = memory(record, record.decoded_len())?;
            record.decode(&mut payload)?;
            Ok(print(&payload))
        }
    })?
}

/// Writes an uncompressed payload piece by piece. Up to one piece it is whole or nothing; of a
/// longer one, a disk that fails in the middle leaves the beginning on stdout.
fn pieces(record: &Record<'_>) -> Result<io::Result<()>> {
    let len = record.decoded_len();
    let mut buffer = memory(record, len.min(PIECE))?;
    let mut offset = 0;
    while offset < len {
        let piece = usize::try_from(PIECE.min(len - offset)).unwrap_or(0);
        let piece = buffer.get_mut(..piece).unwrap_or_default();
        record.read(offset, piece)?;
        if let Err(error) = io::stdout().write_all(piece) {
            return Ok(Err(error));
        }
        offset += piece.len() as u64;
    }
    Ok(io::stdout().flush())
}

/// Zeroed memory that may not be there, which is an error and not an abort.
fn memory(record: &Record<'_>, len: u64) -> Result<Vec<u8>> {
    let refused = || {
        Error::refused(
            record.path(),
            format!("{len} bytes of memory are needed, and there are not so many"),
        )
    };
    let len = usize::try_from(len).map_err(|_| refused())?;
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(len).map_err(|_| refused())?;
    buffer.extend(std::iter::repeat_n(0, len));
    Ok(buffer)
}

fn metadata(cache: &Cache, sample: u64) -> Result<io::Result<()>> {
    let mut json = Vec::new();
    cache.write_metadata_json(sample, &mut json)?;
    // A sample that the mount refuses is refused here too.
    cache.with_record(sample, 0, |_| ())?;
    json.push(b'\n');
    Ok(print(&json))
}

fn print(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(bytes).and_then(|()| out.flush())
}
