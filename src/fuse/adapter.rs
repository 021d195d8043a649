//! Kernel requests to [`Vfs`] calls and back; no decision is made here but how long an answer holds.
//!
//! `open` and `flush` answer ENOSYS, so for the life of the mount the kernel sends no OPEN, FLUSH or
//! RELEASE and keeps pages. Inode numbers are computed, never stored, so `forget` has nothing to do.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents,
    PollFlags, PollNotifier, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::convert::{FOREVER, NO_ENTRY, file_attr, file_type, ttl};
use super::errno::Call;
use super::guard::Guarded;
use super::patience::Patience;
use crate::vfs::{Attr, Ino, Request as Kind, SetAttr, Vfs, VfsError, Written};

/// A read buffer that grew beyond this is given back; the kernel asks for at most 1 MiB as a rule.
const KEPT_BUFFER: usize = 2 << 20;

/// Background requests (readahead) in flight; the default of 16 starves many readers.
const MAX_BACKGROUND: u16 = 64;

/// Switched on one by one: a kernel that lacks one gets the rest. `ATOMIC_O_TRUNC` is left out, so
/// that truncation of a control file comes as a setattr; `open` is never sent.
const CAPABILITIES: [InitFlags; 5] = [
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_AUTO_INVAL_DATA,
    InitFlags::FUSE_CACHE_SYMLINKS,
];

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// This thread's buffer, with the bytes of one reply.
struct Filled {
    buffer: Vec<u8>,
    len: usize,
}

/// Reads the whole of what was asked for, or fails: a short reply inside the file would make the
/// kernel shrink the file for everybody.
fn read_into_buffer(vfs: &Vfs, ino: Ino, offset: u64, size: usize) -> Result<Filled, VfsError> {
    let mut buffer = BUFFER.take();
    if buffer.len() < size {
        buffer.resize(size, 0);
    }
    let room = buffer.get_mut(..size).unwrap_or_default();
    let len = vfs.read(ino, offset, room)?;
    Ok(Filled { buffer, len })
}

impl Filled {
    fn send(self, reply: ReplyData) {
        reply.data(self.buffer.get(..self.len).unwrap_or_default());
        if self.buffer.len() <= KEPT_BUFFER {
            BUFFER.set(self.buffer);
        }
    }
}

/// Serves one [`Vfs`] to the kernel.
pub(super) struct Adapter {
    vfs: Guarded,
}

impl Adapter {
    /// For this many event threads.
    pub(super) fn new(vfs: Arc<Vfs>, threads: usize) -> Self {
        Self {
            vfs: Guarded::new(vfs, threads),
        }
    }

    /// What the tree refuses whoever asks.
    fn read_only(&self) -> Errno {
        self.vfs.note(Kind::Change);
        Errno::EROFS
    }

    /// What the kernel asks once and then does by itself for the life of the mount.
    fn not_offered(&self, request: Kind) -> Errno {
        self.vfs.note(request);
        Errno::ENOSYS
    }
}

