//! Readers that try to change what all others read, root among them.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::fixture::Fixture;
use crate::common::mount::{
    MountGuard, USER, as_user, can_be_user, can_mount, finish, is_root, program, skip, within,
};
use crate::{Place, place, text};

const EACCES: i32 = 13;
const EROFS: i32 = 30;
const EOVERFLOW: i32 = 75;

/// What numpy.memmap and numpy.lib.format.open_memmap do, without numpy.
const MEMMAP: &str = "
import mmap, sys
with open(sys.argv[1], 'r+b') as file:
    mapped = mmap.mmap(file.fileno(), 0)
    mapped[:4] = b'EVIL'
    if len(sys.argv) > 2:
        mapped.flush()
";

fn memmap(file: &Path, flush: &[&str]) -> Output {
    let mut python = Command::new("python3");
    python.args(["-c", MEMMAP]).arg(file).args(flush);
    finish(python.stdin(Stdio::null()).stderr(Stdio::piped()))
}

fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output();
    found.is_ok() || skip("no python3")
}

/// Samples with fields, of everybody's cache, and their mount with a view.
fn shared_mount(place: &Place) -> MountGuard {
    let cache = place.folder.path().join("shared");
    let _ = Fixture::new()
        .payloads([b"hello\n", b"other\n"])
        .write(&cache);
    let mut guard = MountGuard::at(place.point("shared-mount"));
    let mut command = program();
    command.args(["--allow-other", "--view", "all={sample_id}.txt"]);
    guard.foreground(command, &cache);
    guard
}

/// A file of each kind that never changes, found in the mount.
fn files(guard: &MountGuard) -> Vec<std::path::PathBuf> {
    let mut found = vec![guard.point.join("metadata.arrow")];
    for folder in ["samples", "caches"] {
        let cache = fs::read_dir(guard.point.join(folder)).unwrap().next();
        let cache = cache.unwrap().unwrap().path();
        found.extend(
            fs::read_dir(cache)
                .unwrap()
                .map(|entry| entry.unwrap().path()),
        );
    }
    let view = fs::read_dir(guard.point.join("views/all")).unwrap();
    found.extend(view.map(|entry| entry.unwrap().path()));
    assert!(found.len() >= 7, "{found:?}");
    found
}

#[test]
fn no_process_opens_for_writing_what_all_read() {
    if !can_mount() || !is_root("having all privileges") {
        return;
    }
    let place = place();
    let guard = shared_mount(&place);
    for path in files(&guard) {
        let before = fs::read(&path).unwrap();
        let write = |options: &mut OpenOptions| options.open(&path).map(drop);
        let attempts = [
            ("write", write(OpenOptions::new().write(true))),
            (
                "read and write",
                write(OpenOptions::new().read(true).write(true)),
            ),
            ("append", write(OpenOptions::new().append(true))),
            (
                "O_TRUNC",
                write(OpenOptions::new().write(true).truncate(true)),
            ),
            ("create", write(OpenOptions::new().write(true).create(true))),
        ];
        for (what, result) in attempts {
            let errno = result.unwrap_err().raw_os_error();
            assert_eq!(errno, Some(EACCES), "{what} {}", path.display());
        }
        let chmod = fs::set_permissions(&path, fs::Permissions::from_mode(0o666));
        assert_eq!(chmod.unwrap_err().raw_os_error(), Some(EOVERFLOW));
        let truncate = Command::new("truncate")
            .args(["-s", "0"])
            .arg(&path)
            .output();
        assert!(!truncate.unwrap().status.success());
        // A file that is given a group is asked about, and keeps what it has.
        let errno = chown(&path, Some(0), Some(0)).unwrap_err().raw_os_error();
        assert_eq!(errno, Some(EROFS), "chown {}", path.display());
        assert!(OpenOptions::new().write(true).open(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), before, "{}", path.display());
        let shown = fs::metadata(&path).unwrap();
        assert_eq!(
            (shown.mode() & 0o7777, shown.gid()),
            (0o444, overflow_gid())
        );
    }
}

/// What the kernel shows for a group that it cannot map.
fn overflow_gid() -> u32 {
    let text = fs::read_to_string("/proc/sys/fs/overflowgid").unwrap();
    text.trim().parse().unwrap()
}

#[test]
fn a_mapping_for_writing_is_refused_to_root_and_to_users() {
    if !can_mount() || !can_be_user() || !has_python() {
        return;
    }
    let place = place();
    let guard = shared_mount(&place);
    let folder = place.folder.path();
    for path in files(&guard) {
        let before = fs::read(&path).unwrap();
        let said = text(&memmap(&path, &[]));
        let name = path.display();
        assert!(said.contains("PermissionError"), "{name}: {said}");
        let mut shell = as_user(folder, "sh");
        shell.args(["-c", ": <>\"$0\""]).arg(&path);
        let said = text(&finish(shell.stderr(Stdio::piped())));
        assert!(said.contains("Permission denied"), "{name}: {said}");
        let seen = finish(as_user(folder, "cat").arg(&path).stdout(Stdio::piped()));
        assert_eq!(seen.stdout, before, "{}", path.display());
    }
}

