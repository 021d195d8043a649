//! mount(8), fstab and the mount helper of fuse3, which calls our program by name through a shell.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::mount::{
    MountGuard, can_mount, finish, is_mounted, is_root, mount_options, skip,
};
use crate::{Place, assert_ready, place, text};

/// mount(8) gives its helpers this PATH whatever its own is, so the program must lie in one of these.
const INSTALLED: &str = "/usr/local/bin";

/// Whether mount(8) and its helper are there and we may use them.
fn can_use_mount() -> bool {
    if !can_mount() {
        return false;
    }
    if !is_root("mount(8)") {
        return false;
    }
    Path::new("/sbin/mount.fuse").exists() || skip("no /sbin/mount.fuse (package fuse3)")
}

/// A folder with the built program in it, as installed.
fn installed(place: &Place) -> PathBuf {
    let bin = place.folder.path().join("bin");
    fs::create_dir_all(&bin).unwrap();
    let program = bin.join("datasetrt-mount");
    if !program.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_datasetrt-mount"), &program).unwrap();
    }
    bin
}

/// Runs `script` with `sh` where the program is installed, in a mount namespace of its own in which
/// it sees and leaves nothing of this machine. `$1` and so on are `arguments`.
fn run_installed(place: &Place, script: &str, arguments: &[&OsStr]) {
    let script = format!("set -eu; mount --bind \"$0\" {INSTALLED}; {script}");
    let output = finish(
        Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &script])
            .arg(installed(place))
            .args(arguments)
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output));
}

/// The daemons of a namespace end once their mount is gone; every script ends with this.
const NONE_LEFT: &str = "
    for n in $(seq 100); do mountpoint -q \"$2\" || break; sleep 0.02; done
    ! mountpoint -q \"$2\"";

