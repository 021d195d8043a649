//! `/proc/self/mountinfo`: what is mounted where, byte for byte (paths need not be UTF-8).

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

const TABLE: &str = "/proc/self/mountinfo";

/// How our mounts show in the table; also how a leftover is known for ours.
pub(super) const FSTYPE: &str = "fuse.datasetrt-mount";

/// A device number. Each mount of a FUSE filesystem has one of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Device {
    /// Of the kind of device; 0 for file systems without a disk.
    pub major: u32,
    /// Of the one mount.
    pub minor: u32,
}

/// One mount of this process's mount namespace.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MountEntry {
    /// Its number, as in `mnt_id` of /proc/PID/fdinfo.
    pub id: u64,
    /// The mount that it lies on.
    pub parent: u64,
    /// What it shows.
    pub device: Device,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// How it is mounted there, such as `ro,noexec`.
    pub options: OsString,
    /// Its type, such as `ext4`.
    pub fstype: OsString,
    /// What it says that it shows, such as `/dev/sda1`.
    pub source: OsString,
    /// Whether mounts made in it appear in other mount namespaces too.
    pub shared: bool,
}

impl MountEntry {
    /// Whether a datasetrt-mount made it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.fstype == FSTYPE
    }

    /// Whether it is mounted with the option `name`.
    #[must_use]
    pub fn has_option(&self, name: &str) -> bool {
        let mut options = self.options.as_bytes().split(|byte| *byte == b',');
        options.any(|option| option == name.as_bytes())
    }
}

/// All mounts of this process's mount namespace.
///
/// # Errors
/// When the table cannot be read.
pub fn mounts() -> Result<Vec<MountEntry>> {
    let bytes = fs::read(TABLE).map_err(|source| Error::io(TABLE, "read", source))?;
    Ok(parse(&bytes))
}

/// The mount that a look at `path` finds: the topmost of those mounted exactly there.
///
/// # Errors
/// When the table cannot be read.
pub fn top_at(path: &Path) -> Result<Option<MountEntry>> {
    mounts().map(|table| top_in(table, path))
}

/// The mount in which the file or folder `path` lies, or would lie: by the names alone, so that
/// nothing hangs. `path` is absolute and has no symbolic links.
///
/// # Errors
/// When the table cannot be read.
pub fn around(path: &Path) -> Result<Option<MountEntry>> {
    let table = mounts()?;
    let nearest = path
        .ancestors()
        .find(|folder| table.iter().any(|entry| entry.mountpoint == *folder));
    Ok(nearest.and_then(|folder| top_in(table.clone(), folder)))
}

fn top_in(table: Vec<MountEntry>, path: &Path) -> Option<MountEntry> {
    let here: Vec<MountEntry> = table
        .into_iter()
        .filter(|entry| entry.mountpoint == path)
        .collect();
    // A mount over another at the same path has that other one as its parent.
    let covered: Vec<u64> = here.iter().map(|entry| entry.parent).collect();
    here.into_iter().rfind(|entry| !covered.contains(&entry.id))
}

/// Lines that are not understood are left out: the kernel may add new forms.
fn parse(bytes: &[u8]) -> Vec<MountEntry> {
    bytes
        .split(|byte| *byte == b'\n')
        .filter_map(parse_line)
        .collect()
}

/// `36 35 98:0 /root /mount/point rw,noatime master:1 - ext3 /dev/root rw`; see proc(5).
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let mut device = fields.next()?.split(|byte| *byte == b':');
    let major = number(device.next()?)?;
    let minor = number(device.next()?)?;
    let mountpoint = fields.nth(1)?;
    let options = fields.next()?;
    let mut shared = false;
    loop {
        match fields.next()? {
            b"-" => break,
            field => shared |= field.starts_with(b"shared:"),
        }
    }
    let (fstype, source) = (fields.next()?, fields.next()?);
    Some(MountEntry {
        id,
        parent,
        device: Device { major, minor },
        mountpoint: PathBuf::from(unescape(mountpoint)),
        options: unescape(options),
        fstype: unescape(fstype),
        source: unescape(source),
        shared,
    })
}

fn number<N: std::str::FromStr>(field: &[u8]) -> Option<N> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Undoes the kernel's `\ooo` escapes of blank, tab, newline, backslash and hash.
fn unescape(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let escaped = match after.first_chunk::<3>() {
            Some(digits) if *first == b'\\' => octal(*digits),
            _ => None,
        };
        match escaped {
            Some(byte) => {
                plain.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(plain)
}

fn octal(digits: [u8; 3]) -> Option<u8> {
    let text = std::str::from_utf8(&digits).ok()?;
    u8::from_str_radix(text, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &[u8] = b"\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
41 22 0:50 / /mnt/a\\040b\\134c\\012d rw,nosuid shared:3 master:2 - fuse.datasetrt-mount datasetrt-mount rw
42 22 0:51 / /mnt/x rw - tmpfs tmpfs rw
43 42 0:52 / /mnt/x rw - fuse.sshfs host:\\040 rw
nonsense
44 22 0:53 / /mnt/\xff,y rw - fuse f rw
";

    #[test]
    fn escaped_and_odd_paths_come_back_to_the_byte() {
        let entry = top_in(parse(SAMPLE), Path::new("/mnt/a b\\c\nd")).unwrap();
        assert_eq!(entry.fstype, "fuse.datasetrt-mount");
        assert_eq!(
            entry.device,
            Device {
                major: 0,
                minor: 50
            }
        );
        assert!(entry.is_ours() && entry.shared);
        assert!(entry.has_option("nosuid") && !entry.has_option("suid"));
        let path = Path::new(std::ffi::OsStr::from_bytes(b"/mnt/\xff,y"));
        assert!(!top_in(parse(SAMPLE), path).unwrap().shared);
    }

    #[test]
    fn the_mount_on_top_is_found_whatever_the_order_of_lines() {
        for lines in [
            SAMPLE.to_vec(),
            SAMPLE
                .split(|b| *b == b'\n')
                .rev()
                .collect::<Vec<_>>()
                .join(&b'\n'),
        ] {
            let entry = top_in(parse(&lines), Path::new("/mnt/x")).unwrap();
            assert_eq!(entry.fstype, "fuse.sshfs");
        }
    }

    #[test]
    fn a_folder_below_a_mount_is_not_one() {
        assert_eq!(top_in(parse(SAMPLE), Path::new("/mnt")), None);
    }
}
