//! A disk that fails on command: a folder seen through FUSE, with a fault for each file that has one.
//!
//! ```text
//! let mut disk = FaultyDisk::served_by(worker::disk(&folder, &point), &point);
//! disk.fault("cache/shards/000001.bin", Fault::Fail(Errno::EIO));
//! ...
//! disk.heal();
//! ```

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Config, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, SessionACL, TimeOrNow,
    WriteFlags,
};

pub use fuser::Errno;

/// Nothing is remembered, so that every fault shows at once.
const TTL: Duration = Duration::ZERO;
/// Requests that may hang at the same time.
const THREADS: usize = 24;

/// Stands for every temporary file of its folder.
pub const ANY_TEMPORARY: &str = "*.tmp";

/// What goes wrong with one file.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Reads fail.
    Fail(Errno),
    /// Reads wait until the disk is healed, and then succeed.
    Hang,
    /// Reads give this many bytes at most.
    Short(usize),
    /// Reads give other bytes from this offset of the file on.
    Corrupt(u64),
    /// Syncs of the file fail; of the folder, when the name is a folder's.
    Sync(Errno),
    /// The file cannot be renamed.
    Rename(Errno),
}

impl Fault {
    fn to_words(self) -> String {
        match self {
            Self::Fail(errno) => format!("fail {}", i32::from(errno)),
            Self::Hang => "hang 0".to_owned(),
            Self::Short(len) => format!("short {len}"),
            Self::Corrupt(from) => format!("corrupt {from}"),
            Self::Sync(errno) => format!("sync {}", i32::from(errno)),
            Self::Rename(errno) => format!("rename {}", i32::from(errno)),
        }
    }

    fn of_words(kind: &str, number: u64) -> Self {
        let errno = Errno::from_i32(number as i32);
        match kind {
            "fail" => Self::Fail(errno),
            "hang" => Self::Hang,
            "short" => Self::Short(number as usize),
            "corrupt" => Self::Corrupt(number),
            "sync" => Self::Sync(errno),
            "rename" => Self::Rename(errno),
            other => panic!("fault {other:?}"),
        }
    }
}

#[derive(Default)]
struct Faults {
    now: Mutex<HashMap<PathBuf, Fault>>,
    healed: Condvar,
    hanging: AtomicU64,
}

impl Faults {
    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Fault>> {
        self.now.lock().unwrap()
    }

    fn of(&self, path: &Path) -> Option<Fault> {
        let now = self.lock();
        let temporary = path.extension() == Some(OsStr::new("tmp"));
        let any = temporary.then(|| path.with_file_name(ANY_TEMPORARY));
        let found = now.get(path).or_else(|| now.get(&any?));
        found.copied()
    }
}

/// The mounted disk; taken away when dropped. A process of its own serves it: one that served what its
/// own threads wait for could not even be killed.
pub struct FaultyDisk {
    /// Where it is mounted.
    pub point: PathBuf,
    server: Child,
    answers: BufReader<ChildStderr>,
}

impl FaultyDisk {
    /// The disk that `server` serves at `point`: a process that runs [`serve`] with its standard input and
    /// error as pipes.
    pub fn served_by(mut server: Child, point: &Path) -> Self {
        let answers = BufReader::new(server.stderr.take().unwrap());
        let mut disk = Self {
            point: point.to_path_buf(),
            server,
            answers,
        };
        disk.hear();
        disk
    }

    /// From now on `file`, a path below the mountpoint without blanks, has this fault and no other.
    pub fn fault(&mut self, file: &str, fault: Fault) {
        self.say(&format!("{file} {}", fault.to_words()));
    }

    /// All is well again, also for those who wait.
    pub fn heal(&mut self) {
        self.say("heal");
    }

    /// Every file and folder below the root has another inode number from now on, as after a FUSE file
    /// system has forgotten it. What is open keeps the old one.
    pub fn renumber(&mut self) {
        self.say("renumber");
    }

    /// How many reads hang now.
    pub fn hanging(&mut self) -> u64 {
        self.say("hanging")
    }

    fn say(&mut self, line: &str) -> u64 {
        let pipe = self.server.stdin.as_mut().unwrap();
        writeln!(pipe, "{line}").unwrap();
        self.hear()
    }

    fn hear(&mut self) -> u64 {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let number = line.trim_end().parse();
        number.unwrap_or_else(|_| panic!("the disk says {line:?}"))
    }
}

