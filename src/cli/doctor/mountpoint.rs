//! The place to mount at.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::process::geteuid;

use super::Check;
use crate::cli::mount;
use crate::dataset::Dataset;
use crate::fuse;

const NAME: &str = "mountpoint";
const STICKY: u32 = 0o1000;

/// Checks of `mountpoint`, and of how it lies to the caches.
pub(super) fn checks(mountpoint: &Path, caches: Option<&Dataset>) -> Vec<Check> {
    let resolved = match fuse::resolve(mountpoint) {
        Ok(resolved) => resolved,
        Err(error) => {
            let quoted = fuse::quoted(mountpoint);
            let fix = match fs::symlink_metadata(mountpoint) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    format!("mkdir -p {quoted}")
                }
                _ => format!("datasetrt umount --lazy {quoted}"),
            };
            return vec![Check::fail(NAME, error.chain(), fix)];
        }
    };
    let mut checks = vec![folder(&resolved)];
    checks.extend(propagation(&resolved));
    let overlap = caches.and_then(|caches| mount::check_apart(caches, &resolved, mountpoint).err());
    if let Some(error) = overlap {
        checks.push(Check::fail(
            NAME,
            error.chain(),
            "choose another mountpoint",
        ));
    }
    checks
}

fn folder(at: &Path) -> Check {
    let shown = at.display();
    let quoted = fuse::quoted(at);
    let top = fuse::top_at(at).ok().flatten();
    if let Some(top) = top {
        if top.is_ours() {
            let fix = format!("datasetrt umount {quoted}, before mounting there again");
            return Check::warn(
                NAME,
                format!("{shown} has a datasetrt-mount on it already"),
                fix,
            );
        }
        let what = top.fstype.to_string_lossy();
        let found = format!("{shown} is where a file system of type {what} is mounted");
        return Check::warn(
            NAME,
            found,
            "the mount would hide it: use a folder of its own",
        );
    }
    let found = match fs::metadata(at) {
        Ok(found) if found.is_dir() => found,
        Ok(_) => {
            return Check::fail(
                NAME,
                format!("{shown} is not a directory"),
                "use a directory",
            );
        }
        Err(error) => {
            return Check::fail(NAME, format!("{shown}: {error}"), "use another directory");
        }
    };
    // What fusermount3 asks of a mountpoint.
    let own = found.uid() == geteuid().as_raw();
    let sticky = found.mode() & STICKY != 0;
    let may = geteuid().is_root() || own || (!sticky && access(at, Access::WRITE_OK).is_ok());
    if !may {
        let found =
            format!("{shown} is not yours: ordinary users mount at folders that they may write");
        return Check::fail(
            NAME,
            found,
            format!("chown {} {quoted} (as root)", geteuid().as_raw()),
        );
    }
    let empty = fs::read_dir(at).is_ok_and(|mut entries| entries.next().is_none());
    if !empty {
        let found = format!("{shown} is not empty: what is in it is hidden while mounted");
        return Check::warn(NAME, found, "use an empty folder");
    }
    Check::ok(NAME, format!("{shown} is free"))
}

/// Whether a mount made there shows in other mount namespaces, such as those of containers.
fn propagation(at: &Path) -> Option<Check> {
    let name = "propagation";
    let around = fuse::around(at.parent().unwrap_or(at)).ok().flatten()?;
    let below = around.mountpoint.display();
    if around.shared {
        let found =
            format!("{below} is shared: other namespaces see the mount if they take it as rslave");
        return Some(Check::ok(name, found));
    }
    let quoted = fuse::quoted(&around.mountpoint);
    Some(Check::warn(
        name,
        format!(
            "{below} is private: containers and services that run already will not see the mount"
        ),
        format!(
            "mount --make-rshared {quoted} (as root), or in a container a bind with rshared / Bidirectional"
        ),
    ))
}
