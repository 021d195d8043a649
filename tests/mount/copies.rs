//! Copies of a mount made by tools: the same bytes under the same names, and removed again by whom they belong to.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::common::fixture::Fixture;
use crate::common::mount::{as_user, can_be_user, can_mount, program};
use crate::live::{HANGS_AFTER, Live, Place, command, run};

/// Content and inode number of each file below `top`, by path; `.control` is left out.
fn files(top: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u64)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![top.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            if meta.is_dir() && !path.ends_with(".control") {
                folders.push(path);
            } else if meta.is_file() {
                let name = path.strip_prefix(top).unwrap().to_path_buf();
                found.insert(name, (fs::read(&path).unwrap(), meta.ino()));
            }
        }
    }
    found
}

fn mount(place: &Place) -> Live {
    let names = ["one", "two", "three"];
    let payload = |name: &str| {
        (0..20)
            .map(move |n| format!("{n} of {name}"))
            .collect::<Vec<_>>()
    };
    let caches = names.map(|name| {
        let folder = place.path().join(name);
        let fixture = Fixture::new().name(name).payloads(payload(name));
        match folder.exists() {
            true => crate::common::fixture::TestCache::at(&folder),
            false => place.cache(name, fixture),
        }
    });
    let mut mount = program();
    mount.args([
        "--no-auto-views",
        "--view",
        "all={source_name}/{sample_id}{ext}",
    ]);
    place.mount_by(mount, &caches.iter().collect::<Vec<_>>())
}

#[test]
fn a_copy_by_cpio_has_the_bytes_of_each_file() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let live = mount(&place);
    let copy = place.point();
    let found = files(&live.guard.point);
    assert!(found.len() > 3 * 40, "{:?}", found.keys());
    assert!(found.values().all(|(_, number)| *number < 1 << 32));
    for format in ["newc", "crc"] {
        let script = "cd \"$1\" && find . -path ./.control -prune -o -print0 | \
            cpio -0 -o --quiet -H $3 | (cd \"$2\" && cpio -id --quiet)";
        let mut words = command(&["sh", "-c", script, "sh"]);
        words.arg(&live.guard.point).arg(&copy).arg(format);
        let output = run(&mut words, HANGS_AFTER);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.is_empty(), "{said}");
        let copied = files(&copy);
        assert!(copied.keys().eq(found.keys()), "{format}");
        for (path, (bytes, _)) in &copied {
            assert_eq!(*bytes, found[path].0, "{format}: {path:?}");
        }
        fs::remove_dir_all(&copy).unwrap();
        fs::create_dir(&copy).unwrap();
    }
    live.stop();
    assert_eq!(
        files(&mount(&place).guard.point),
        found,
        "another mount has the same"
    );
}

#[test]
fn a_user_can_remove_a_copy_of_his_own() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = Place::new();
    let mut live = program();
    live.arg("--allow-other");
    let cache = place.cache("cache", Fixture::new().payloads(["a", "b"]));
    let live = place.mount_by(live, &[&cache]);
    let home = place.point();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o777)).unwrap();
    let copy = home.join("copy");
    let by_user = |program: &str, words: &[&str], path: &Path| {
        let mut command = as_user(place.path(), program);
        command.args(words).arg(path).stdout(Stdio::null());
        run(&mut command, HANGS_AFTER)
    };
    let from = live.path("samples");
    let copied = by_user("cp", &["-r", from.to_str().unwrap()], &copy);
    assert!(copied.status.success(), "{copied:?}");
    let mode = |path: &str| fs::metadata(live.path(path)).unwrap().mode() & 0o7777;
    for folder in [
        "",
        "samples",
        "samples/../caches",
        "views",
        "by-name",
        ".control",
    ] {
        assert_eq!(mode(folder), 0o755, "{folder}");
    }
    assert_eq!(fs::read_dir(&copy).unwrap().count(), 1);
    let removed = by_user("rm", &["-r"], &copy);
    assert!(removed.status.success(), "{removed:?}");
    assert!(!copy.exists());
    // A folder that its owner may write to is read-only all the same.
    let made = fs::write(live.path("samples/new"), "x").unwrap_err();
    assert_eq!(made.raw_os_error(), Some(30));
}
