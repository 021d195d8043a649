//! What the daemon may do: less than whoever started it, and it still unmounts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Signal, geteuid};

use crate::common::mount::{
    MountGuard, USER, as_user, can_be_user, can_mount, finish, program, skip, within,
};
use crate::{assert_ready, place, text};

/// A value of each thread's `/proc/PID/task/TID/status`, by the thread's name.
fn threads(guard: &MountGuard, key: &str) -> BTreeMap<String, String> {
    let tasks = format!("/proc/{}/task", guard.pid().as_raw_nonzero());
    let tasks = fs::read_dir(tasks)
        .unwrap()
        .map(|task| task.unwrap().path());
    // A thread may end while it is looked at.
    let found = tasks.filter_map(|task| {
        let name = fs::read_to_string(task.join("comm")).ok()?;
        let status = fs::read_to_string(task.join("status")).ok()?;
        let value = status.lines().find_map(|line| line.strip_prefix(key))?;
        let value = value.trim_matches([':', '\t']).to_owned();
        Some((name.trim().to_owned(), value))
    });
    // The one that took a first look at the mount is ending.
    found.filter(|(name, _)| name != "first-look").collect()
}

/// The threads that read what caches hold.
fn serving(threads: &BTreeMap<String, String>) -> Vec<&str> {
    let serving = threads
        .iter()
        .filter(|(name, _)| name.starts_with("fuser-"));
    let serving: Vec<&str> = serving.map(|(_, value)| value.as_str()).collect();
    assert!(!serving.is_empty(), "{threads:?}");
    serving
}

fn all(threads: &BTreeMap<String, String>, expected: &str) -> bool {
    serving(threads).iter().all(|value| *value == expected)
}

#[test]
fn serving_threads_gain_no_privileges_and_an_ordinary_user_still_unmounts() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = place();
    let mut guard = MountGuard::at(place.point("m"));
    chown(&guard.point, Some(USER), Some(USER)).unwrap();
    let mut command = as_user(place.folder.path(), "datasetrt-mount");
    command.arg("--sandbox");
    guard.foreground(command, &place.tiny.cache);
    assert!(all(&threads(&guard, "NoNewPrivs"), "1"));
    // 2 is a filter.
    assert!(all(&threads(&guard, "Seccomp"), "2"));
    let sample = guard.point.join(place.tiny.sample);
    let read = finish(
        as_user(place.folder.path(), "cat")
            .arg(sample)
            .stdout(Stdio::piped()),
    );
    assert_eq!(read.stdout, place.tiny.payload);
    guard.signal(Signal::TERM);
    assert_eq!(guard.status().code(), Some(0));
    assert!(guard.is_gone());
}

#[test]
fn root_gains_nothing_by_programs_and_chooses_how_far_it_is_confined() {
    if !can_mount() || !geteuid().is_root() {
        return;
    }
    let place = place();
    for (word, filtered) in [
        ("--sandbox=off", "0"),
        ("--sandbox=files", "0"),
        ("--sandbox", "2"),
    ] {
        let mut guard = MountGuard::at(place.point("m"));
        let mut command = program();
        // The thread that opens newcomers reads what caches hold as well.
        command.args([word, "--watch", "3600"]);
        guard.foreground(command, &place.tiny.cache);
        let privileges = threads(&guard, "NoNewPrivs");
        assert!(
            all(&privileges, "1") && privileges["datasetrt-mount"] == "1",
            "{privileges:?}"
        );
        assert!(all(&threads(&guard, "Seccomp"), filtered), "{word}");
        // They are told after the mount has answered.
        let confined = |key, value| {
            let threads = threads(&guard, key);
            ["watch", "tidy"].iter().all(|name| threads[*name] == value)
        };
        assert!(within(
            || confined("NoNewPrivs", "1") && confined("Seccomp", filtered)
        ));
        // Everything works: tables, views, commands.
        assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);
        assert!(!guard.read("metadata.arrow").unwrap().is_empty());
        fs::write(guard.point.join(".control/verify"), "all").unwrap();
        let done = || {
            let report = guard.read(".control/verify").unwrap();
            String::from_utf8(report).unwrap().contains("\"done\"")
        };
        assert!(within(done));
        fs::write(guard.point.join(".control/migrate"), "3").unwrap();
        let manifest = fs::read_to_string(place.tiny.cache.join("manifest.json")).unwrap();
        assert!(manifest.contains("cache_id"));
        guard.signal(Signal::TERM);
        assert_eq!(guard.status().code(), Some(0));
    }
}

