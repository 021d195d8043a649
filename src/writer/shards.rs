//! Shards being written: which record goes into which file, and the threads that hash and sync
//! them behind the writer's back.
//!
//! A new shard starts when the current one holds something and would exceed the limit; so a record
//! above the limit gets a shard of its own, and a shard may be filled exactly.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::encode::Lengths;
use super::queue::ByteQueue;
use super::streamed::Streamed;
use crate::error::{Error, Result};
use crate::format::digest::Hasher;
use crate::format::index::IndexRow;
use crate::format::manifest::{ShardEntry, ShardName};
use crate::format::record::Compression;
use crate::format::shard_file_name;
use crate::storage::{EarlySync, StagedFile};

/// Bytes that may wait for a hashing thread: enough to keep it busy.
const WAITING_BYTES: usize = 16 << 20;
/// A shard is synced each time that it has grown by this many bytes: the disk then works while
/// further samples are compressed.
const SYNC_EVERY: usize = 8 << 20;
/// More hashing threads than this cannot be fed by one writing thread.
const MOST_THREADS: usize = 4;

/// What the manifest will say of all shards.
pub(super) struct ShardWriter {
    dir: PathBuf,
    max_bytes: u64,
    compression: Compression,
    current: Option<OpenShard>,
    next: u64,
    sealer: Sealer,
}

struct OpenShard {
    file: StagedFile,
    number: u64,
    byte_len: u64,
    decoded_len: u64,
}

impl ShardWriter {
    pub(super) fn new(dir: PathBuf, max_bytes: u64, compression: Compression) -> Self {
        Self {
            dir,
            max_bytes,
            compression,
            current: None,
            next: 0,
            sealer: Sealer::new(),
        }
    }

    /// Writes the records in `bytes`, whose lengths are given, and tells `row` where each one went.
    pub(super) fn append(
        &mut self,
        bytes: &Arc<Vec<u8>>,
        lengths: &[Lengths],
        mut row: impl FnMut(IndexRow) -> Result<()>,
    ) -> Result<()> {
        let (mut start, mut end) = (0, 0);
        for lengths in lengths {
            let length = lengths.record as u64;
            let mut shard = match self.current.take() {
                Some(shard) if shard.byte_len + length <= self.max_bytes => shard,
                full => {
                    if let Some(mut full) = full {
                        self.write(&mut full, bytes, start..end)?;
                        self.seal(full)?;
                    }
                    start = end;
                    self.open()?
                }
            };
            row(IndexRow {
                shard: shard.number,
                offset: shard.byte_len,
                length,
            })?;
            shard.byte_len += length;
            shard.decoded_len += lengths.payload as u64;
            end += lengths.record;
            self.current = Some(shard);
        }
        if let Some(mut shard) = self.current.take() {
            self.write(&mut shard, bytes, start..end)?;
            self.current = Some(shard);
        }
        Ok(())
    }

    /// Writes the record of one long sample, piece by piece, and tells `row` where it went.
    pub(super) fn append_streamed(
        &mut self,
        sample: &Streamed,
        row: impl FnOnce(IndexRow) -> Result<()>,
    ) -> Result<()> {
        let length = sample.record_len();
        let mut shard = match self.current.take() {
            Some(shard) if shard.byte_len.saturating_add(length) <= self.max_bytes => shard,
            full => {
                full.map_or(Ok(()), |full| self.seal(full))?;
                self.open()?
            }
        };
        row(IndexRow {
            shard: shard.number,
            offset: shard.byte_len,
            length,
        })?;
        sample.pieces(|piece| {
            let range = 0..piece.len();
            self.write(&mut shard, &Arc::new(piece), range)
        })?;
        shard.byte_len += length;
        shard.decoded_len += sample.decoded_len;
        self.current = Some(shard);
        Ok(())
    }

    fn open(&mut self) -> Result<OpenShard> {
        let number = self.next;
        self.next += 1;
        let file = StagedFile::create(&self.dir.join(shard_file_name(number)))?;
        self.sealer.send(number, Job::Start(file.early_sync()?))?;
        Ok(OpenShard {
            file,
            number,
            byte_len: 0,
            decoded_len: 0,
        })
    }

    fn write(
        &mut self,
        shard: &mut OpenShard,
        bytes: &Arc<Vec<u8>>,
        range: Range<usize>,
    ) -> Result<()> {
        let piece = bytes.get(range.clone()).unwrap_or_default();
        if piece.is_empty() {
            return Ok(());
        }
        shard
            .file
            .write_all(piece)
            .map_err(|source| Error::io(shard.file.path(), "write", source))?;
        let bytes = Arc::clone(bytes);
        self.sealer.send(shard.number, Job::Hash { bytes, range })
    }