impl Drop for FaultyDisk {
    fn drop(&mut self) {
        // Whoever waits for it gets an error.
        let _ = self.server.kill();
        let _ = self.server.wait();
        for words in [&["umount", "-l"][..], &["fusermount3", "-u", "-z", "--"]] {
            let mut command = Command::new(words[0]);
            let command = command.args(&words[1..]).arg(&self.point);
            if command
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|s| s.success())
            {
                break;
            }
        }
    }
}

/// Shows `folder` at `point` and takes commands from standard input, to the end of it. Answers each
/// on standard error with the number of reads that hang.
pub fn serve(folder: &Path, point: &Path) {
    let faults = Arc::<Faults>::default();
    let paths = Arc::new(Mutex::new(vec![folder.to_path_buf()]));
    let disk = Disk {
        faults: Arc::clone(&faults),
        paths: Arc::clone(&paths),
        files: Mutex::default(),
        next: AtomicU64::new(1),
    };
    let mut config = Config::default();
    config.acl = SessionACL::Owner;
    config.n_threads = Some(THREADS);
    let session = Session::new(disk, point, &config).unwrap();
    let _session = session.spawn().unwrap();
    eprintln!("0");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["heal"] => faults.lock().clear(),
            ["renumber"] => {
                let mut paths = paths.lock().unwrap();
                let below = paths.get(1..).unwrap_or_default().to_vec();
                paths.extend(below);
            }
            ["hanging"] => {}
            [file, kind, number] => {
                let fault = Fault::of_words(kind, number.parse().unwrap());
                faults.lock().insert(folder.join(file), fault);
            }
            _ => panic!("{line:?}"),
        }
        faults.healed.notify_all();
        eprintln!("{}", faults.hanging.load(Ordering::SeqCst));
    }
}

struct Disk {
    faults: Arc<Faults>,
    /// Inode number n is the path at n - 1. Of a path that is there twice the later number is given out.
    paths: Arc<Mutex<Vec<PathBuf>>>,
    files: Mutex<HashMap<u64, Arc<File>>>,
    next: AtomicU64,
}

impl Disk {
    fn path(&self, ino: INodeNo) -> PathBuf {
        self.paths.lock().unwrap()[ino.0 as usize - 1].clone()
    }

    /// The file's own number decides, so that a file that is renamed stays one.
    fn number(&self, path: &Path) -> u64 {
        let mut paths = self.paths.lock().unwrap();
        let known = paths.iter().rposition(|known| known == path);
        known.unwrap_or_else(|| {
            paths.push(path.to_path_buf());
            paths.len() - 1
        }) as u64
            + 1
    }