#[test]
fn root_becomes_another_user_and_still_unmounts() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = place();
    let number = USER.to_string();
    for foreground in [true, false] {
        let mut guard = MountGuard::at(place.point("m"));
        let mut command = program();
        command.args(["--user", &number, "--allow-other", "--log-file"]);
        command.arg(place.folder.path().join("log"));
        if foreground {
            guard.foreground(command, &place.tiny.cache);
        } else {
            assert_ready(&guard.background(command, &place.tiny.cache));
        }
        let uids = threads(&guard, "Uid");
        let expected = [number.as_str(); 4].join("\t");
        assert!(uids.values().all(|uids| *uids == expected), "{uids:?}");
        let gids = threads(&guard, "Gid");
        assert!(
            !gids
                .values()
                .any(|gids| gids.split('\t').any(|gid| gid == "0")),
            "{gids:?}"
        );
        for (name, rights) in threads(&guard, "CapPrm") {
            // The main thread unmounts: CAP_SYS_ADMIN is the 21st.
            let kept = if name == "datasetrt-mount" {
                1 << 21
            } else {
                0
            };
            assert_eq!(u64::from_str_radix(&rights, 16).unwrap(), kept, "{name}");
        }
        assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);
        // The caches are those of root, so their manifests are not for this user to change.
        let failed = fs::write(guard.point.join(".control/migrate"), "3").unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(13), "{failed}");
        guard.signal(Signal::TERM);
        assert!(guard.is_gone());
    }
}

#[test]
fn a_user_that_cannot_be_is_refused() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = place();
    let refused = |user: &str| {
        let guard = MountGuard::at(place.point("m"));
        let mut command = program();
        command.args(["--user", user, "--allow-other"]);
        let output = guard.background(command, &place.tiny.cache);
        assert_eq!(output.status.code(), Some(1));
        assert!(guard.is_gone());
        text(&output)
    };
    assert!(refused("nobody-of-this-name").contains("there is no user called"));
    assert!(refused("0").contains("root is whom"));
    // What this user may not read is refused at the start, not at the first read.
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&place.tiny.cache, fs::Permissions::from_mode(0o700)).unwrap();
    let said = refused(&USER.to_string());
    assert!(said.contains("Permission denied"), "{said}");
    fs::set_permissions(&place.tiny.cache, open).unwrap();
    let guard = MountGuard::at(place.point("m"));
    let mut command = as_user(place.folder.path(), "datasetrt-mount");
    command.args(["--user", "1", "--allow-other"]);
    let output = guard.background(command, &place.tiny.cache);
    assert!(text(&output).contains("only root can"), "{}", text(&output));
    // Nobody could look whether it answers.
    let mut command = program();
    command.args(["--user", "1"]);
    let output = guard.background(command, &place.tiny.cache);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("--allow-other"), "{}", text(&output));
}

/// Where files may be opened for writing: the connection, nothing, the kernel's readahead of the mount,
/// manifests beside their place, and receipts.
fn may_be_written(path: &str, place: &Path) -> bool {
    let manifest = place.join("cache/.datasetrt-manifest-");
    let receipts = place.join("receipts");
    ["/dev/fuse", "/dev/null"].contains(&path)
        || path.starts_with("/sys/class/bdi/") && path.ends_with("/read_ahead_kb")
        || path.starts_with(manifest.to_str().unwrap())
        || path.starts_with(receipts.to_str().unwrap())
}

#[test]
fn nothing_is_opened_for_writing_but_the_device_manifests_and_receipts() {
    if !can_mount() || !geteuid().is_root() {
        return;
    }
    let traces = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status();
    if !traces.is_ok_and(|status| status.success()) {
        skip("strace is absent or may not trace");
        return;
    }
    let place = place();
    let log = place.folder.path().join("strace");
    let mut command = Command::new("strace");
    // The tracer apart, so that the child is the daemon.
    command
        .args(["-f", "-D", "-e", "trace=open,openat,openat2,creat", "-o"])
        .arg(&log)
        .arg(program().get_program())
        .args(["--validate-cache", "--receipts"])
        .arg(place.folder.path().join("receipts"))
        .env_remove("RUST_LOG")
        .env_remove("NOTIFY_SOCKET");
    // Files that changed a moment ago get no receipt.
    std::thread::sleep(std::time::Duration::from_millis(150));
    let mut guard = MountGuard::at(place.point("m"));
    guard.foreground(command, &place.tiny.cache);
    assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);
    let listed = finish(
        Command::new("ls")
            .arg("-lR")
            .arg(&guard.point)
            .stdout(Stdio::null()),
    );
    assert!(listed.status.success());
    fs::write(guard.point.join(".control/verify"), "all").unwrap();
    fs::write(guard.point.join(".control/migrate"), "3").unwrap();
    guard.signal(Signal::TERM);
    assert_eq!(guard.status().code(), Some(0));
    assert!(guard.is_gone());
    let log = fs::read_to_string(&log).unwrap();
    let written = |line: &&str| {
        let words = ["O_WRONLY", "O_RDWR", "O_CREAT", "creat("];
        // A file without a name changes nothing that anybody else has.
        words.iter().any(|word| line.contains(word)) && !line.contains("O_TMPFILE")
    };
    let paths = log.lines().filter(written);
    let paths: BTreeSet<&str> = paths
        .map(|line| line.split('"').nth(1).expect(line))
        .collect();
    let folder = place.folder.path();
    let odd: Vec<_> = paths
        .iter()
        .filter(|path| !may_be_written(path, folder))
        .collect();
    assert!(odd.is_empty(), "{odd:?}");
    // It would have seen them.
    for seen in ["/dev/fuse", "receipts", "datasetrt-manifest"] {
        assert!(
            paths.iter().any(|path| path.contains(seen)),
            "{seen}: {paths:?}"
        );
    }
}