/// The node called `name`; `None` when there is none and never will be.
fn find(vfs: &Vfs, caller: u32, dir: Ino, name: &OsStr) -> Result<Option<Attr>, VfsError> {
    match vfs.lookup_by(caller, dir, name) {
        Ok(attr) => Ok(Some(attr)),
        Err(VfsError::NotFound) if vfs.is_static_dir(dir) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Fills `reply` with entries of folder `ino` from `offset` on, and what a look-up of each would say, as
/// far as that can be told: a disk that hangs keeps nobody from the names.
fn list_with_attributes(
    vfs: &Vfs,
    patience: &Patience,
    ino: INodeNo,
    offset: u64,
    reply: &mut ReplyDirectoryPlus,
) -> Result<(), VfsError> {
    let (dir, request) = (Ino(ino.0), Kind::Readdirplus);
    let waits = vfs.lists_from_disk(dir, offset)?;
    let from_memory = waits
        && !patience.see_done(Call { request, ino }, move |vfs| {
            vfs.see_lengths(dir, offset)
        });
    vfs.readdir(dir, offset, &mut |entry| {
        let attr = match from_memory {
            true => vfs.remembered_entry_attr(entry.ino),
            false => vfs.entry_attr(entry.ino),
        };
        !reply.add(
            INodeNo(entry.ino.0),
            entry.next_offset,
            entry.name,
            &ttl(attr.ttl),
            &file_attr(&attr),
            Generation(0),
        )
    })
}

fn send_entry(answer: Result<Option<Attr>, Errno>, reply: ReplyEntry) {
    match answer {
        Ok(Some(attr)) => reply.entry(&ttl(attr.ttl), &file_attr(&attr), Generation(0)),
        Ok(None) => reply.entry(&FOREVER, &NO_ENTRY, Generation(0)),
        Err(errno) => reply.error(errno),
    }
}

fn send_attr(answer: Result<Attr, Errno>, reply: ReplyAttr) {
    match answer {
        Ok(attr) => reply.attr(&ttl(attr.ttl), &file_attr(&attr)),
        Err(errno) => reply.error(errno),
    }
}

/// Size zero asks how much room is needed.
fn send_xattr(answer: Result<Vec<u8>, Errno>, size: u32, reply: ReplyXattr) {
    match answer {
        Ok(value) => match u32::try_from(value.len()) {
            Ok(len) if size == 0 => reply.size(len),
            Ok(len) if len <= size => reply.data(&value),
            _ => reply.error(Errno::ERANGE),
        },
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for capability in CAPABILITIES {
            if config.add_capabilities(capability).is_err() {
                log::debug!("the kernel does not offer {capability:?}");
            }
        }
        if let Err(nearest) = config.set_max_background(MAX_BACKGROUND) {
            log::debug!("max_background {MAX_BACKGROUND} refused, nearest {nearest}");
        }
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (dir, caller) = (Ino(parent.0), req.pid());
        let at_work = self.vfs.at_work();
        if at_work.is_last || self.vfs.is_slow(|vfs| vfs.finds_slowly(dir, name)) {
            self.vfs.note(Kind::Lookup);
            let name = name.to_os_string();
            let find = move |vfs: &Arc<Vfs>| find(vfs, caller, dir, &name);
            let send = |answer| send_entry(answer, reply);
            return self.vfs.answer_later(Kind::Lookup, parent, find, send);
        }
        let answer = self
            .vfs
            .answer(Kind::Lookup, parent, |vfs| find(vfs, caller, dir, name));
        send_entry(answer, reply);
    }

    fn forget(&self, _req: &Request, _ino: INodeNo, _nlookup: u64) {}

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let at_work = self.vfs.at_work();
        if at_work.is_last || self.vfs.is_slow(|vfs| vfs.is_unmade(Ino(ino.0))) {
            self.vfs.note(Kind::Getattr);
            let get = move |vfs: &Arc<Vfs>| vfs.getattr(Ino(ino.0));
            let send = |answer| send_attr(answer, reply);
            return self.vfs.answer_later(Kind::Getattr, ino, get, send);
        }
        send_attr(
            self.vfs
                .answer(Kind::Getattr, ino, |vfs| vfs.getattr(Ino(ino.0))),
            reply,
        );
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = SetAttr {
            size,
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            times: atime.is_some() || mtime.is_some(),
        };
        send_attr(
            self.vfs
                .answer(Kind::Setattr, ino, |vfs| vfs.setattr(Ino(ino.0), change)),
            reply,
        );
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self
            .vfs
            .answer(Kind::Readlink, ino, |vfs| vfs.readlink(Ino(ino.0)))
        {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(self.read_only());
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(self.read_only());
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(self.read_only());
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(self.read_only());
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(self.read_only());
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(self.read_only());
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(self.read_only());
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(self.read_only());
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(self.not_offered(Kind::Open));
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = usize::try_from(size).unwrap_or(0);
        let read = move |vfs: &Arc<Vfs>| read_into_buffer(vfs, Ino(ino.0), offset, size);
        let send = move |answer: Result<Filled, Errno>| match answer {
            Ok(filled) => filled.send(reply),
            Err(errno) => reply.error(errno),
        };
        let at_work = self.vfs.at_work();
        if at_work.is_last || self.vfs.is_slow(|vfs| vfs.reads_slowly(Ino(ino.0))) {
            self.vfs.note(Kind::Read);
            self.vfs.answer_later(Kind::Read, ino, read, send);
        } else {
            send(self.vfs.answer(Kind::Read, ino, read));
        }
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let taken = u32::try_from(data.len()).unwrap_or(u32::MAX);
        match self.vfs.answer(Kind::Write, ino, |vfs| {
            vfs.write_at(Ino(ino.0), offset, data)
        }) {
            Ok(Written::All) => reply.written(taken),
            Ok(Written::Later(work)) => {
                let send = move |answer| match answer {
                    Ok(()) => reply.written(taken),
                    Err(errno) => reply.error(errno),
                };
                self.vfs.answer_later(Kind::Write, ino, |_| work(), send);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(self.not_offered(Kind::Flush));
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.vfs.note(Kind::Other);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.vfs.note(Kind::Other);
        reply.ok();
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.vfs.note(Kind::Opendir);
        let opened = |reply: ReplyOpen| reply.opened(FileHandle(0), FopenFlags::empty());
        if !self.vfs.is_slow(|vfs| vfs.lists_slowly(Ino(ino.0))) {
            return opened(reply);
        }
        // What the folder shows is found out now, so that no listing has to wait for it.
        let prepare = move |vfs: &Arc<Vfs>| vfs.readdir(Ino(ino.0), 0, &mut |_| false);
        let send = move |answer| match answer {
            Ok(()) => opened(reply),
            Err(errno) => reply.error(errno),
        };
        self.vfs.answer_later(Kind::Opendir, ino, prepare, send);
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let answer = self.vfs.answer(Kind::Readdir, ino, |vfs| {
            vfs.readdir(Ino(ino.0), offset, &mut |entry| {
                !reply.add(
                    INodeNo(entry.ino.0),
                    entry.next_offset,
                    file_type(entry.kind),
                    entry.name,
                )
            })
        });
        match answer {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let at_work = self.vfs.at_work();
        if at_work.is_last {
            self.vfs.note(Kind::Readdirplus);
            let patience = self.vfs.patience().clone();
            let list = move |vfs: &Arc<Vfs>| {
                list_with_attributes(vfs, &patience, ino, offset, &mut reply).map(|()| reply)
            };
            // A reply that is dropped on the way is EIO.
            let send = |answer: Result<ReplyDirectoryPlus, Errno>| {
                if let Ok(reply) = answer {
                    reply.ok();
                }
            };
            return self.vfs.answer_later(Kind::Readdirplus, ino, list, send);
        }
        let answer = self.vfs.answer(Kind::Readdirplus, ino, |vfs| {
            list_with_attributes(vfs, self.vfs.patience(), ino, offset, &mut reply)
        });
        match answer {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, _: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.vfs.note(Kind::Releasedir);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.vfs.note(Kind::Other);
        reply.ok();
    }

    fn statfs(&self, _req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match self.vfs.answer(Kind::Statfs, ino, |vfs| Ok(vfs.statfs())) {
            Ok(s) => reply.statfs(
                s.blocks,
                0,
                0,
                s.files,
                0,
                s.block_size,
                s.name_max,
                s.block_size,
            ),
            Err(errno) => reply.error(errno),
        }
    }

    fn setxattr(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: &[u8],
        _: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(self.read_only());
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let answer = self
            .vfs
            .answer(Kind::Xattr, ino, |vfs| vfs.getxattr(Ino(ino.0), name));
        send_xattr(answer, size, reply);
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let answer = self
            .vfs
            .answer(Kind::Xattr, ino, |vfs| vfs.listxattr(Ino(ino.0)));
        send_xattr(answer, size, reply);
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(self.read_only());
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.error(self.not_offered(Kind::Access));
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        self.vfs.note(Kind::Ioctl);
        reply.error(Errno::ENOTTY);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(self.not_offered(Kind::Other));
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(self.read_only());
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: ReplyLseek) {
        reply.error(self.not_offered(Kind::Other));
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(self.read_only());
    }
}