    fn attr(&self, path: &Path) -> io::Result<FileAttr> {
        let found = fs::symlink_metadata(path)?;
        let time = |seconds: i64, nanos: i64| {
            SystemTime::UNIX_EPOCH + Duration::new(seconds as u64, nanos as u32)
        };
        Ok(FileAttr {
            ino: INodeNo(self.number(path)),
            size: found.size(),
            blocks: found.blocks(),
            atime: time(found.atime(), found.atime_nsec()),
            mtime: time(found.mtime(), found.mtime_nsec()),
            // As sshfs: nothing tells of a change but a time that anybody can set.
            ctime: time(found.mtime(), found.mtime_nsec()),
            crtime: SystemTime::UNIX_EPOCH,
            kind: kind(found.file_type()),
            perm: found.mode() as u16 & 0o7777,
            nlink: found.nlink() as u32,
            uid: found.uid(),
            gid: found.gid(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn keep(&self, file: File) -> FileHandle {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        self.files.lock().unwrap().insert(handle, Arc::new(file));
        FileHandle(handle)
    }

    fn file(&self, handle: FileHandle) -> Arc<File> {
        Arc::clone(&self.files.lock().unwrap()[&handle.0])
    }

    fn read_at(&self, ino: INodeNo, fh: FileHandle, offset: u64, size: u32) -> Answer<Vec<u8>> {
        let path = self.path(ino);
        let mut bytes = vec![0; size as usize];
        let fault = self.wait_for_the_end_of_a_hang(&path);
        if let Some(Fault::Fail(errno)) = fault {
            return Err(errno);
        }
        let mut len = 0;
        let file = self.file(fh);
        while len < bytes.len() {
            match file.read_at(&mut bytes[len..], offset + len as u64)? {
                0 => break,
                n => len += n,
            }
        }
        bytes.truncate(len);
        match fault {
            Some(Fault::Short(most)) => bytes.truncate(most),
            Some(Fault::Corrupt(from)) => {
                let start = usize::try_from(from.saturating_sub(offset)).unwrap();
                bytes.iter_mut().skip(start).for_each(|byte| *byte ^= 0x55);
            }
            _ => {}
        }
        Ok(bytes)
    }

    /// The file's fault, once it does not hang.
    fn wait_for_the_end_of_a_hang(&self, path: &Path) -> Option<Fault> {
        let mut now = self.faults.lock();
        while let Some(Fault::Hang) = now.get(path) {
            self.faults.hanging.fetch_add(1, Ordering::SeqCst);
            now = self.faults.healed.wait(now).unwrap();
            self.faults.hanging.fetch_sub(1, Ordering::SeqCst);
        }
        now.get(path).copied()
    }

    fn sync(&self, path: &Path) -> Answer<()> {
        match self.faults.of(path) {
            Some(Fault::Sync(errno)) => Err(errno),
            _ => Ok(File::open(path)?.sync_all()?),
        }
    }
}

/// What the disk answers.
type Answer<T> = Result<T, Errno>;

fn kind(found: fs::FileType) -> FileType {
    match found {
        found if found.is_dir() => FileType::Directory,
        found if found.is_symlink() => FileType::Symlink,
        _ => FileType::RegularFile,
    }
}

fn send(answer: Answer<()>, reply: ReplyEmpty) {
    match answer {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Disk {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attr(&self.path(parent).join(name)) {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(&self.path(ino)) {
            Ok(attr) => reply.attr(&TTL, &FileAttr { ino, ..attr }),
            Err(error) => reply.error(error.into()),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let path = self.path(ino);
        let change = || -> io::Result<FileAttr> {
            if let Some(mode) = mode {
                fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o7777))?;
            }
            if uid.is_some() || gid.is_some() {
                std::os::unix::fs::chown(&path, uid, gid)?;
            }
            if let Some(size) = size {
                OpenOptions::new().write(true).open(&path)?.set_len(size)?;
            }
            self.attr(&path)
        };
        match change() {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(error) => reply.error(error.into()),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = fs::remove_file(self.path(parent).join(name));
        send(removed.map_err(Errno::from), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = (
            self.path(parent).join(name),
            self.path(newparent).join(newname),
        );
        if let Some(Fault::Rename(errno)) = self.faults.of(&to) {
            return reply.error(errno);
        }
        let renamed = fs::rename(&from, &to);
        if renamed.is_ok() {
            // Numbers stay with names; what has the old name next is another file.
            let mut paths = self.paths.lock().unwrap();
            for path in paths.iter_mut() {
                if *path == to {
                    *path = PathBuf::from("/replaced");
                } else if *path == from {
                    path.clone_from(&to);
                }
            }
        }
        send(renamed.map_err(Errno::from), reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let path = self.path(ino);
        let write = flags.0 & 0b11 != 0;
        match OpenOptions::new().read(true).write(write).open(&path) {
            // Each read of a shard comes here, and may be short. Mapped files need the kernel's pages.
            Ok(file)
                if path.extension() == Some(OsStr::new("bin")) && !path.ends_with("index.bin") =>
            {
                reply.opened(self.keep(file), FopenFlags::FOPEN_DIRECT_IO);
            }
            Ok(file) => reply.opened(self.keep(file), FopenFlags::empty()),
            Err(error) => reply.error(error.into()),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let path = self.path(parent).join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(mode);
        let made = options.open(&path);
        match made.and_then(|file| Ok((file, self.attr(&path)?))) {
            Ok((file, attr)) => {
                let handle = self.keep(file);
                reply.created(&TTL, &attr, Generation(0), handle, FopenFlags::empty());
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.read_at(ino, fh, offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.file(fh).write_all_at(data, offset) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error.into()),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        send(self.sync(&self.path(ino)), reply);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        send(self.sync(&self.path(ino)), reply);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.files.lock().unwrap().remove(&fh.0);
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let entries = match fs::read_dir(self.path(ino)) {
            Ok(entries) => entries.flatten(),
            Err(error) => return reply.error(error.into()),
        };
        for (next, entry) in (1..).zip(entries).skip(offset as usize) {
            let kind = entry.file_type().map_or(FileType::RegularFile, kind);
            if reply.add(INodeNo(entry.ino()), next, kind, entry.file_name()) {
                break;
            }
        }
        reply.ok();
    }
}