    fn seal(&mut self, shard: OpenShard) -> Result<()> {
        let name = shard_file_name(shard.number);
        let name = ShardName::new(name).map_err(|fault| fault.in_file(shard.file.path()))?;
        let job = Job::Seal {
            number: shard.number,
            name,
            decoded_len: shard.decoded_len,
            byte_len: shard.byte_len,
            compression: self.compression,
            file: shard.file,
        };
        self.sealer.send(shard.number, job)
    }

    /// Closes the last shard and waits until all are hashed and synced.
    pub(super) fn finish(mut self) -> Result<Vec<ShardEntry>> {
        if let Some(shard) = self.current.take() {
            self.seal(shard)?;
        }
        self.sealer.finish(&self.dir, self.next)
    }
}

enum Job {
    /// A new shard comes to hand.
    Start(EarlySync),
    /// The next bytes of the shard that this thread has at hand.
    Hash {
        bytes: Arc<Vec<u8>>,
        range: Range<usize>,
    },
    /// That shard is complete.
    Seal {
        number: u64,
        name: ShardName,
        decoded_len: u64,
        byte_len: u64,
        compression: Compression,
        file: StagedFile,
    },
}

type Sealed = Result<(u64, ShardEntry)>;

/// Threads that take turns at shards: hash what was written, then sync the file.
struct Sealer {
    threads: Vec<(Arc<ByteQueue<Job>>, JoinHandle<()>)>,
    most: u64,
    report: Sender<Sealed>,
    reports: Receiver<Sealed>,
    done: BTreeMap<u64, ShardEntry>,
}

impl Sealer {
    fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let (report, reports) = channel();
        Self {
            threads: Vec::new(),
            most: cores.clamp(1, MOST_THREADS) as u64,
            report,
            reports,
            done: BTreeMap::new(),
        }
    }

    /// Gives `job` to the thread of shard `number`. A failure of an earlier shard shows here.
    fn send(&mut self, number: u64, job: Job) -> Result<()> {
        while let Ok(sealed) = self.reports.try_recv() {
            let (number, entry) = sealed?;
            self.done.insert(number, entry);
        }
        let turn = usize::try_from(number % self.most).unwrap_or(0);
        while self.threads.len() <= turn {
            let jobs = Arc::new(ByteQueue::new(WAITING_BYTES));
            let (taken, report) = (Arc::clone(&jobs), self.report.clone());
            let thread = std::thread::Builder::new()
                .name("hash".to_owned())
                .spawn(move || run(&taken, &report))
                .map_err(|source| Error::io("", "start a thread", source))?;
            self.threads.push((jobs, thread));
        }
        let bytes = match &job {
            Job::Hash { range, .. } => range.len(),
            Job::Start(_) | Job::Seal { .. } => 0,
        };
        let sent = self
            .threads
            .get(turn)
            .map(|(jobs, _)| jobs.push(job, bytes));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(Error::refused("", "a hashing thread ended early")),
        }
    }

    fn stop(&mut self) {
        for (jobs, thread) in self.threads.drain(..) {
            jobs.close();
            // A panic there leaves its shard without a report, which `finish` notices.
            let _ = thread.join();
        }
    }

    fn finish(&mut self, dir: &Path, count: u64) -> Result<Vec<ShardEntry>> {
        self.stop();
        while let Ok(sealed) = self.reports.try_recv() {
            let (number, entry) = sealed?;
            self.done.insert(number, entry);
        }
        let done = std::mem::take(&mut self.done);
        if done.keys().copied().eq(0..count) {
            return Ok(done.into_values().collect());
        }
        Err(Error::refused(dir, "a hashing thread ended early"))
    }
}

impl Drop for Sealer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(jobs: &ByteQueue<Job>, report: &Sender<Sealed>) {
    let _end = Abandon(jobs);
    let mut hasher = Hasher::new();
    let mut early: Option<EarlySync> = None;
    let mut unsynced = 0;
    while let Some(job) = jobs.pop() {
        match job {
            Job::Start(shard) => (early, unsynced) = (Some(shard), 0),
            Job::Hash { bytes, range } => {
                unsynced += range.len();
                hasher.update(bytes.get(range).unwrap_or_default());
                if unsynced >= SYNC_EVERY {
                    unsynced = 0;
                    if let Some(Err(error)) = early.as_ref().map(EarlySync::sync) {
                        // Nobody listens any more when the writer was dropped.
                        let _ = report.send(Err(error));
                    }
                }
            }
            Job::Seal {
                number,
                name,
                decoded_len,
                byte_len,
                compression,
                file,
            } => {
                let sha256 = std::mem::take(&mut hasher).finish();
                let entry = ShardEntry {
                    name,
                    decoded_len,
                    byte_len,
                    compression,
                    ratio: 1.0,
                    sha256,
                };
                let _ = report.send(file.commit().map(|()| (number, entry)));
            }
        }
    }
}

/// Lets nobody wait for a thread that has ended.
struct Abandon<'a>(&'a ByteQueue<Job>);

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
