//! The floor: a file system that does nothing, mounted with the same switches as datasetrt-mount and laid
//! out alike (`/samples/1/<n>`). What it costs is what the kernel and fuser cost; the rest is ours.
//!
//! usage: nullfs [--threads N] [--count N] [--size BYTES] MOUNTPOINT     (as root; ends when unmounted)

use std::ffi::{CString, OsStr};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Parser;
use fuser::{
    AccessFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyOpen, ReplyStatfs,
    ReplyXattr, Request, Session, SessionACL,
};
use rustix::mount::MountFlags;

/// Answers hold for ever, as ours do.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// As in `src/fuse/adapter.rs`.
const MAX_BACKGROUND: u16 = 64;
const CAPABILITIES: [InitFlags; 5] = [
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_AUTO_INVAL_DATA,
    InitFlags::FUSE_CACHE_SYMLINKS,
];

const SAMPLES: u64 = 2;
const CACHE: u64 = 3;
/// Inode of file 0.
const FIRST: u64 = 16;
/// The folders above the files: name, parent, inode.
const FOLDERS: [(&str, u64, u64); 2] = [("samples", 1, SAMPLES), ("1", SAMPLES, CACHE)];

/// A file system that costs nothing but its requests
#[derive(Parser)]
struct Args {
    /// Event threads
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Files
    #[arg(long, default_value_t = 20_000)]
    count: u64,
    /// Bytes of each file
    #[arg(long, default_value_t = 4096)]
    size: u64,
    /// An existing directory
    mountpoint: PathBuf,
}

struct NullFs {
    count: u64,
    size: u64,
    /// What every file holds, over and over.
    payload: Vec<u8>,
}

impl NullFs {
    fn attr(&self, ino: u64) -> Option<FileAttr> {
        let kind = match ino {
            1 | SAMPLES | CACHE => FileType::Directory,
            _ if (FIRST..FIRST + self.count).contains(&ino) => FileType::RegularFile,
            _ => return None,
        };
        let (size, perm, nlink) = match kind {
            FileType::Directory => (0, 0o555, 3),
            _ => (self.size, 0o444, 1),
        };
        Some(FileAttr {
            ino: INodeNo(ino),
            size,
            blocks: size.div_ceil(512),
            atime: SystemTime::UNIX_EPOCH,
            mtime: SystemTime::UNIX_EPOCH,
            ctime: SystemTime::UNIX_EPOCH,
            crtime: SystemTime::UNIX_EPOCH,
            kind,
            perm,
            nlink,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// Inode of `name` in `parent`.
    fn find(&self, parent: u64, name: &OsStr) -> Option<u64> {
        if parent != CACHE {
            let mut folders = FOLDERS.iter();
            let found = folders.find(|(known, of, _)| *of == parent && name == *known);
            return found.map(|(_, _, ino)| *ino);
        }
        let mut number = 0_u64;
        for byte in name.as_bytes() {
            let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
            number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
        }
        (number < self.count).then_some(FIRST + number)
    }

    /// Calls `sink` with inode, next offset, kind and name from entry `offset` on.
    fn list(&self, dir: u64, offset: u64, mut sink: impl FnMut(u64, u64, FileType, &str) -> bool) {
        let entries = if dir == CACHE { self.count } else { 1 };
        for position in offset..entries + 2 {
            let number = (position.saturating_sub(2)).to_string();
            let (ino, kind, name) = match position {
                0 => (dir, FileType::Directory, "."),
                1 => (1, FileType::Directory, ".."),
                n if dir == CACHE => (FIRST + n - 2, FileType::RegularFile, number.as_str()),
                _ => match FOLDERS.iter().find(|(_, parent, _)| *parent == dir) {
                    Some((name, _, ino)) => (*ino, FileType::Directory, *name),
                    None => return,
                },
            };
            if !sink(ino, position + 1, kind, name) {
                return;
            }
        }
    }
}

impl Filesystem for NullFs {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for capability in CAPABILITIES {
            if config.add_capabilities(capability).is_err() {
                eprintln!("nullfs: the kernel does not offer {capability:?}");
            }
        }
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent.0, name).and_then(|ino| self.attr(ino)) {
            Some(attr) => reply.entry(&FOREVER, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn forget(&self, _: &Request, _: INodeNo, _: u64) {}

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino.0) {
            Some(attr) => reply.attr(&FOREVER, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = u64::from(size).min(self.size.saturating_sub(offset));
        let start = usize::try_from(offset % 4096).unwrap_or(0);
        let len = usize::try_from(len).unwrap_or(0);
        match self.payload.get(start..start + len) {
            Some(bytes) => reply.data(bytes),
            None => reply.error(Errno::EIO),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.list(ino.0, offset, |ino, next, kind, name| {
            !reply.add(INodeNo(ino), next, kind, name)
        });
        reply.ok();
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.list(ino.0, offset, |ino, next, _, name| {
            self.attr(ino).is_some_and(|attr| {
                !reply.add(INodeNo(ino), next, name, &FOREVER, &attr, Generation(0))
            })
        });
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, _: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, self.count, 0, 4096, 255, 4096);
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
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
        reply.error(Errno::ENOTTY);
    }
}

/// Mounts as `src/fuse/mount.rs` does for root: read-write, permissions checked by the kernel.
fn mount(at: &Path) -> io::Result<OwnedFd> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")?;
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions",
        device.as_raw_fd()
    );
    let data = CString::new(data)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("nullfs", at, "fuse.nullfs", flags, data.as_c_str())?;
    Ok(device.into())
}

/// READs of 1 MiB, as `src/fuse/session.rs` has them. Asking for the device makes the kernel answer INIT
/// first, so this has a thread of its own.
fn set_read_ahead(at: PathBuf) {
    std::thread::spawn(move || {
        let Ok(meta) = fs::metadata(&at) else { return };
        let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
        let file = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
        if let Err(error) = fs::write(&file, "1024") {
            eprintln!("nullfs: {file}: {error}");
        }
    });
}

/// Bytes without a pattern that a compressor could find; nothing here compresses anyway.
fn payload(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    // The largest READ and the 4 KiB that its start may lie into the pattern.
    let room = usize::try_from(args.size.min(1 << 20)).unwrap_or(0) + 4096;
    let fs = NullFs {
        count: args.count,
        size: args.size,
        payload: payload(room),
    };
    let connection = mount(&args.mountpoint)?;
    let mut config = Config::default();
    config.n_threads = Some(args.threads.max(1));
    let session = Session::from_fd(fs, connection, SessionACL::All, config)?;
    set_read_ahead(args.mountpoint);
    session.run()
}
