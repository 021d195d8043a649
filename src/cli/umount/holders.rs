//! Who uses a mount: a walk over /proc that asks nothing of the mount itself, which may hang.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::fuse::{self, MountEntry};

/// How long a look at one process may take.
const LOOK: Duration = Duration::from_secs(1);

/// How a process uses a mount.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Uses {
    /// Its working folder lies in it.
    Folder,
    /// Its root folder lies in it.
    Root,
    /// Its program does.
    Program,
    /// It has a file or folder open.
    Open,
    /// It has a file mapped.
    Mapped,
}

/// One process, and the first thing found that it uses.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) pid: u32,
    pub(super) user: String,
    pub(super) command: String,
    pub(super) uses: Uses,
    pub(super) path: PathBuf,
}

/// All that keeps a mount busy, as far as this user can see.
#[derive(Clone, Debug, Default)]
pub(super) struct Holders {
    /// Processes, by number.
    pub(super) found: Vec<Holder>,
    /// Mounts inside it.
    pub(super) mounts: Vec<PathBuf>,
    /// Processes that could not be looked at.
    pub(super) hidden: u64,
}

/// Looks at all processes.
pub(super) fn of(mount: &MountEntry) -> Holders {
    let mut holders = Holders::default();
    let table = fuse::mounts().unwrap_or_default();
    let inside = table.into_iter().filter(|other| other.parent == mount.id);
    holders.mounts = inside.map(|other| other.mountpoint).collect();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in entries {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let folder = entry.path();
        // What a process maps cannot be read while it waits for a page of a mount that hangs.
        let (process, held) = (folder.clone(), mount.clone());
        let looked = fuse::within(LOOK, move || first_use(&process, &held));
        match looked.unwrap_or(Looked::Hidden) {
            Looked::Uses(uses, path) => holders.found.push(Holder {
                pid,
                user: user_of(&folder, &users),
                command: command_of(&folder),
                uses,
                path,
            }),
            Looked::Nothing => {}
            Looked::Hidden => holders.hidden += 1,
        }
    }
    holders.found.sort_by_key(|holder| holder.pid);
    holders
}

enum Looked {
    Uses(Uses, PathBuf),
    Nothing,
    /// It belongs to somebody else, or hangs.
    Hidden,
}

/// What the process with the folder `process` in /proc uses, the most telling thing first.
fn first_use(process: &Path, mount: &MountEntry) -> Looked {
    let links = [
        ("cwd", Uses::Folder),
        ("root", Uses::Root),
        ("exe", Uses::Program),
    ];
    // A process may end while we look: then nothing of it is found, and it holds nothing.
    let descriptors = match fs::read_dir(process.join("fd")) {
        Ok(descriptors) => descriptors,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Looked::Hidden;
        }
        Err(_) => return Looked::Nothing,
    };
    let open = descriptors.flatten().map(|open| (open.path(), Uses::Open));
    let links = links.map(|(name, uses)| (process.join(name), uses));
    for (link, uses) in links.into_iter().chain(open) {
        if lies_in(&link, mount) {
            return Looked::Uses(uses, fs::read_link(&link).unwrap_or_default());
        }
    }
    match mapped(process, mount) {
        Some(path) => Looked::Uses(Uses::Mapped, path),
        None => Looked::Nothing,
    }
}

/// Whether what `link` of /proc leads to lies in the mount. Nothing is asked for but what the
/// kernel has at hand, so the mount's daemon hears nothing of it.
fn lies_in(link: &Path, mount: &MountEntry) -> bool {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    match statx(CWD, link, flags, StatxFlags::empty()) {
        Ok(found) if found.stx_mask & StatxFlags::MNT_ID.bits() != 0 => {
            found.stx_mnt_id == mount.id
        }
        // A kernel before 5.8, or no permission.
        _ => fs::read_link(link).is_ok_and(|target| target.starts_with(&mount.mountpoint)),
    }
}

/// The first mapped file of the mount. The list of mappings has the device of each.
fn mapped(process: &Path, mount: &MountEntry) -> Option<PathBuf> {
    let maps = fs::read(process.join("maps")).ok()?;
    let maps = String::from_utf8_lossy(&maps);
    let device = format!("{:02x}:{:02x}", mount.device.major, mount.device.minor);
    // `7f01-7f02 r--s 00000000 00:2f 1099511627792  /mnt/data/samples/0/0`
    maps.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let range = fields.next()?;
        if fields.nth(2)? != device {
            return None;
        }
        let path = line.split_once('/').map(|(_, path)| format!("/{path}"));
        // The same device may be mounted elsewhere too; where we may look closer, we do.
        let file = process.join("map_files").join(range);
        let closer = fs::read_link(&file).is_err() || lies_in(&file, mount);
        closer.then(|| PathBuf::from(path.unwrap_or_default()))
    })
}

/// The name of the process's user, or the number where /etc/passwd does not have it.
fn user_of(process: &Path, users: &str) -> String {
    let Ok(found) = fs::metadata(process) else {
        return "unknown".to_owned();
    };
    let number = found.uid().to_string();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    });
    name.unwrap_or(number)
}

fn command_of(process: &Path) -> String {
    let name = fs::read(process.join("comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}
