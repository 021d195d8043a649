//! What the system sees, through strace: the order of calls, calls that fail, SIGKILL at each call.

use std::ffi::OsString;
use std::fs;
use std::process::{Command, Output};

use crate::common::mount::skip;
use crate::list::{List, text};

/// The calls that reach the disk; a call that an architecture lacks is no error.
const TRACED: &str =
    "?open,openat,?creat,write,fsync,fdatasync,?rename,?renameat,renameat2,?unlink,unlinkat";

/// Whether strace is there and may trace.
fn can_trace() -> bool {
    let works = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .output();
    works.is_ok_and(|output| output.status.success()) || skip("strace is absent or may not trace")
}

/// Runs a migration under strace with `options`.
fn traced(list: &List, options: &[OsString]) -> Output {
    let migrate = list.command();
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-s", "256"]).args(options);
    command.arg(migrate.get_program()).args(migrate.get_args());
    command.env_remove("DATASETRT_TEST_STEP");
    command.output().unwrap()
}

fn log_of(list: &List, expression: &str) -> String {
    let log = tempfile::NamedTempFile::new().unwrap();
    let options = [
        "-o".into(),
        log.path().into(),
        "-e".into(),
        expression.into(),
    ];
    let output = traced(list, &options);
    assert!(output.status.success(), "{}", text(&output));
    fs::read_to_string(log.path()).unwrap()
}

#[test]
fn each_manifest_is_durable_before_the_next_and_all_before_the_answer() {
    if !can_trace() {
        return;
    }
    let list = List::new(2);
    let log = log_of(&list, &format!("trace={TRACED}"));
    let folders: Vec<String> = list
        .caches
        .iter()
        .map(|cache| cache.display().to_string())
        .collect();

    let mut seen = Vec::new();
    for line in log.lines() {
        let call = line.split_whitespace().nth(1).unwrap_or_default();
        let call = call.split('(').next().unwrap_or_default();
        let on_temporary = line.contains("/.datasetrt-manifest-");
        let what = match call {
            "openat" | "open" | "creat" if on_temporary => {
                assert!(line.contains("O_CREAT|O_EXCL"), "{line}");
                "create"
            }
            "write" if on_temporary => "write",
            "fsync" | "fdatasync" if on_temporary => "sync the file",
            "rename" | "renameat" | "renameat2" => "rename",
            "fsync" | "fdatasync" => "sync the folder",
            "unlink" | "unlinkat" => "remove",
            "write" if line.contains("CACHE_ID") => "answer",
            _ => continue,
        };
        let target = folders.iter().position(|folder| line.contains(folder));
        let target = target.filter(|_| what != "answer");
        seen.push((what, target));
    }
    let of_target = |n| {
        [
            "create",
            "write",
            "sync the file",
            "rename",
            "sync the folder",
        ]
        .map(|what| (what, Some(n)))
    };
    let expected: Vec<_> = [of_target(0), of_target(1)].concat();
    assert_eq!(seen, [&expected[..], &[("answer", None)]].concat(), "{log}");
}

#[test]
fn a_folder_that_cannot_be_synced_is_told_as_durability_unknown() {
    if !can_trace() {
        return;
    }
    let list = List::new(3);
    let fail = ["-o", "/dev/null", "-e", "inject=fsync:error=EIO:when=4"].map(OsString::from);
    let output = traced(&list, &fail);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let told = String::from_utf8_lossy(&output.stdout);
    let statuses: Vec<_> = told
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    assert_eq!(statuses, ["STATUS", "updated", "durability_unknown"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("cannot sync its folder: Input/output error"),
        "{error}"
    );
    assert_eq!(list.check_and_finish(), 2);
}

#[test]
fn a_kill_at_any_call_loses_nothing() {
    if !can_trace() {
        return;
    }
    let list = List::new(2);
    let mut kills = Vec::new();
    for call in [
        "openat",
        "write",
        "fsync",
        "?rename",
        "?renameat",
        "renameat2",
    ] {
        // strace counts for each thread by itself, so the number of calls is not known before.
        for nth in 1.. {
            list.reset();
            let kill = format!("inject={call}:signal=SIGKILL:when={nth}");
            let options = ["-o", "/dev/null", "-e", &kill].map(OsString::from);
            let output = traced(&list, &options);
            list.check_and_finish();
            if output.status.success() {
                break;
            }
            assert!(!text(&output).contains("CACHE_ID"), "{}", text(&output));
            kills.push(call);
        }
    }
    let count = |call: &str| kills.iter().filter(|kill| kill.contains(call)).count();
    assert!(
        count("openat") > 10 && count("fsync") == 4 && count("rename") == 2,
        "{kills:?}"
    );
    assert!(count("write") >= 2, "{kills:?}");
}
