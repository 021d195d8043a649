//! The bounded pipeline: one thread finds samples, several read and encode them, the calling one
//! writes them in order. What is written does not depend on the number of threads.
//!
//! ```text
//! produce --jobs--> worker 0 --parts--> \
//!                   worker 1 --parts-->  writer
//!                   ...                 /
//! ```
//!
//! Jobs are taken in order, and the writer hears which worker took each one. So it always waits for
//! the worker that has the oldest job, whose own queue then has room: nothing can wait for ever.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::encode::{EncodedBatch, Encoder};
use super::queue::ByteQueue;
use super::source::plan::Work;
use super::source::{Payload, refuse};
use super::streamed::{LZ4_STREAMED_FROM, STREAMED_FROM, Stored, Streamed, compress};
use super::{BATCH_BYTES, CacheWriter};
use crate::error::{Error, Result};
use crate::storage::StoredFile;

/// Most samples of a job.
const JOB_SAMPLES: u64 = 64;
/// Samples of a job while nothing is known of their size.
const FIRST_JOB_SAMPLES: u64 = 8;
/// A job also ends when the payloads in it have this many bytes.
const JOB_BYTES: usize = 1 << 20;
/// Bytes of jobs that may wait.
const JOBS_BYTES: usize = 4 << 20;
/// What a sample of a job counts beside its payload.
const SAMPLE_BYTES: usize = 256;
/// Encoded bytes of each worker that may wait for the writer.
const PARTS_BYTES: usize = 4 << 20;
/// Buffers for payloads above this size are given back after use.
const KEEP_BUFFER: usize = 8 << 20;

/// How a pipeline runs.
pub struct Pipeline<'a> {
    /// Threads that read and encode, at least one.
    pub jobs: usize,
    /// Set to stop as soon as possible.
    pub stop: &'a AtomicBool,
    /// Hears of samples and payload bytes that were written.
    pub progress: &'a dyn Fn(u64, u64),
}

/// Payloads read so far. Jobs of large samples are made short, so that no worker has to wait until
/// another one is through many of them.
#[derive(Default)]
struct Sizes {
    samples: AtomicU64,
    bytes: AtomicU64,
}

impl Sizes {
    fn add(&self, bytes: u64) {
        self.samples.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn samples_of_a_job(&self) -> u64 {
        let samples = self.samples.load(Ordering::Relaxed);
        let bytes = self.bytes.load(Ordering::Relaxed);
        match bytes.checked_div(samples) {
            None => FIRST_JOB_SAMPLES,
            Some(mean) => (JOB_BYTES as u64 / mean.max(1)).clamp(1, JOB_SAMPLES),
        }
    }
}

/// One job's samples; large ones in several parts.
enum Part {
    Encoded {
        batch: EncodedBatch,
        payload_bytes: u64,
        /// Whether the job ends with it.
        last: bool,
    },
    Streamed(Streamed),
}

impl Pipeline<'_> {
    /// Writes all samples that `produce` gives, in its order.
    ///
    /// # Errors
    /// [`Error::Refused`] naming source and place for a sample that cannot be stored, and when
    /// `stop` was set; [`Error::Io`]; what `produce` gives. Of several errors, the one of the
    /// earliest sample.
    pub fn run(
        &self,
        writer: &mut CacheWriter,
        produce: impl FnOnce(&mut dyn FnMut(Work) -> Result<()>) -> Result<()> + Send,
    ) -> Result<()> {
        let jobs = ByteQueue::new(JOBS_BYTES);
        let order = ByteQueue::new(usize::MAX);
        let taking = Mutex::new(());
        let parts: Vec<ByteQueue<Result<Part>>> = (0..self.jobs.max(1))
            .map(|_| ByteQueue::new(PARTS_BYTES))
            .collect();
        let (stop, encoder, sizes) = (self.stop, writer.encoder(), Sizes::default());
        std::thread::scope(|scope| {
            let producer = scope.spawn(|| {
                let _end = OnDrop(|| jobs.close());
                produce_jobs(&jobs, stop, &sizes, produce)
            });
            for (n, out) in parts.iter().enumerate() {
                let (jobs, order, taking, sizes) = (&jobs, &order, &taking, &sizes);
                let encoder = encoder.clone();
                scope.spawn(move || {
                    let _end = OnDrop(|| out.close());
                    let mut worker = Worker {
                        encoder,
                        out,
                        sizes,
                        buffer: Vec::new(),
                    };
                    loop {
                        // Taking a job and saying so are one step, so that orders stay in order.
                        let taken = taking.lock().unwrap_or_else(PoisonError::into_inner);
                        let Some(job) = jobs.pop() else {
                            order.close();
                            return;
                        };
                        let said = order.push(n, 0);
                        drop(taken);
                        if said.is_err() || worker.run(job).is_err() {
                            return;
                        }
                    }
                });
            }
            let written = self.write(writer, &order, &parts);
            jobs.abandon();
            order.abandon();
            parts.iter().for_each(ByteQueue::abandon);
            let produced = producer.join().unwrap_or_else(|_| Err(ended_early()));
            written?;
            self.check()?;
            produced
        })
    }

