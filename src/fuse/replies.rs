//! The answers of the tree as fuser sends them.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use fuser::{
    Errno, FileHandle, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr,
};
use rustix::io::Errno as Os;

use super::convert::{FOREVER, NO_ENTRY, file_attr, file_type, no_attributes, ttl};
use super::dispatch::{Refuse, Reply};
use super::errno::Call;
use super::patience::Patience;
use crate::error::Room;
use crate::storage::Buffer;
use crate::vfs::{Attr, Ino, Request, StatFs, Vfs, VfsError};

/// A read buffer that grew beyond this is given back; the kernel asks for at most 1 MiB as a rule.
const KEPT_BUFFER: usize = 2 << 20;

thread_local! {
    static BUFFER: RefCell<Buffer> = RefCell::default();
}

macro_rules! refuse {
    ($($reply:ty),*) => {$(
        impl Refuse for $reply {
            fn error(self, errno: Os) {
                <$reply>::error(self, Errno::from_i32(errno.raw_os_error()));
            }
        }
    )*};
}
refuse!(
    ReplyAttr,
    ReplyCreate,
    ReplyData,
    ReplyDirectory,
    ReplyDirectoryPlus,
    ReplyEmpty,
    ReplyEntry,
    ReplyIoctl,
    ReplyLseek,
    ReplyOpen,
    ReplyPoll,
    ReplyStatfs,
    ReplyWrite,
    ReplyXattr
);

impl Reply for ReplyEntry {
    /// `None` when there is no such name and never will be.
    type Answer = Option<Attr>;

    fn answer(self, answer: Option<Attr>) {
        match answer {
            Some(attr) => self.entry(&ttl(attr.ttl), &file_attr(&attr), Generation(0)),
            None => self.entry(&FOREVER, &NO_ENTRY, Generation(0)),
        }
    }
}

impl Reply for ReplyAttr {
    type Answer = Attr;

    fn answer(self, attr: Attr) {
        self.attr(&ttl(attr.ttl), &file_attr(&attr));
    }
}

/// This thread's buffer, with the bytes of one answer to a read.
pub(super) struct Filled {
    buffer: Buffer,
    len: usize,
}

impl Filled {
    /// Reads the whole of what was asked for, or fails: a short reply inside the file would make the
    /// kernel shrink the file for everybody.
    pub(super) fn read(vfs: &Vfs, ino: Ino, offset: u64, size: usize) -> Result<Self, VfsError> {
        let mut buffer = BUFFER.take();
        if buffer.len() < size {
            drop(buffer);
            // It takes memory only once the disk has answered.
            buffer = Buffer::zeroed(size as u64).map_err(|_| VfsError::NoRoom(Room::Memory))?;
        }
        let room = buffer.get_mut(..size).unwrap_or_default();
        match vfs.read(ino, offset, room) {
            Ok(len) => Ok(Self { buffer, len }),
            Err(error) => {
                keep(buffer);
                Err(error)
            }
        }
    }
}

/// Gives back this thread's buffer. The next job of a worker may wait for its disk.
pub(super) fn release_buffer() {
    BUFFER.take();
}

fn keep(buffer: Buffer) {
    if buffer.len() <= KEPT_BUFFER {
        BUFFER.set(buffer);
    }
}

impl Reply for ReplyData {
    type Answer = Filled;

    fn answer(self, filled: Filled) {
        self.data(filled.buffer.get(..filled.len).unwrap_or_default());
        keep(filled.buffer);
    }
}

/// The answer to a readlink.
pub(super) struct ReplyTarget(pub(super) ReplyData);

impl Refuse for ReplyTarget {
    fn error(self, errno: Os) {
        Refuse::error(self.0, errno);
    }
}

impl Reply for ReplyTarget {
    type Answer = Vec<u8>;

    fn answer(self, target: Vec<u8>) {
        self.0.data(&target);
    }
}

impl Reply for ReplyWrite {
    /// Bytes that were taken.
    type Answer = u32;

    fn answer(self, taken: u32) {
        self.written(taken);
    }
}

impl Reply for ReplyEmpty {
    type Answer = ();

    fn answer(self, (): ()) {
        self.ok();
    }
}

impl Reply for ReplyOpen {
    type Answer = ();

    fn answer(self, (): ()) {
        self.opened(FileHandle(0), FopenFlags::empty());
    }
}

impl Reply for ReplyStatfs {
    type Answer = StatFs;

    fn answer(self, answer: StatFs) {
        let StatFs {
            blocks,
            files,
            block_size,
            name_max,
        } = answer;
        self.statfs(blocks, 0, 0, files, 0, block_size, name_max, block_size);
    }
}

/// The answer to a request for extended attributes.
pub(super) struct ReplyValue {
    pub(super) reply: ReplyXattr,
    /// Bytes that there is room for. Zero asks how much is needed.
    pub(super) size: u32,
}

impl Refuse for ReplyValue {
    fn error(self, errno: Os) {
        Refuse::error(self.reply, errno);
    }
}

impl Reply for ReplyValue {
    type Answer = Vec<u8>;

    fn answer(self, value: Vec<u8>) {
        match u32::try_from(value.len()) {
            Ok(len) if self.size == 0 => self.reply.size(len),
            Ok(len) if len <= self.size => self.reply.data(&value),
            _ => self.reply.error(Errno::ERANGE),
        }
    }
}

impl Reply for ReplyDirectory {
    type Answer = ();

    fn answer(self, (): ()) {
        self.ok();
    }
}

/// Fills `reply` with entries of folder `dir` from `offset` on.
pub(super) fn list(
    vfs: &Vfs,
    dir: Ino,
    offset: u64,
    reply: &mut ReplyDirectory,
) -> Result<(), VfsError> {
    vfs.readdir(dir, offset, &mut |entry| {
        let kind = file_type(entry.kind);
        !reply.add(INodeNo(entry.ino.0), entry.next_offset, kind, entry.name)
    })
}

impl Reply for ReplyDirectoryPlus {
    type Answer = ();

    fn answer(self, (): ()) {
        self.ok();
    }
}

/// Fills `reply` with entries of folder `dir` from `offset` on, and what a look-up of each would say, as
/// far as that can be told: a disk that hangs keeps nobody from the names.
pub(super) fn list_with_attributes(
    vfs: &Arc<Vfs>,
    patience: &Patience,
    dir: Ino,
    offset: u64,
    reply: &mut ReplyDirectoryPlus,
) -> Result<(), VfsError> {
    let call = Call {
        request: Request::Readdirplus,
        ino: dir,
    };
    let waits = vfs.lists_from_disk(dir, offset)?;
    let from_memory = waits && !patience.see_done(call, move |vfs| vfs.see_lengths(dir, offset));
    vfs.readdir(dir, offset, &mut |entry| {
        let attr = if from_memory {
            vfs.remembered_entry_attr(entry.ino)
        } else {
            vfs.entry_attr(entry.ino)
        };
        let (attr, ttl) = match attr {
            Some(attr) => (file_attr(&attr), ttl(attr.ttl)),
            None => (no_attributes(entry.ino, entry.kind), Duration::ZERO),
        };
        let (ino, generation) = (INodeNo(entry.ino.0), Generation(0));
        !reply.add(ino, entry.next_offset, entry.name, &ttl, &attr, generation)
    })
}
