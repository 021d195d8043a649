//! Runs that are stopped half way: what they leave, and what the next one makes of it.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::support::{Desk, Run, listing, read, tool};

/// A table that takes some seconds: its rows name one file of 20 kB over and over.
fn slow(desk: &Desk) {
    let payload: Vec<u8> = (0..20_000_u32).map(|n| ((n * n) >> 8) as u8).collect();
    desk.file("p.bin", payload);
    let rows: String = (0..400_000).map(|n| format!("p.bin,{n}\n")).collect();
    desk.file("t.csv", format!("file,n\n{rows}"));
}

/// It hears SIGHUP also when the tests run under nohup.
fn start(desk: &Desk) -> Child {
    Command::new("env")
        .arg("--default-signal=HUP")
        .arg(tool().get_program())
        .env_remove("RUST_LOG")
        .current_dir(desk.root.path())
        .args([
            "pack",
            "--name",
            "x",
            "--table",
            "t.csv",
            "--payload-column",
            "file",
            "out",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The staging folder of a run, once it has written something.
fn half_way(desk: &Desk, child: &mut Child) -> PathBuf {
    loop {
        assert!(
            child.try_wait().unwrap().is_none(),
            "it ended before it was stopped"
        );
        let found = listing(&desk.out()).unwrap_or_default();
        if let [name] = &found[..] {
            let dir = desk.out().join(name);
            let shard = fs::metadata(dir.join("shards/000000.bin"));
            if shard.is_ok_and(|shard| shard.len() > 100_000) {
                return dir;
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn signal(child: &Child, name: &str) {
    let done = std::process::Command::new("kill")
        .args(["-s", name, &child.id().to_string()])
        .status();
    assert!(done.unwrap().success());
}

#[test]
fn ctrl_c_and_sigterm_and_a_closed_terminal_leave_nothing() {
    let desk = Desk::new();
    slow(&desk);
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let mut child = start(&desk);
        let staging = half_way(&desk, &mut child);
        assert!(!staging.join("manifest.json").exists());
        signal(&child, name);
        let run = Run(child.wait_with_output().unwrap());
        assert_eq!(run.code(), code);
        assert_eq!(run.out(), "");
        assert!(run.err().contains("signal"), "{}", run.err());
        assert!(
            !desk.out().exists(),
            "the folder that it made is gone as well"
        );
    }
}

#[test]
fn what_a_killed_run_left_is_named_removed_and_no_obstacle() {
    let desk = Desk::new();
    slow(&desk);
    let mut child = start(&desk);
    let staging = half_way(&desk, &mut child);
    // While it lives, nobody else may write that cache, nor take its folder away.
    desk.file("in/a", "x");
    let run = desk.pack("x", &["in"]);
    assert_eq!(run.code(), 1);
    assert!(
        run.err().contains(&format!("process {}", child.id())),
        "{}",
        run.err()
    );
    assert!(staging.exists());
    // Another name is free.
    assert_eq!(desk.packed("y", &["in"]).len(), 1);

    let pid = child.id();
    child.kill().unwrap();
    child.wait().unwrap();
    let names = listing(&desk.out()).unwrap();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(!staging.join("manifest.json").exists());
    let verified = tool().arg("verify").arg(&staging).status().unwrap();
    assert_eq!(verified.code(), Some(1));

    let dry = desk.pack("x", &["--dry-run", "in"]);
    assert!(
        dry.err().contains(&format!("process {pid}")),
        "{}",
        dry.err()
    );
    assert!(staging.exists());
    let run = desk.pack("x", &["in"]);
    assert_eq!(run.code(), 0, "{}", run.err());
    assert!(
        run.err()
            .contains(staging.file_name().unwrap().to_str().unwrap())
    );
    assert!(
        run.err().contains(&format!("process {pid}")),
        "{}",
        run.err()
    );
    assert_eq!(listing(&desk.out()).unwrap(), ["x", "y"]);
    assert_eq!(read(&desk.out().join("x")).len(), 1);
}

#[test]
fn a_full_disk_is_an_error_that_names_the_file() {
    let desk = Desk::new();
    for n in 0..2000 {
        desk.file(format!("in/{n:04}"), vec![b'x'; 1000]);
    }
    let disk = desk.path("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(&disk)
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        eprintln!("NO RIGHT TO MOUNT: left out");
        return;
    }
    let run = tool()
        .current_dir(desk.root.path())
        .args(["pack", "--name", "x", "--compression", "none", "in", "disk"])
        .output();
    let left = listing(&disk);
    let unmounted = std::process::Command::new("umount").arg(&disk).status();
    let run = Run(run.unwrap());
    assert_eq!(run.code(), 1);
    assert!(
        run.err().contains("No space left") && run.err().contains("disk/"),
        "{}",
        run.err()
    );
    assert_eq!(left, Some(vec![]));
    assert!(unmounted.unwrap().success());
}
