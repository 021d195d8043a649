//! Files that are made of many samples. The first who asks for the length has it counted, without a byte
//! kept; whoever reads has the file made, and it goes again when others need the room or nobody reads.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::in_flight::takes_long;
use super::payloads::{Found, Key, PayloadError, Place};
use super::{Node, Stale, Vfs, VfsError};
use crate::error::{Error, Result, Room};
use crate::storage::ScratchFile;

/// Bytes that are written at once.
const BUFFER: usize = 256 << 10;
/// A length that nobody has asked for yet.
const UNKNOWN: u64 = u64::MAX;

/// What is known of such a file.
#[derive(Debug)]
pub(super) struct Generated {
    len: AtomicU64,
    counting: Mutex<()>,
    /// Whether it could not be made, which was logged.
    failed: AtomicBool,
}

impl Default for Generated {
    fn default() -> Self {
        Self {
            len: AtomicU64::new(UNKNOWN),
            counting: Mutex::default(),
            failed: AtomicBool::new(false),
        }
    }
}

impl Generated {
    fn known_len(&self) -> Option<u64> {
        Some(self.len.load(Ordering::Acquire)).filter(|len| *len != UNKNOWN)
    }
}

/// One of them, for the time of a request.
pub(super) struct Source<'a> {
    pub(super) node: Node,
    /// Its name in messages.
    pub(super) what: String,
    pub(super) known: &'a Generated,
    /// Writes all of it: the same bytes each time, unless samples were damaged meanwhile.
    pub(super) write: &'a dyn Fn(&mut dyn Write) -> io::Result<()>,
}

impl Vfs {
    /// Whether the length of such a file was counted.
    pub(super) fn is_counted(&self, known: &Generated) -> bool {
        known.known_len().is_some()
    }

    pub(super) fn generated_len(&self, source: &Source<'_>) -> Result<u64, VfsError> {
        if let Some(len) = source.known.known_len() {
            return Ok(len);
        }
        takes_long()?;
        let turn = source.known.counting.lock();
        let _turn = turn.unwrap_or_else(PoisonError::into_inner);
        if let Some(len) = source.known.known_len() {
            return Ok(len);
        }
        let mut count = Count(0);
        (source.write)(&mut count).map_err(|error| source.failed(written(source, error)))?;
        source.known.len.store(count.0, Ordering::Release);
        Ok(count.0)
    }

    /// Reads it, as [`Vfs::read`] does.
    pub(super) fn read_generated(
        &self,
        source: &Source<'_>,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize, VfsError> {
        let len = self.generated_len(source)?;
        if !self.payloads.has(Key::File(source.node)) {
            takes_long()?;
        }
        let file = match self.payloads.find(Key::File(source.node)) {
            Found::Payload(file) => file,
            Found::Turn(turn) => {
                let made = turn.write(len, || self.generate(source, len));
                made.map_err(|error| {
                    source.failed(match error {
                        PayloadError::Failed(error) => error,
                        PayloadError::TooLarge => self.no_disk_for(source, len),
                    })
                })?
            }
        };
        source.known.failed.store(false, Ordering::Relaxed);
        file.read_at(offset, out).map_err(|error| {
            let action = format!("read its temporary file at offset {offset}");
            source.failed(Error::io(&source.what, action, error))
        })
    }

    fn generate(&self, source: &Source<'_>, len: u64) -> Result<ScratchFile> {
        let out = ScratchFile::create()?;
        let mut out = BufWriter::with_capacity(BUFFER, out);
        (source.write)(&mut out).map_err(|error| written(source, error))?;
        let made = out
            .into_inner()
            .map_err(|error| written(source, error.into_error()))?;
        if made.len() == len {
            return Ok(made);
        }
        // A sample was damaged or healed since its length was told: whoever asks again is told this one.
        source.known.len.store(made.len(), Ordering::Release);
        self.forget.forget(self.ino(source.node), Stale::Attributes);
        let reason = format!(
            "it has {} bytes now, not {len}: samples were damaged or healed; it can be read from now on",
            made.len()
        );
        Err(Error::refused(&source.what, reason))
    }

    fn no_disk_for(&self, source: &Source<'_>, len: u64) -> Error {
        let budget = self.payloads.budget(Place::Disk);
        Error::NoRoom {
            path: (&source.what).into(),
            sample: None,
            room: Room::Disk,
            reason: format!(
                "it takes {len} bytes of temporary files, and --temp-disk is {budget}: mount with more"
            ),
        }
    }
}

impl Source<'_> {
    /// Logs the first failure in a row.
    fn failed(&self, error: Error) -> VfsError {
        if !self.known.failed.swap(true, Ordering::Relaxed) {
            log::error!("{} cannot be made: {}", self.what, error.chain());
        }
        match error {
            Error::NoRoom { room, .. } => VfsError::NoRoom(room),
            error => VfsError::Damaged(Arc::new(error)),
        }
    }
}

/// A failure to write it.
fn written(source: &Source<'_>, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            Error::NoRoom {
                path: (&source.what).into(),
                sample: None,
                room: Room::Disk,
                reason: format!(
                    "cannot write its temporary file: {error} (set TMPDIR to a folder with room)"
                ),
            }
        }
        _ => Error::io(&source.what, "write its temporary file", error),
    }
}

/// Counts bytes.
struct Count(u64);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