#[test]
fn mount_with_a_type_mounts_and_umount_ends_it() {
    if !can_use_mount() {
        return;
    }
    let place = place();
    let point = place.point("m");
    let script = format!(
        "mount -t fuse.datasetrt-mount \"$1\" \"$2\" -o allow_other,validate_cache=access
        [ \"$(cat \"$2\"/samples/0/0)\" = hello ]
        findmnt -n -o OPTIONS \"$2\" | grep -q allow_other
        grep -q '\"validation\": \"access\"' \"$2\"/.control/status
        umount \"$2\"
        mount -t fuse datasetrt-mount#\"$1\" \"$2\" -o ro,noexec
        findmnt -n -o FSTYPE,OPTIONS \"$2\" | grep -q '^fuse.datasetrt-mount .*noexec'
        [ \"$(cat \"$2\"/samples/0/0)\" = hello ]
        umount \"$2\"{NONE_LEFT}"
    );
    run_installed(
        &place,
        &script,
        &[place.tiny.cache.as_os_str(), point.as_os_str()],
    );
}

#[test]
fn paths_that_a_shell_would_take_apart_arrive_whole() {
    if !can_use_mount() {
        return;
    }
    let place = place();
    for name in [
        "a b",
        "a,ro",
        "it's",
        "$HOME `id`",
        "a\\b",
        "a;b&c",
        "\"q\"",
        "\u{e9}",
    ] {
        let cache = place.folder.path().join(format!("cache {name}"));
        fs::rename(&place.tiny.cache, &cache).unwrap();
        let point = place.point(format!("m {name}"));
        let log = place.folder.path().join("log,a");
        let script = format!(
            "mount -t fuse.datasetrt-mount \"$1\" \"$2\" -o \"log_file=\\\"$3\\\"\"
            [ \"$(cat \"$2\"/samples/0/0)\" = hello ]
            until grep -q mounted \"$3\"; do sleep 0.02; done
            umount \"$2\"{NONE_LEFT}"
        );
        let arguments = [cache.as_os_str(), point.as_os_str(), log.as_os_str()];
        run_installed(&place, &script, &arguments);
        fs::rename(&cache, &place.tiny.cache).unwrap();
    }
}

#[test]
fn a_line_of_fstab_mounts() {
    if !can_use_mount() {
        return;
    }
    let place = place();
    let point = place.point("m x");
    let table = place.folder.path().join("fstab");
    let escaped = |path: &Path| path.to_str().unwrap().replace(' ', "\\040");
    for options in [
        "defaults",
        "ro,nofail,x-systemd.automount,x-systemd.idle-timeout=10min,x-systemd.requires-mounts-for=/tmp",
        "rw,user,noauto,_netdev,dev,suid,exec,allow_other,threads=2,comment=hello",
        "users,noatime,lazytime,nosymfollow,x-gvfs-show,skip_invalid,cache_memory=64MiB",
        "owner,group,auto,sync,dirsync,relatime,uid=1000,gid=1000,umask=077",
    ] {
        let line = format!(
            "{} {} fuse.datasetrt-mount {options} 0 0\n",
            escaped(&place.tiny.cache),
            escaped(&point)
        );
        fs::write(&table, line).unwrap();
        let script = format!(
            "findmnt --verify --tab-file \"$1\" >/dev/null || true
            mount -T \"$1\" \"$2\"
            [ \"$(cat \"$2\"/samples/0/0)\" = hello ]
            mount -T \"$1\" -o remount,ro \"$2\"
            findmnt -n -o OPTIONS \"$2\" | grep -q '^ro,'
            [ \"$(cat \"$2\"/samples/0/1)\" = other ]
            mount -T \"$1\" -o remount,rw \"$2\"
            findmnt -n -o OPTIONS \"$2\" | grep -q '^rw,'
            mount -o remount,ro \"$2\"
            findmnt -n -o OPTIONS \"$2\" | grep -q '^ro,'
            umount -T \"$1\" \"$2\" 2>/dev/null || umount \"$2\"{NONE_LEFT}"
        );
        run_installed(&place, &script, &[table.as_os_str(), point.as_os_str()]);
    }
}

#[test]
fn what_is_mounted_already_mount_a_leaves_alone() {
    if !can_use_mount() {
        return;
    }
    let place = place();
    let table = place.folder.path().join("fstab");
    let escaped = |path: &Path| {
        let text = path.to_str().unwrap().replace('\\', "\\134");
        text.replace(' ', "\\040")
            .replace('\t', "\\011")
            .replace('#', "\\043")
    };
    for name in ["plain", "a b", "tab\there", "a,ro", "it's \\ #1", "\u{e9}"] {
        let cache = place.folder.path().join(name);
        fs::rename(&place.tiny.cache, &cache).unwrap();
        let point = place.point(format!("m {name}"));
        let line = format!(
            "{} {} fuse.datasetrt-mount ro 0 0\n",
            escaped(&cache),
            escaped(&point)
        );
        fs::write(&table, line).unwrap();
        let script = format!(
            "for n in 1 2 3; do mount -a -T \"$1\"; done
            [ \"$(findmnt -n -o TARGET \"$2\" | wc -l)\" = 1 ]
            [ \"$(cat \"$2\"/samples/0/0)\" = hello ]
            umount \"$2\"{NONE_LEFT}"
        );
        run_installed(&place, &script, &[table.as_os_str(), point.as_os_str()]);
        fs::rename(&cache, &place.tiny.cache).unwrap();
    }
}

#[test]
fn the_helper_says_why_it_cannot_mount() {
    if !can_use_mount() {
        return;
    }
    let place = place();
    let guard = MountGuard::at(place.point("m"));
    let missing = place.folder.path().join("missing");
    let mut path = installed(&place).into_os_string();
    path.push(":/usr/sbin:/usr/bin:/sbin:/bin");
    let mount = |source: &Path, options: &str| {
        let mut helper = Command::new("/sbin/mount.fuse");
        helper
            .arg(source)
            .arg(&guard.point)
            .args(["-o", options, "-t", "fuse.datasetrt-mount"])
            .env("PATH", &path)
            .env_remove("RUST_LOG")
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        finish(&mut helper)
    };
    for (source, options, cause) in [
        (&missing, "rw", "missing"),
        (
            &place.tiny.cache,
            "rw,alow_other",
            "unknown mount option `alow_other`",
        ),
    ] {
        let output = mount(source, options);
        assert!(!output.status.success());
        assert!(text(&output).contains(cause), "{}", text(&output));
        assert!(guard.is_gone());
    }
    assert_ready(&mount(
        &place.tiny.cache,
        "rw,noexec,nosuid,nodev,user=alice",
    ));
    assert!(mount_options(&guard.point).unwrap().contains("noexec"));
    assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);
    // Not a byte that is not UTF-8, either.
    assert!(
        finish(Command::new("umount").arg(&guard.point))
            .status
            .success()
    );
    let odd = MountGuard::at(place.point(OsStr::from_bytes(b"m\xff")));
    let mut helper = Command::new("/sbin/mount.fuse");
    helper
        .arg(&place.tiny.cache)
        .arg(&odd.point)
        .args(["-t", "fuse.datasetrt-mount"])
        .env("PATH", &path);
    assert_ready(&finish(&mut helper));
    assert!(is_mounted(&odd.point));
}