    fn check(&self) -> Result<()> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(stopped()),
            false => Ok(()),
        }
    }

    fn write(
        &self,
        writer: &mut CacheWriter,
        order: &ByteQueue<usize>,
        parts: &[ByteQueue<Result<Part>>],
    ) -> Result<()> {
        while let Some(worker) = order.pop() {
            loop {
                self.check()?;
                let part = parts.get(worker).and_then(ByteQueue::pop);
                match part.unwrap_or_else(|| Err(ended_early()))? {
                    Part::Encoded {
                        batch,
                        payload_bytes,
                        last,
                    } => {
                        let samples = batch.len() as u64;
                        writer.append(batch)?;
                        (self.progress)(samples, payload_bytes);
                        if last {
                            break;
                        }
                    }
                    Part::Streamed(sample) => {
                        writer.append_streamed(&sample)?;
                        (self.progress)(1, sample.decoded_len);
                    }
                }
            }
        }
        Ok(())
    }
}

fn produce_jobs(
    jobs: &ByteQueue<Vec<Work>>,
    stop: &AtomicBool,
    sizes: &Sizes,
    produce: impl FnOnce(&mut dyn FnMut(Work) -> Result<()>) -> Result<()>,
) -> Result<()> {
    let mut job = Vec::new();
    let mut bytes = 0;
    let send = |job: &mut Vec<Work>, bytes: &mut usize| {
        let sent = jobs.push(std::mem::take(job), std::mem::take(bytes));
        sent.map_err(|_| stopped())
    };
    let produced = produce(&mut |work| {
        if stop.load(Ordering::Relaxed) {
            return Err(stopped());
        }
        bytes += SAMPLE_BYTES;
        bytes += match &work.payload {
            Payload::Bytes(payload) => payload.len(),
            // Of the disk.
            Payload::Spooled(_) => JOB_BYTES,
            _ => 0,
        };
        job.push(work);
        match job.len() as u64 >= sizes.samples_of_a_job() || bytes >= JOB_BYTES {
            true => send(&mut job, &mut bytes),
            false => Ok(()),
        }
    });
    // What came before an error is still written, so that an error of an earlier sample wins.
    if !job.is_empty() {
        send(&mut job, &mut bytes)?;
    }
    produced
}

/// Reads and encodes the samples of jobs.
struct Worker<'a> {
    encoder: Encoder,
    out: &'a ByteQueue<Result<Part>>,
    sizes: &'a Sizes,
    buffer: Vec<u8>,
}

