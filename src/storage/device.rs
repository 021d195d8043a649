//! What the file systems below promise, and which devices are mounts of this process.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, StatxFlags, fstatfs, makedev, statx};

/// What a file system is known to keep.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct FsKind {
    /// A file has the same inode number for as long as it exists.
    pub(super) numbered: bool,
    /// The system alone sets ctime, and it moves with each change.
    pub(super) keeps_ctime: bool,
    /// Its files are made by the kernel as they are read (/proc): reading them may change something.
    pub(super) of_kernel: bool,
}

/// File systems (statfs(2), `f_type`) that give a file another inode number once it was forgotten.
const UNNUMBERED: [u64; 6] = [
    0x6573_5546, // FUSE
    0x4d44,      // FAT
    0x2011_bab0, // exFAT
    0x517b,      // SMB
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2
];

/// File systems whose ctime is set by the system that keeps it, at each change. Those that lie over others
/// (FUSE, overlay) keep what these keep, which is not known here.
const KEEPS_CTIME: [u64; 10] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0xf2f5_2010, // F2FS
    0x0102_1994, // tmpfs
    0x2fc1_2fc1, // ZFS
    0xca45_1a4e, // bcachefs
    0x6969,      // NFS: by the protocol, the server
    0x00c3_6400, // Ceph
    0x0bd0_0bd0, // Lustre
];

/// File systems without files of their own.
const OF_KERNEL: [u64; 10] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0xf97c_ff8c, // selinuxfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x1cd1,      // devpts
    0x6e73_6673, // nsfs
];

impl FsKind {
    /// The kind of the file system that `file` lies on. Of one that does not say, nothing is known.
    pub(super) fn of(file: impl AsFd) -> Self {
        match fstatfs(file) {
            // The field is a signed number of 32 bits on some machines.
            #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast)]
            Ok(found) => Self::of_type(found.f_type as u64 & 0xffff_ffff),
            Err(_) => Self::of_type(0x6573_5546),
        }
    }

    fn of_type(magic: u64) -> Self {
        Self {
            numbered: !UNNUMBERED.contains(&magic),
            keeps_ctime: KEEPS_CTIME.contains(&magic),
            of_kernel: OF_KERNEL.contains(&magic),
        }
    }
}

static OWN: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// Notes that `device` (`st_dev`) is a mount that this process serves. From now on no file on it is
/// opened as part of a cache: this process would wait for itself.
pub fn note_own_device(device: u64) {
    OWN.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(device);
}

/// Refuses `file` on a mount that this process serves. Asks no file system anything: the one that is
/// refused would be asked by the thread that has to answer.
pub(super) fn refuse_own(file: impl AsFd) -> io::Result<()> {
    let own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    if own.is_empty() {
        return Ok(());
    }
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = match statx(file, "", flags, StatxFlags::empty()) {
        Ok(found) => found,
        // Before Linux 4.11, or where calls are filtered: it cannot be known beforehand.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    match own.contains(&makedev(found.stx_dev_major, found.stx_dev_minor)) {
        false => Ok(()),
        true => Err(io::Error::other(
            "it lies in the mount that would serve it: a link or a mount leads back",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_are_known_by_what_they_keep() {
        let of = |path: &str| FsKind::of(std::fs::File::open(path).unwrap());
        let kernel = of("/proc");
        assert!(kernel.of_kernel && !kernel.keeps_ctime);
        let dir = tempfile::tempdir().unwrap();
        assert!(!of(dir.path().to_str().unwrap()).of_kernel);
        // FUSE, and what nobody knows: no receipts.
        assert!(!FsKind::of_type(0x6573_5546).numbered);
        assert!(!FsKind::of_type(0x6573_5546).keeps_ctime);
        assert!(!FsKind::of_type(0x1234_5678).keeps_ctime);
        assert!(FsKind::of_type(0xef53).numbered && FsKind::of_type(0xef53).keeps_ctime);
    }

    #[test]
    fn a_file_on_a_mount_of_this_process_is_refused_and_others_are_not() {
        // The root of a device that no cache of another test lies on.
        let file = std::fs::File::open("/proc/self").unwrap();
        refuse_own(&file).unwrap();
        note_own_device(std::os::unix::fs::MetadataExt::dev(
            &file.metadata().unwrap(),
        ));
        assert!(refuse_own(&file).is_err());
        let dir = tempfile::tempdir().unwrap();
        refuse_own(std::fs::File::open(dir.path()).unwrap()).unwrap();
    }
}
