//! Several machines that pack into one folder.

use std::fs;
use std::process::{Command, Output};

use super::support::Desk;

/// Packs `in` as `x`, on a file system whose folders cannot be locked, as NFS.
fn pack_without_locks(desk: &Desk) -> Option<Output> {
    let traced = Command::new("strace")
        .args([
            "-f",
            "-qq",
            "-e",
            "trace=flock",
            "-e",
            "inject=flock:error=EBADF",
        ])
        .args(["-o", "/dev/null", env!("CARGO_BIN_EXE_datasetrt")])
        .args(["pack", "--name", "x", "in", "out"])
        .current_dir(desk.root.path())
        .output();
    match traced {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("SKIPPED: no strace: {error}");
            None
        }
    }
}

#[test]
fn what_another_machine_writes_is_left_alone_where_folders_cannot_be_locked() {
    // No process of ours has such a number.
    for owner in ["4194304-7-0-0123456789ab", "4194304-7-0"] {
        let desk = Desk::new();
        desk.file("in/1", "text");
        let theirs = desk.path(&format!("out/.x.{owner}.datasetrt-partial"));
        fs::create_dir_all(theirs.join("shards")).unwrap();
        fs::write(theirs.join("shards/000000.bin"), "half a shard").unwrap();
        let Some(output) = pack_without_locks(&desk) else {
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(owner), "{said}");
        let kept = fs::read(theirs.join("shards/000000.bin")).unwrap();
        assert_eq!(kept, b"half a shard");
        // Where folders can be locked, nobody holds it: a leftover.
        desk.packed("x", &["in"]);
        assert!(!theirs.exists());
        assert!(desk.path("out/x/manifest.json").exists());
    }
}

#[test]
fn what_a_process_of_this_machine_left_is_removed_where_folders_cannot_be_locked() {
    let desk = Desk::new();
    desk.file("in/1", "text");
    let Some(output) = pack_without_locks(&desk) else {
        return;
    };
    assert!(output.status.success());
    fs::remove_dir_all(desk.path("out/x")).unwrap();
    // The word for this machine, from a run that is stopped with its folder there.
    let traced = Command::new("strace")
        .args([
            "-f",
            "-qq",
            "-e",
            "trace=renameat2",
            "-e",
            "inject=renameat2:signal=KILL",
        ])
        .args(["-o", "/dev/null", env!("CARGO_BIN_EXE_datasetrt")])
        .args(["pack", "--name", "x", "in", "out"])
        .current_dir(desk.root.path())
        .status();
    assert!(!traced.unwrap().success());
    let left = || fs::read_dir(desk.path("out")).unwrap().count();
    if desk.path("out/x").exists() {
        fs::rename(desk.path("out/x"), desk.path("aside")).unwrap();
        eprintln!("SKIPPED: the signal came after the rename");
        return;
    }
    assert_eq!(left(), 1);
    let output = pack_without_locks(&desk).unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(left(), 1);
}
