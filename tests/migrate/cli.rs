//! `datasetrt migrate` as a process: what it prints, how it exits, who may run it.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::common::mount::{USER, as_user, is_root, skip};
use crate::files::*;

const TOOL: &str = env!("CARGO_BIN_EXE_datasetrt");

/// Runs `datasetrt migrate` with `arguments`.
fn migrate(arguments: &[&dyn AsRef<OsStr>]) -> Output {
    let mut command = Command::new(TOOL);
    command
        .arg("migrate")
        .args(arguments.iter().map(AsRef::as_ref));
    command.output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn told(output: &Output) -> Value {
    assert_eq!(out(output).lines().count(), 1);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_folder_of_caches_is_migrated_in_the_order_of_its_names() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["b", "a10", "a9"] {
        v2_cache(folder.path(), name);
    }
    fs::create_dir(folder.path().join("a11")).unwrap();
    let at = |name: &str| {
        folder
            .path()
            .join(name)
            .join("manifest.json")
            .display()
            .to_string()
    };
    let table = |status: &str| {
        let width = status.len();
        format!(
            "CACHE_ID  {:width$}  MANIFEST\n0         {status}  {}\n1         {status}  {}\n\
             2         {status}  {}\n",
            "STATUS",
            at("a10"),
            at("a9"),
            at("b"),
        )
    };
    let output = migrate(&[&"--to", &"3", &"--dry-run", &folder.path()]);
    assert_eq!(
        (out(&output), output.status.code()),
        (table("would_update"), Some(0))
    );
    assert!(err(&output).contains("a11: skipped"), "{}", err(&output));
    assert_eq!(stored(&folder.path().join("b")), (2, None));

    fs::remove_dir(folder.path().join("a11")).unwrap();
    for status in ["updated", "unchanged"] {
        let output = migrate(&[&"--to", &"3", &folder.path()]);
        assert_eq!(
            (out(&output), output.status.code()),
            (table(status), Some(0))
        );
        assert_eq!(err(&output), "");
    }
    assert_eq!(stored(&folder.path().join("b")), (3, Some(2)));
}

#[test]
fn a_list_may_come_from_a_file_and_the_report_be_json() {
    let folder = tempfile::tempdir().unwrap();
    let caches = v2_caches(folder.path(), 3);
    let list = folder.path().join("order.txt");
    let lines = format!("{}\n\n{}\n", caches[2].display(), caches[0].display());
    fs::write(&list, lines).unwrap();
    let output = migrate(&[&"--to=3", &"--json", &"--caches-from", &list, &caches[1]]);
    let entry = |cache: &Path, id: u64| {
        let path = manifest_path(cache);
        json!({"path": path.to_str().unwrap(), "cache_id": id, "id": id.to_string(), "status": "updated"})
    };
    let entries = [
        entry(&caches[1], 0),
        entry(&caches[2], 1),
        entry(&caches[0], 2),
    ];
    assert_eq!(told(&output), json!({"Ok": {"entries": entries}}));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn wrong_usage_is_status_2_and_says_what_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let cache = v2_cache(folder.path(), "c");
    for version in ["2", "4", "-1", "3.0", "\"3\"", "", "three", "03"] {
        let output = migrate(&[&format!("--to={version}"), &cache]);
        assert_eq!(
            (output.status.code(), out(&output)),
            (Some(2), String::new()),
            "{version}"
        );
        assert!(
            err(&output).contains("expected 3, the only format"),
            "{}",
            err(&output)
        );
    }
    for arguments in [
        &[&"--to" as &dyn AsRef<OsStr>, &"3"][..],
        &[&cache],
        &[&"--to", &"3", &"-x"],
    ] {
        assert_eq!(migrate(arguments).status.code(), Some(2));
    }
    assert_eq!(stored(&cache), (2, None));
    let help = out(&migrate(&[&"--help"]));
    for word in [
        "ORDER",
        "durability_unknown",
        "Exit status",
        "--caches-from",
        "--dry-run",
    ] {
        assert!(help.contains(word), "{word}");
    }
}

#[test]
fn a_refused_list_is_status_1_with_the_reason_for_people_and_programs() {
    let folder = tempfile::tempdir().unwrap();
    let cache = v2_cache(folder.path(), "c");
    let missing = folder.path().join("missing");
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    for (list, reason) in [
        (
            vec![cache.clone(), missing.clone()],
            "missing: cannot stat: No such file",
        ),
        (
            vec![cache.clone(), empty.clone()],
            "empty: no caches in this folder",
        ),
        (
            vec![cache.clone(), cache.clone()],
            "duplicate migration target",
        ),
    ] {
        let list: Vec<&dyn AsRef<OsStr>> = list.iter().map(|path| path as _).collect();
        let output =
            migrate(&[&[&"--to" as &dyn AsRef<OsStr>, &"3", &"--json"], &list[..]].concat());
        assert_eq!(output.status.code(), Some(1));
        assert!(
            err(&output).starts_with("datasetrt: error: "),
            "{}",
            err(&output)
        );
        assert!(err(&output).contains(reason), "{}", err(&output));
        let message = told(&output)["Err"]["message"].as_str().unwrap().to_owned();
        assert!(err(&output).trim_end().ends_with(&message), "{message}");
        assert_eq!(told(&output)["Err"]["entries"], json!([]));
    }
    let output = migrate(&[&"--to", &"3", &"--caches-from", &missing]);
    assert_eq!(
        (output.status.code(), out(&output)),
        (Some(1), String::new())
    );
    assert_eq!(stored(&cache), (2, None));
}

#[test]
fn a_signal_ends_the_run_after_the_current_manifest_with_the_report() {
    for (signal, status) in [(1, 129), (2, 130), (15, 143)] {
        let folder = tempfile::tempdir().unwrap();
        let caches = v2_caches(folder.path(), 3);
        let migrate = |script: &str, json: &[&str]| {
            let mut command = Command::new(TOOL);
            command
                .args(["migrate", "--to", "3"])
                .args(json)
                .args(&caches);
            command.env("DATASETRT_TEST_STEP", script).output().unwrap()
        };
        // In the middle of the second of three.
        let output = migrate(&format!("kill:9:{signal}"), &["--json"]);
        assert_eq!(output.status.code(), Some(status), "{}", err(&output));
        let report = &told(&output)["Err"];
        assert_eq!(report["path"], manifest_path(&caches[2]).to_str().unwrap());
        let statuses: Vec<_> = (0..3)
            .map(|n| report["entries"][n]["status"].clone())
            .collect();
        assert_eq!(statuses, [json!("updated"), json!("updated"), Value::Null]);
        assert!(err(&output).contains("interrupted before this manifest, 2 of 3 done"));
        assert_eq!([1, 2].map(|n: usize| stored(&caches[n]).0), [3, 2]);
        assert!(caches.iter().all(|cache| temporary_files(cache).is_empty()));

        // Too late for any other manifest: then all is done and well.
        let output = migrate(&format!("kill:8:{signal}"), &[]);
        assert_eq!(
            (output.status.code(), err(&output)),
            (Some(0), String::new())
        );
        assert_eq!(out(&output).matches(" unchanged ").count(), 2);
        assert_eq!(stored(&caches[2]), (3, Some(2)));
    }
}

#[test]
fn a_reader_of_the_report_may_leave_early() {
    let folder = tempfile::tempdir().unwrap();
    v2_cache(folder.path(), "c");
    let script = format!("{TOOL} migrate --to 3 \"$0\" 2>&1 | true; echo ${{PIPESTATUS[0]}}");
    let output = Command::new("bash")
        .args(["-c", &script])
        .arg(folder.path())
        .output();
    assert_eq!(out(&output.unwrap()), "0\n");
}

/// The tool run by a user who owns `folder` and may not do more: this one, or another when that is
/// root.
fn by_ordinary_user(folder: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(TOOL);
    }
    for path in snapshot(folder).into_keys().chain(folders(folder)) {
        std::os::unix::fs::chown(path, Some(USER), Some(USER)).unwrap();
    }
    as_user(folder, "datasetrt")
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let inside = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let inside = inside.filter(|path| path.is_dir() && !path.is_symlink());
    [folder.to_path_buf()]
        .into_iter()
        .chain(inside.flat_map(|dir| folders(&dir)))
        .collect()
}

