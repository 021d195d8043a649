//! What a manifest has beside its bytes stays, or nothing is replaced.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::AtomicBool;

use datasetrt::migrate::preview_manifests;
use rustix::fs::{XattrFlags, getxattr, listxattr, setxattr};

use crate::common::acl::{ACCESS, DEFAULT, set_acl};
use crate::common::mount::{USER, as_user, finish, is_root};
use crate::files::*;

/// Owner, mode, and each attribute with its value.
type Told = (u32, u32, u32, BTreeMap<String, Vec<u8>>);

fn told(path: &Path) -> Told {
    let mut names = vec![0; 64 << 10];
    let len = listxattr(path, &mut names).unwrap_or(0);
    let names = names[..len].split(|byte| *byte == 0);
    let xattrs = names.filter(|name| !name.is_empty()).map(|name| {
        let mut value = vec![0; 64 << 10];
        let len = getxattr(path, name, &mut value[..]).unwrap();
        (
            String::from_utf8(name.to_vec()).unwrap(),
            value[..len].to_vec(),
        )
    });
    let meta = fs::metadata(path).unwrap();
    (meta.uid(), meta.gid(), meta.mode(), xattrs.collect())
}

/// Sets an attribute, or says why it is left out.
fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    match setxattr(path, name, value, XattrFlags::empty()) {
        Ok(()) => true,
        Err(error) => {
            eprintln!("SKIPPED: {name} on {}: {error}", path.display());
            false
        }
    }
}

/// `cap_net_raw=ep`, as the kernel keeps it.
const CAPABILITY: [u8; 20] = [
    1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

#[test]
fn acls_and_attributes_stay_and_the_folders_default_is_not_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let list = v2_caches(folder.path(), 6);
    let paths: Vec<PathBuf> = list.iter().map(|cache| manifest_path(cache)).collect();
    for path in &paths {
        fs::set_permissions(path, Permissions::from_mode(0o640)).unwrap();
    }
    // The mask lets named users write, and the group not.
    let acl = "u::rw-,u:1000:rw-,g::r--,m::rw-,o::---";
    if !set_acl(&paths[0], ACCESS, acl) {
        return;
    }
    let default = "u::rwx,u:1001:rwx,g::rwx,m::rwx,o::r-x";
    for n in [1, 2] {
        assert!(set_acl(&list[n], DEFAULT, default));
    }
    assert!(set_acl(&paths[2], ACCESS, acl));
    let _ = set(&paths[3], "user.note", b"kept") && set(&paths[3], "user.empty", b"");
    let _ = set(&paths[4], "trusted.note", &[0, 255]);
    let _ = set(&paths[4], "security.capability", &CAPABILITY);
    // A mask narrower than the group's entry, and an owner who is not who migrates.
    assert!(set_acl(
        &paths[5],
        ACCESS,
        "u::rw-,g::rw-,g:7:r--,m::r--,o::---"
    ));
    if is_root("changing an owner") {
        chown(&paths[5], Some(1234), Some(2345)).unwrap();
    }
    let before: Vec<Told> = paths.iter().map(|path| told(path)).collect();
    assert!(before[0].3.contains_key(ACCESS) && before[1].3.is_empty());

    let dataset = open(&list);
    preview_manifests(&dataset, 3, &AtomicBool::new(false)).unwrap();
    dataset.update_manifests(3).unwrap();
    for ((cache, path), before) in list.iter().zip(&paths).zip(&before) {
        assert_eq!(stored(cache).0, 3);
        assert_eq!(told(path), *before, "{}", path.display());
        assert!(temporary_files(cache).is_empty());
    }
}

#[test]
fn what_cannot_be_kept_is_named_before_anything_is_replaced() {
    if !is_root("attributes of the system") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let list = v2_caches(folder.path(), 3);
    let name = "security.ima";
    if !set(&manifest_path(&list[1]), name, &[1; 21]) {
        return;
    }
    let files = snapshot(folder.path());
    let dataset = open(&list);
    let preview = preview_manifests(&dataset, 3, &AtomicBool::new(false)).unwrap_err();
    let error = dataset.update_manifests(3).unwrap_err();
    for error in [preview, error] {
        assert_eq!(error.path, Some(manifest_path(&list[1])));
        assert!(error.message.contains(name), "{}", error.message);
        assert!(error.entries.is_empty());
    }
    assert_eq!(snapshot(folder.path()), files);
}

#[test]
fn who_cannot_keep_owner_or_attribute_replaces_nothing() {
    if !is_root("becoming another user") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let list = v2_caches(folder.path(), 3);
    for cache in &list {
        for path in [cache.clone(), manifest_path(cache)] {
            chown(path, Some(USER), Some(USER)).unwrap();
        }
    }
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let files = snapshot(folder.path());
    let migrate = || {
        let mut command = as_user(folder.path(), "datasetrt");
        command.args(["migrate", "--to", "3"]).args(&list);
        finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    };
    let unchanged = |what: &str| {
        let output = migrate();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(what), "{said}");
        let mut now = snapshot(folder.path());
        now.remove(&folder.path().join("datasetrt"));
        assert_eq!(now, files);
    };
    let last = manifest_path(&list[2]);
    chown(&last, Some(0), Some(USER)).unwrap();
    unchanged("owner");
    chown(&last, Some(USER), Some(USER)).unwrap();
    if set(&last, "security.capability", &CAPABILITY) {
        unchanged("security.capability");
        rustix::fs::removexattr(&last, "security.capability").unwrap();
    }
    assert!(migrate().status.success());
}
