//! In which order things become durable, seen from outside: the system calls of a whole run.

use std::process::{Command, Stdio};

use super::support::{Desk, read};

/// The calls that order writes, one a line, with the paths of descriptors.
fn calls(desk: &Desk, args: &[&str]) -> Option<Vec<String>> {
    let log = desk.path("calls");
    let traced = Command::new("strace")
        .args([
            "-f",
            "-y",
            "-qq",
            "-e",
            "trace=fsync,fdatasync,rename,renameat,renameat2,write,pwrite64",
        ])
        .arg("-o")
        .arg(&log)
        .arg(env!("CARGO_BIN_EXE_datasetrt"))
        .args(args)
        .current_dir(desk.root.path())
        .stdout(Stdio::null())
        .status();
    match traced {
        Ok(status) if status.success() => {
            let text = String::from_utf8_lossy(&std::fs::read(log).unwrap()).into_owned();
            Some(text.lines().map(str::to_owned).collect())
        }
        other => {
            eprintln!("NO STRACE ({other:?}): left out");
            None
        }
    }
}

#[test]
fn everything_is_durable_before_the_manifest_and_the_manifest_before_the_name() {
    let desk = Desk::new();
    for n in 0..30 {
        desk.file(format!("in/{n}"), vec![n; 1000]);
    }
    let args = [
        "pack",
        "--name",
        "x",
        "--compression",
        "none",
        "--max-shard-bytes",
        "10k",
        "in",
        "out",
    ];
    let Some(calls) = calls(&desk, &args) else {
        return;
    };
    // Where a call with these parts stands for the first, or for the last, time.
    let has = |line: &String, parts: &[&str]| parts.iter().all(|part| line.contains(part));
    let first = |parts: &[&str]| {
        let found = calls.iter().position(|line| has(line, parts));
        found.unwrap_or_else(|| panic!("no call {parts:?} in\n{}", calls.join("\n")))
    };
    let last = |parts: &[&str]| calls.iter().rposition(|line| has(line, parts)).unwrap();

    let manifest_named = first(&["rename", "manifest.json.tmp"]);
    let mut files: Vec<String> = vec!["metadata.arrow>".into(), "index.bin>".into()];
    files.extend((0..3).map(|n| format!("shards/{n:06}.bin>")));
    for file in &files {
        let (written, synced) = (last(&["write", file]), last(&["sync", file]));
        assert!(written < synced && synced < manifest_named, "{file}");
    }
    assert!(last(&["sync", "datasetrt-partial/shards>"]) < manifest_named);
    assert!(last(&["sync", "manifest.json.tmp>"]) < manifest_named);
    let cache_named = first(&["rename", "datasetrt-partial\"", "out/x\""]);
    let staging_synced = last(&["sync", "datasetrt-partial>"]);
    assert!(manifest_named < staging_synced && staging_synced < cache_named);
    assert!(cache_named < last(&["sync", "/out>"]));
    assert_eq!(read(&desk.out().join("x")).len(), 30);
}