#[test]
fn an_ordinary_user_needs_a_writable_folder_and_not_a_writable_manifest() {
    let folder = tempfile::tempdir().unwrap();
    let caches = v2_caches(folder.path(), 3);
    for cache in &caches {
        fs::set_permissions(manifest_path(cache), Permissions::from_mode(0o444)).unwrap();
    }
    fs::set_permissions(&caches[2], Permissions::from_mode(0o555)).unwrap();
    let run = || {
        let mut command = by_ordinary_user(folder.path());
        command
            .args(["migrate", "--to", "3", "--json"])
            .args(&caches)
            .output()
            .unwrap()
    };
    let refused = run();
    assert_eq!(refused.status.code(), Some(1), "{}", err(&refused));
    let report = &told(&refused)["Err"];
    assert_eq!(report["path"], manifest_path(&caches[2]).to_str().unwrap());
    let message = report["message"].as_str().unwrap();
    assert_eq!(
        message,
        "cannot write to its folder: Permission denied (os error 13)"
    );
    assert_eq!(report["entries"], json!([]));
    assert!(
        caches.iter().all(|cache| stored(cache) == (2, None)),
        "the first two too"
    );

    fs::set_permissions(&caches[2], Permissions::from_mode(0o755)).unwrap();
    let done = run();
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    for (n, cache) in caches.iter().enumerate() {
        assert_eq!(stored(cache), (3, Some(n as u64)));
        let mode = fs::metadata(manifest_path(cache)).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o444);
    }
}