impl Worker<'_> {
    /// An error means that nobody listens any more.
    fn run(&mut self, job: Vec<Work>) -> Result<(), super::queue::Closed> {
        let mut batch = EncodedBatch::default();
        let mut payload_bytes = 0;
        for work in job {
            let encoded = match self.streamed(work) {
                Ok(Ok(sample)) => {
                    self.send(&mut batch, &mut payload_bytes, false)?;
                    // Of the disk; an item may exceed the bound when it is alone.
                    let bytes = usize::try_from(sample.len).unwrap_or(PARTS_BYTES);
                    let bytes = bytes.min(PARTS_BYTES);
                    self.out.push(Ok(Part::Streamed(sample)), bytes)?;
                    continue;
                }
                Ok(Err(work)) => self.encode(work, &mut batch),
                Err(error) => Err(error),
            };
            match encoded {
                Ok(len) => payload_bytes += len,
                Err(error) => {
                    self.send(&mut batch, &mut payload_bytes, false)?;
                    self.out.push(Err(error), 0)?;
                    return Err(super::queue::Closed);
                }
            }
            if batch.byte_len() >= BATCH_BYTES {
                self.send(&mut batch, &mut payload_bytes, false)?;
            }
        }
        self.send(&mut batch, &mut payload_bytes, true)
    }

    fn send(
        &self,
        batch: &mut EncodedBatch,
        payload_bytes: &mut u64,
        last: bool,
    ) -> Result<(), super::queue::Closed> {
        let bytes = batch.byte_len();
        let part = Part::Encoded {
            batch: std::mem::take(batch),
            payload_bytes: std::mem::take(payload_bytes),
            last,
        };
        self.out.push(Ok(part), bytes)
    }

    /// The sample, if the writer is to copy its payload from file to shard; the work itself if not.
    fn streamed(&mut self, mut work: Work) -> Result<std::result::Result<Streamed, Work>> {
        let plainly = self.encoder.stores_plainly();
        let least = if plainly {
            STREAMED_FROM
        } else {
            LZ4_STREAMED_FROM
        };
        let (stored, len) = match &work.payload {
            Payload::Spooled(file) if file.len() >= least => {
                (Stored::Spool(Arc::clone(file)), file.len())
            }
            Payload::Part { file, offset, len } if *len >= least => {
                let (file, offset) = (Arc::clone(file), *offset);
                (Stored::File { file, offset }, *len)
            }
            Payload::File(path) => match StoredFile::open(path) {
                Ok(file) => {
                    let len = file.identity().len;
                    let (file, offset) = (Arc::new(file), 0);
                    if len < least {
                        // Not to be opened again.
                        work.payload = Payload::Part { file, offset, len };
                        return Ok(Err(work));
                    }
                    (Stored::File { file, offset }, len)
                }
                // What cannot be opened is said where it is read.
                Err(_) => return Ok(Err(work)),
            },
            _ => return Ok(Err(work)),
        };
        let head = self.encoder.head(&work.values);
        let refused = |reason| refuse(&work.source, &work.place, reason);
        let mut head = head.map_err(refused)?;
        self.encoder.check_len(len).map_err(refused)?;
        self.sizes.add(len);
        let decoded_len = len;
        let (stored, len) = if plainly {
            (stored, len)
        } else {
            let prefix = u32::try_from(len).unwrap_or_default();
            head.extend_from_slice(&prefix.to_le_bytes());
            let block = compress(&stored, len, self.encoder.record());
            let block = block.map_err(|error| {
                Error::io(&*work.source, format!("compress {}", work.place), error)
            })?;
            let len = block.len();
            (Stored::Spool(Arc::new(block)), len)
        };
        Ok(Ok(Streamed {
            head,
            values: work.values,
            stored,
            len,
            decoded_len,
            source: work.source,
            place: work.place,
        }))
    }

    /// Reads and encodes one sample; gives the length of its payload.
    fn encode(&mut self, work: Work, batch: &mut EncodedBatch) -> Result<u64> {
        let Work {
            payload,
            values,
            source,
            place,
        } = work;
        let buffer = &mut self.buffer;
        let refused = |reason: String| refuse(&source, &place, reason);
        let payload = match &payload {
            Payload::Bytes(bytes) => bytes.as_slice(),
            Payload::File(path) => {
                // The system's words for a missing file do not say who asked for it.
                let file = StoredFile::open(path).map_err(|error| refused(error.chain()))?;
                let len = file.identity().len;
                self.encoder
                    .check_len(len)
                    .map_err(|r| refused(r.to_string()))?;
                read(&file, 0, len, buffer)
                    .map_err(|error| Error::io(path, format!("read {len} bytes"), error))?
            }
            Payload::Part { file, offset, len } => {
                self.encoder
                    .check_len(*len)
                    .map_err(|r| refused(r.to_string()))?;
                read(file, *offset, *len, buffer)
                    .map_err(|error| Error::io(&*source, format!("read {place}"), error))?
            }
            Payload::Spooled(file) => {
                let len = file.len();
                self.encoder
                    .check_len(len)
                    .map_err(|r| refused(r.to_string()))?;
                let stored = Stored::Spool(Arc::clone(file));
                let read = sized(buffer, len).and_then(|room| {
                    stored.read(0, room)?;
                    Ok(&*room)
                });
                read.map_err(|error| Error::io(&*source, format!("read {place}"), error))?
            }
            Payload::Left => return Err(refused("its bytes were not asked for".to_owned())),
        };
        let encoded = self.encoder.encode(payload, values, batch);
        encoded.map_err(|refusal| refused(refusal.to_string()))?;
        let len = payload.len() as u64;
        self.sizes.add(len);
        if self.buffer.len() > KEEP_BUFFER {
            self.buffer = Vec::new();
        }
        Ok(len)
    }
}

/// Reads `len` bytes from `offset` on into the front of `buffer`.
fn read<'a>(
    file: &StoredFile,
    offset: u64,
    len: u64,
    buffer: &'a mut Vec<u8>,
) -> std::io::Result<&'a [u8]> {
    let room = sized(buffer, len)?;
    file.read_exact_at(room, offset)?;
    Ok(room)
}

/// The first `len` bytes of `buffer`, which grows if there is memory for it.
fn sized(buffer: &mut Vec<u8>, len: u64) -> std::io::Result<&mut [u8]> {
    let len = usize::try_from(len).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
    if buffer.len() < len {
        let more = len - buffer.len();
        buffer
            .try_reserve_exact(more)
            .map_err(|_| std::io::ErrorKind::OutOfMemory)?;
        buffer.resize(len, 0);
    }
    Ok(buffer.get_mut(..len).unwrap_or_default())
}

fn stopped() -> Error {
    Error::refused("", "stopped")
}

fn ended_early() -> Error {
    Error::refused("", "a thread ended early")
}

/// Runs something at the end of a scope, also when a panic ends it.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
