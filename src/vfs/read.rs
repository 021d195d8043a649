//! Bytes of files. A sample's bytes are given out only after its envelope agreed.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use super::control::Seen;
use super::in_flight::takes_long;
use super::log_limit::LineKind;
use super::node::ControlFile;
use super::payloads::{Found, Key, Payload, PayloadError, Place, Sizes, Turn};
use super::{Ino, Mounted, Node, Stale, Vfs, VfsError};
use crate::cache::Record;
use crate::error::{Error, Fault, FaultKind, Result, Room};
use crate::format::record::Compression;
use crate::storage::ScratchFile;

/// A compressed payload up to this many bytes is decoded straight into the reply when it is asked
/// for whole; a larger one, or one read in pieces, is kept decoded for the next piece.
const WHOLE_REPLY: u64 = 1 << 20;

impl Vfs {
    /// Puts the bytes from `offset` on into `out` and says how many there are: `out.len()`, or what
    /// the file has from there.
    ///
    /// # Errors
    /// [`VfsError::Damaged`] when the sample cannot be served whole and right,
    /// [`VfsError::IsADirectory`], [`VfsError::NotFound`], [`VfsError::Stale`].
    pub fn read(&self, ino: Ino, offset: u64, out: &mut [u8]) -> Result<usize, VfsError> {
        let node = self.node(ino)?;
        match node {
            Node::Sample(slot, sample) => {
                #[cfg(debug_assertions)]
                panic_if_asked(sample);
                let mounted = self.mounted(slot)?;
                self.at_sample(slot, sample);
                if self.decodes_slowly(mounted, sample) {
                    takes_long()?;
                }
                let len = self
                    .read_sample(mounted, sample, offset, out)
                    .map_err(|error| self.damaged(slot, sample, error))?;
                self.heal(slot, sample);
                self.counters.note_read(len as u64);
                if self.prefetch.is_active() {
                    self.prefetch.note_read(ino);
                }
                Ok(len)
            }
            Node::Manifest(slot) => Ok(copy_from(
                self.mounted(slot)?.cache().manifest_bytes(),
                offset,
                out,
            )),
            Node::Migrated(slot) => {
                let migrated = self.mounted(slot)?.migrated.load_full();
                Ok(copy_from(&migrated.ok_or(VfsError::NotFound)?, offset, out))
            }
            Node::Metadata(slot) => self
                .mounted(slot)?
                .cache()
                .read_metadata_file(offset, out)
                .map_err(|error| {
                    if self.may_log(slot, LineKind::Table) {
                        log::error!("{}", error.chain());
                    }
                    VfsError::Damaged(Arc::new(error))
                }),
            Node::JoinedTable => self.read_joined_table(offset, out),
            Node::ViewLines(view) => self.read_view_lines(view, offset, out),
            Node::Snapshot(number) => {
                let snapshot = self.snapshots.get(number).ok_or(VfsError::Stale)?;
                Ok(copy_from(&snapshot.text, offset, out))
            }
            Node::Log(number) => self.read_log(Some(number), offset, out),
            Node::ControlFile(ControlFile::Log) => self.read_log(None, offset, out),
            Node::ControlFile(file) | Node::Command { file, .. } | Node::Visit { file, .. } => {
                match self.command_text(node) {
                    Some(Seen::Text((text, _))) => Ok(copy_from(&text, offset, out)),
                    // The rest of another text is no rest of the one that was begun.
                    Some(Seen::Gone) if offset > 0 => Err(VfsError::Stale),
                    Some(Seen::Gone) => {
                        let (text, _) = self.see_present(node).ok_or(VfsError::Stale)?;
                        Ok(copy_from(&text, offset, out))
                    }
                    None => Ok(copy_from(&self.snapshot(file).text, offset, out)),
                }
            }
            Node::NameLink(_) => Err(VfsError::NotFound),
            _ => Err(VfsError::IsADirectory),
        }
    }

    /// Whether reading the sample takes long: it has a large payload to decode, or to wait for.
    fn decodes_slowly(&self, mounted: &Mounted, sample: u64) -> bool {
        mounted.cache().decodes_slowly(sample).unwrap_or(false)
            && !self.payloads.has(Key::Sample(mounted.slot(), sample))
    }