/// Runs `script` in a mount namespace of its own, with the tool as `$tool` and `folder` as `$K`. Gives
/// `None`, aloud, where that is not allowed.
fn with_mounts(folder: &Path, script: &str) -> Option<Output> {
    if !is_root("making full and read-only file systems") {
        return None;
    }
    let run = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "bash", "-euc", script]);
        command.env("tool", TOOL).env("K", folder).output().unwrap()
    };
    if !run("mount -t tmpfs none \"$K\"").status.success() {
        skip("this root may not mount a tmpfs");
        return None;
    }
    let output = run(script);
    assert!(output.status.success(), "{}{}", out(&output), err(&output));
    Some(output)
}

#[test]
fn a_full_disk_changes_nothing_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    v2_cache(folder.path(), "c");
    let full = folder.path().join("full");
    fs::create_dir(&full).unwrap();
    let output = with_mounts(
        folder.path(),
        r#"mount -t tmpfs -o size=4m none "$K/full"
        cp -r "$K/c" "$K/full/c"
        sum() { sha256sum "$K/full/c/manifest.json"; }
        before=$(sum)
        dd if=/dev/zero of="$K/full/fill" bs=4096 2>/dev/null || true
        status=0; "$tool" migrate --to 3 "$K/full/c" || status=$?
        [ $status = 1 ]
        [ "$(sum)" = "$before" ]
        [ "$(ls -A "$K/full/c" | wc -l)" = 4 ]
        rm "$K/full/fill"
        "$tool" migrate --to 3 "$K/full/c"
        [ "$(ls -A "$K/full/c" | wc -l)" = 4 ]"#,
    );
    if let Some(output) = output {
        assert!(err(&output).contains("No space left on device (os error 28)"));
        assert!(
            out(&output).contains("0         updated"),
            "{}",
            out(&output)
        );
    }
}

#[test]
fn a_read_only_file_system_is_refused_before_anything_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let caches = v2_caches(folder.path(), 2);
    let output = with_mounts(
        folder.path(),
        r#"mount --bind "$K/0001" "$K/0001"
        mount -o remount,ro,bind "$K/0001"
        status=0; "$tool" migrate --to 3 "$K/0000" "$K/0001" || status=$?
        [ $status = 1 ]"#,
    );
    if let Some(output) = output {
        let error = err(&output);
        let path = manifest_path(&caches[1]).display().to_string();
        assert!(
            error.contains(&format!("{path}: cannot write to its folder: Read-only")),
            "{error}"
        );
        assert_eq!(out(&output), "");
        assert!(caches.iter().all(|cache| stored(cache) == (2, None)));
    }
}
