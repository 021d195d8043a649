//! Kernel requests as fuser gives them to calls of [`Vfs`], through the [`Dispatcher`]; no decision is made
//! here.
//!
//! `open` and `flush` answer ENOSYS, so for the life of the mount the kernel sends no OPEN, FLUSH or
//! RELEASE and keeps pages. Inode numbers are computed, never stored, so `forget` has nothing to do.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};
use rustix::io::Errno;

use super::convert::Name;
use super::dispatch::{Dispatcher, Refuse};
use super::replies::{Filled, ReplyTarget, ReplyValue, list, list_with_attributes};
use crate::vfs::{Command, Ino, Request as Kind, SetAttr, Vfs};

/// Background requests (readahead) in flight; the default of 16 starves many readers.
const MAX_BACKGROUND: u16 = 64;

/// Switched on one by one: a kernel that lacks one gets the rest. `ATOMIC_O_TRUNC` is left out, so
/// that truncation of a control file comes as a setattr; `open` is never sent.
const CAPABILITIES: [InitFlags; 6] = [
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_AUTO_INVAL_DATA,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_EXPORT_SUPPORT,
];

/// Serves one [`Vfs`] to the kernel, in a mount whose root is this folder of the tree.
pub(super) struct Adapter(Dispatcher, Mounted, INodeNo);

/// Who has mounted what is served.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Mounted {
    /// This process, so that the kernel checks permissions.
    Here,
    Elsewhere,
}

impl Adapter {
    /// For a mount that shows the folder `root`, and this many event threads.
    pub(super) fn new(vfs: Arc<Vfs>, root: Ino, threads: usize, mounted: Mounted) -> Self {
        Self(Dispatcher::new(vfs, threads), mounted, INodeNo(root.0))
    }

    /// The number inside the tree: the kernel calls the root of any mount 1.
    fn inside(&self, ino: INodeNo) -> INodeNo {
        match ino {
            INodeNo::ROOT => self.2,
            other => other,
        }
    }

    /// What the tree refuses whoever asks.
    fn read_only(&self, reply: impl Refuse) {
        self.0.refuse(Kind::Change, reply, Errno::ROFS);
    }

    /// What the kernel asks once and then does by itself for the life of the mount.
    fn not_offered(&self, request: Kind, reply: impl Refuse) {
        self.0.refuse(request, reply, Errno::NOSYS);
    }

    /// What has nothing to do.
    fn done(&self, request: Kind, reply: ReplyEmpty) {
        self.0.count(request);
        reply.ok();
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // The kernel ends a connection that asks for this and has it not check permissions.
        let id_mapped = (self.1 == Mounted::Here).then_some(InitFlags::FUSE_ALLOW_IDMAP);
        for capability in CAPABILITIES.into_iter().chain(id_mapped) {
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
        let parent = self.inside(parent);
        let (dir, caller, name) = (Ino(parent.0), req.pid(), Name::new(name));
        self.0.serve(Kind::Lookup, dir, reply, move |vfs, _| {
            vfs.find(caller, dir, name.get())
        });
    }

    fn forget(&self, _req: &Request, _ino: INodeNo, _nlookup: u64) {
        self.0.count(Kind::Forget);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let ino = self.inside(ino);
        let ino = Ino(ino.0);
        self.0
            .serve(Kind::Getattr, ino, reply, move |vfs, _| vfs.getattr(ino));
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
        let ino = self.inside(ino);
        let change = SetAttr {
            size,
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            times: atime.is_some() || mtime.is_some(),
        };
        let ino = Ino(ino.0);
        self.0.serve(Kind::Setattr, ino, reply, move |vfs, _| {
            vfs.setattr(ino, change)
        });
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let (ino, reply) = (Ino(ino.0), ReplyTarget(reply));
        self.0
            .serve(Kind::Readlink, ino, reply, move |vfs, _| vfs.readlink(ino));
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        self.read_only(reply);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        self.read_only(reply);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        self.read_only(reply);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        self.read_only(reply);
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        self.read_only(reply);
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
        self.read_only(reply);
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        self.read_only(reply);
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
        self.read_only(reply);
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.not_offered(Kind::Open, reply);
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
        let (ino, size) = (Ino(ino.0), usize::try_from(size).unwrap_or(0));
        self.0.serve(Kind::Read, ino, reply, move |vfs, _| {
            Filled::read(vfs, ino, offset, size)
        });
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
        let mut command = Command::new(Ino(ino.0), offset, data);
        self.0.serve(Kind::Write, Ino(ino.0), reply, move |vfs, _| {
            command.run(vfs).map(|()| taken)
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.not_offered(Kind::Flush, reply);
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
        self.done(Kind::Other, reply);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.done(Kind::Other, reply);
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let ino = self.inside(ino);
        let ino = Ino(ino.0);
        self.0
            .serve(Kind::Opendir, ino, reply, move |vfs, _| vfs.opendir(ino));
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let ino = self.inside(ino);
        let ino = Ino(ino.0);
        self.0.serve(Kind::Readdir, ino, reply, move |vfs, reply| {
            list(vfs, ino, offset, reply)
        });
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let ino = self.inside(ino);
        let (ino, patience) = (Ino(ino.0), self.0.patience().clone());
        self.0
            .serve(Kind::Readdirplus, ino, reply, move |vfs, reply| {
                list_with_attributes(vfs, &patience, ino, offset, reply)
            });
    }

    fn releasedir(&self, _: &Request, _: INodeNo, _: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.done(Kind::Releasedir, reply);
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.done(Kind::Other, reply);
    }

    fn statfs(&self, _req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        self.0
            .serve(Kind::Statfs, Ino(ino.0), reply, |vfs, _| Ok(vfs.statfs()));
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
        self.read_only(reply);
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let ino = self.inside(ino);
        let (ino, name) = (Ino(ino.0), Name::new(name));
        let reply = ReplyValue { reply, size };
        self.0.serve(Kind::Xattr, ino, reply, move |vfs, _| {
            vfs.getxattr(ino, name.get())
        });
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let ino = self.inside(ino);
        let (ino, reply) = (Ino(ino.0), ReplyValue { reply, size });
        self.0
            .serve(Kind::Xattr, ino, reply, move |vfs, _| vfs.listxattr(ino));
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        self.read_only(reply);
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        self.not_offered(Kind::Access, reply);
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
        self.0.refuse(Kind::Ioctl, reply, Errno::NOTTY);
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
        self.not_offered(Kind::Other, reply);
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
        self.read_only(reply);
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: ReplyLseek) {
        self.not_offered(Kind::Other, reply);
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
        self.read_only(reply);
    }
}