    fn read_sample(
        &self,
        mounted: &Mounted,
        sample: u64,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize> {
        // The first piece may be the whole payload; a later one is of a payload in pieces.
        let piece = offset > 0 && mounted.cache().compression(sample)? == Compression::Lz4;
        let key = Key::Sample(mounted.slot(), sample);
        let prefetched = self.prefetch.is_active() && self.payloads.has(key);
        if !piece
            && !prefetched
            && let Some(n) = self.read_direct(mounted, sample, offset, out)?
        {
            return Ok(n);
        }
        let payload = self.decoded(mounted, sample)?;
        self.confirm_len(mounted, sample, payload.len())?;
        let n = payload.read_at(offset, out).map_err(|source| {
            let reason = format!("cannot read its temporary file: {source}");
            self.no_disk(mounted, sample, reason)
        })?;
        if prefetched && n as u64 == payload.len() {
            // The kernel has all of it now.
            self.payloads.release(key);
        }
        Ok(n)
    }

    /// Reads what needs no decoded payload to be kept; `None` for a piece of a compressed one.
    fn read_direct(
        &self,
        mounted: &Mounted,
        sample: u64,
        offset: u64,
        out: &mut [u8],
    ) -> Result<Option<usize>> {
        let wanted = out.len() as u64;
        let mut found = None;
        let read = mounted.cache().with_record(sample, wanted, |record| {
            let len = record.decoded_len();
            found = Some(len);
            let n = usize::try_from(len.saturating_sub(offset).min(wanted)).unwrap_or(0);
            let out = out.get_mut(..n).unwrap_or_default();
            if n == 0 {
                return Ok(Some(0));
            }
            if record.compression() == Compression::None {
                return record.read(offset, out).map(|()| Some(n));
            }
            if n as u64 == len && len <= WHOLE_REPLY {
                return self.timed(|| record.decode(out)).map(|()| Some(n));
            }
            Ok(None)
        })??;
        // What is left to do for a piece of a compressed payload confirms it.
        if let (Some(_), Some(len)) = (read, found) {
            self.confirm_len(mounted, sample, len)?;
        }
        Ok(read)
    }

    /// Compares the length of a payload that was read with the one that the kernel was told: a record
    /// that was damaged meanwhile may have stated another.
    fn confirm_len(&self, mounted: &Mounted, sample: u64, len: u64) -> Result<()> {
        let Some(told) = mounted.cache().correct_len(sample, len) else {
            return Ok(());
        };
        let ino = self.ino(Node::Sample(mounted.slot(), sample));
        self.forget.forget(ino, Stale::Attributes);
        // It would give out the first bytes as if they were all, or zeros after them.
        let cache = mounted.cache();
        let path = cache.shard_path(cache.shard_of(sample)?);
        let expected = format!("{told} bytes, as when its length was asked for");
        let found = format!("{len} bytes; it can be read from now on");
        Err(Fault::new(FaultKind::Length, expected, found).in_sample(&path, sample))
    }

    /// The decoded payload of a compressed sample, decoded by this thread if no other has: into memory,
    /// or where that does not suffice into a temporary file.
    pub(super) fn decoded(&self, mounted: &Mounted, sample: u64) -> Result<Arc<Payload>> {
        // It may have been decoded before its shard was found wrong.
        mounted.cache().admit(sample)?;
        let turn = match self.payloads.find(Key::Sample(mounted.slot(), sample)) {
            Found::Payload(payload) => {
                self.counters.note_payload_hit();
                return Ok(payload);
            }
            Found::Turn(turn) => turn,
        };
        mounted.cache().with_record(sample, 0, |record| {
            let sizes = Sizes {
                decoded: record.decoded_len(),
                stored: record.stored_len(),
            };
            match turn.decode(sizes, |bytes| self.timed(|| record.decode(bytes))) {
                Ok(payload) => Ok(payload),
                Err(PayloadError::TooLarge | PayloadError::Failed(Error::NoRoom { .. })) => {
                    self.decoded_on_disk(mounted, sample, &turn, record)
                }
                Err(PayloadError::Failed(error)) => Err(error),
            }
        })?
    }

    /// Decodes into a temporary file, in little memory.
    fn decoded_on_disk(
        &self,
        mounted: &Mounted,
        sample: u64,
        turn: &Turn<'_>,
        record: &mut Record<'_>,
    ) -> Result<Arc<Payload>> {
        let sizes = Sizes {
            decoded: record.decoded_len(),
            stored: record.stored_len(),
        };
        let (decoded, needed) = (sizes.decoded, sizes.needed());
        let written = turn.write(decoded, || {
            let failed = |source: &dyn std::fmt::Display| {
                let reason = format!(
                    "cannot write its decoded {decoded} bytes into a temporary file: {source} (set TMPDIR to a \
                     folder with room, or mount with --cache-memory {needed} or more)"
                );
                self.no_disk(mounted, sample, reason)
            };
            let mut file = ScratchFile::create().map_err(|error| failed(&error.chain()))?;
            self.timed(|| {
                record.decode_through(|bytes| file.write_all(bytes).map_err(|error| failed(&error)))
            })?;
            Ok(file)
        });
        written.map_err(|error| match error {
            PayloadError::Failed(error) => error,
            PayloadError::TooLarge => {
                let memory = self.payloads.budget(Place::Memory);
                let disk = self.payloads.budget(Place::Disk);
                let reason = format!(
                    "decoding this sample takes {needed} bytes of memory, and --cache-memory is {memory}; or \
                     {decoded} bytes of temporary files, and --temp-disk is {disk}: mount with more of either"
                );
                self.no_disk(mounted, sample, reason)
            }
        })
    }

    fn no_disk(&self, mounted: &Mounted, sample: u64, reason: String) -> Error {
        let cache = mounted.cache();
        let shard = cache.shard_of(sample).map(|shard| cache.shard_path(shard));
        Error::NoRoom {
            path: shard.unwrap_or_else(|_| cache.dir().to_path_buf()),
            sample: Some(sample),
            room: Room::Disk,
            reason,
        }
    }

    /// Decodes a payload, counted and timed.
    fn timed(&self, decode: impl FnOnce() -> Result<()>) -> Result<()> {
        let start = Instant::now();
        let result = decode();
        self.counters.note_decoded(start.elapsed());
        result
    }

    /// Notes that a sample was served: what failed before (a disk, say) works again.
    pub(super) fn heal(&self, slot: u64, sample: u64) {
        if self.damage.heal(slot, sample) && self.may_log(slot, LineKind::Healed) {
            let id = self.at_slot(slot).map_or(slot, |m| m.entry.cache_id);
            log::info!("cache {id}, sample {sample}: is served again");
        }
    }

    /// Notes a failed sample; it is logged when it was not known before. A sample that there is no room
    /// for is not damaged, and not listed.
    pub(super) fn damaged(&self, slot: u64, sample: u64, error: Error) -> VfsError {
        let message = error.chain();
        let id = self.at_slot(slot).map_or(slot, |m| m.entry.cache_id);
        if let Error::NoRoom { room, .. } = error {
            if self.refusals.is_news((slot, sample), Instant::now())
                && self.may_log(slot, LineKind::NotServed)
            {
                log::error!("cache {id}, sample {sample}: not served: {message}");
            } else {
                log::debug!("cache {id}, sample {sample}: not served: {message}");
            }
            return VfsError::NoRoom(room);
        }
        let is_news = self.damage.note(slot, sample, message.clone());
        if is_news && self.may_log(slot, LineKind::Damaged) {
            log::error!("cache {id}, sample {sample}: {message}");
        } else {
            log::debug!("cache {id}, sample {sample}: {message}");
        }
        VfsError::Damaged(Arc::new(error))
    }
}

/// Copies what `bytes` has from `offset` on, as far as it fits.
pub(super) fn copy_from(bytes: &[u8], offset: u64, out: &mut [u8]) -> usize {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let rest = bytes.get(start..).unwrap_or_default();
    let n = rest.len().min(out.len());
    if let (Some(to), Some(from)) = (out.get_mut(..n), rest.get(..n)) {
        to.copy_from_slice(from);
    }
    n
}

/// For tests of what a panic does to a mount: in debug builds, reading the sample whose number is in
/// this variable panics.
#[cfg(debug_assertions)]
#[allow(clippy::panic)]
fn panic_if_asked(sample: u64) {
    static ASKED: std::sync::OnceLock<Option<u64>> = std::sync::OnceLock::new();
    let asked = ASKED.get_or_init(|| {
        let asked = std::env::var("DATASETRT_TEST_PANIC_AT_SAMPLE").ok()?;
        asked.parse().ok()
    });
    if *asked == Some(sample) {
        panic!("asked for by a test");
    }
}