#[test]
fn what_is_written_where_a_group_has_rights_of_its_own_is_dropped_at_once() {
    if !can_mount() || !is_root("passing mode bits") || !has_python() {
        return;
    }
    let place = place();
    for file in ["index.bin", "metadata.arrow", "manifest.json"] {
        let path = place.tiny.cache.join(file);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        chown(&path, None, Some(USER)).unwrap();
    }
    for options in [
        &["--allow-other"][..],
        &["--allow-other", "--gid", "7", "--umask", "0"],
    ] {
        let mut guard = MountGuard::at(place.point("m"));
        let mut command = program();
        command.args(options);
        guard.foreground(command, &place.tiny.cache);
        let path = guard.point.join(place.tiny.sample);
        let shown = fs::metadata(&path).unwrap();
        let expected = if options.len() == 1 {
            (0o440, USER)
        } else {
            (0o444, 7)
        };
        assert_eq!((shown.mode() & 0o7777, shown.gid()), expected);

        assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);
        let said = text(&memmap(&path, &["flush"]));
        assert!(said.contains("OSError"), "{said}");
        let right = || {
            guard
                .read(place.tiny.sample)
                .is_ok_and(|read| read == place.tiny.payload)
        };
        assert!(within(right), "{:?}", guard.read(place.tiny.sample));
        let refused = refused_writes(&guard);
        assert!(refused > 0);

        let mut file = OpenOptions::new().write(true).open(&path).unwrap();
        let errno = file.write_all(b"EVIL").unwrap_err().raw_os_error();
        assert_eq!(errno, Some(EROFS));
        assert!(within(right), "{:?}", guard.read(place.tiny.sample));
        assert!(refused_writes(&guard) > refused);
        let log = String::from_utf8(guard.read(".control/log").unwrap()).unwrap();
        let lines = log
            .lines()
            .filter(|line| line.contains("/samples/0/0: a process wrote"));
        assert_eq!(lines.count(), 1, "{log}");
    }
}

/// As `.control/status` and `.control/metrics` have it, once both say the same.
fn refused_writes(guard: &MountGuard) -> u64 {
    let line = "datasetrt_writes_refused_total ";
    let mut counted = None;
    let agree = || {
        let status = guard.read(".control/status").unwrap();
        let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
        counted = status["counters"]["writes_refused"].as_u64();
        let metrics = String::from_utf8(guard.read(".control/metrics").unwrap()).unwrap();
        let value = metrics.lines().find_map(|text| text.strip_prefix(line));
        value.unwrap().parse().ok() == counted
    };
    assert!(within(agree));
    counted.unwrap()
}

#[test]
fn copies_by_root_keep_all_but_a_group_that_nobody_has() {
    if !can_mount() || !is_root("giving files away") {
        return;
    }
    let place = place();
    for (options, group) in [(&[][..], overflow_gid()), (&["--gid", "7"], 7)] {
        let mut guard = MountGuard::at(place.point("m"));
        let mut command = program();
        command.args(options);
        guard.foreground(command, &place.tiny.cache);
        let source = guard.point.join("samples");
        for script in [
            "cp -a \"$0\" \"$1\"",
            "mkdir \"$1\"; tar -C \"$0\" -cf - . | tar -C \"$1\" -xpf -",
            "mkdir \"$1\"; tar -C \"$0\" --numeric-owner -cf - . | tar -C \"$1\" -xpf -",
            "rsync -a \"$0/\" \"$1\"",
        ] {
            if script.starts_with("rsync") && Command::new("rsync").arg("-V").output().is_err() {
                skip("no rsync");
                continue;
            }
            let copy = place.folder.path().join("copy");
            let mut shell = Command::new("sh");
            shell.args(["-euc", script]).arg(&source).arg(&copy);
            let output = finish(shell.stdout(Stdio::null()).stderr(Stdio::piped()));
            assert!(
                output.status.success() && text(&output).is_empty(),
                "{script}: {}",
                text(&output)
            );
            let copied = fs::metadata(copy.join("0/0")).unwrap();
            assert_eq!(
                (copied.mode() & 0o7777, copied.gid()),
                (0o444, group),
                "{script}"
            );
            assert_eq!(fs::read(copy.join("0/0")).unwrap(), place.tiny.payload);
            let removed = Command::new("rm").arg("-rf").arg(&copy).status().unwrap();
            assert!(removed.success());
        }
    }
}
