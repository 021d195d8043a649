//! Blocks of shell commands, run as they stand in a mount namespace with caches at hand.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::mount::{can_mount, is_root};
use crate::document;

/// What the documents promise of the machine: programs, caches, an empty mountpoint; and nothing of it
/// stays behind.
const MACHINE: &str = r#"
    export LC_ALL=C
    mount --bind "$BIN" /usr/local/bin
    mount -t tmpfs none /srv; mount -t tmpfs none /mnt; mount -t tmpfs none /tmp
    mkdir /mnt/data
    cp /etc/fstab /tmp/fstab; mount --bind /tmp/fstab /etc/fstab
    datasetrt demo /srv/caches >/dev/null
    mkdir /tmp/here; cd /tmp/here
"#;

fn run(script: &str) -> (bool, String) {
    let programs = Path::new(env!("CARGO_BIN_EXE_datasetrt")).parent().unwrap();
    // Readable for everybody, and without what else lies beside them.
    let bin = tempfile::tempdir().unwrap();
    for program in ["datasetrt", "datasetrt-mount"] {
        let copied = Command::new("cp")
            .arg(programs.join(program))
            .arg(bin.path())
            .status();
        assert!(copied.unwrap().success());
    }
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(bin.path(), open).unwrap();
    let output = Command::new("timeout")
        .args([
            "60",
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "bash",
            "-euc",
            script,
        ])
        .env("BIN", bin.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (
        output.status.success(),
        said + &String::from_utf8_lossy(&output.stderr),
    )
}

fn can_run() -> bool {
    can_mount() && is_root("a mount namespace")
}

/// The blocks of `document` that are to be run.
fn blocks(text: &str) -> Vec<&str> {
    let blocks = text.split("```sh\n# run\n").skip(1);
    blocks
        .map(|rest| rest.split_once("```").expect("an end of the block").0)
        .collect()
}

#[test]
fn every_block_of_the_manuals_runs() {
    if !can_run() {
        return;
    }
    let texts = [
        document("docs/operations.md"),
        document("docs/safety.md"),
        document("docs/semantics.md"),
    ];
    let blocks = texts.map(|text| {
        blocks(&text)
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    assert!(blocks[0].len() >= 6 && !blocks[1].is_empty() && !blocks[2].is_empty());
    for block in blocks.concat() {
        // What a block leaves mounted is a mistake in it.
        let script = format!("{MACHINE}\n{block}\n! mountpoint -q /mnt/data");
        let (good, said) = run(&script);
        assert!(good, "{block}\n{said}");
        if block.contains("# 1000 100 440") {
            assert!(said.contains("1000 100 440\n"), "{said}");
        }
    }
}

/// The commands of README's section on use, each by itself: what is mounted before it is unmounted.
#[test]
fn every_command_of_the_readme_runs() {
    if !can_run() {
        return;
    }
    let text = document("README.md");
    let section = text.split_once("\n## Use\n").unwrap().1;
    let section = section.split_once("\n## ").unwrap().0;
    let commands: Vec<&str> = section
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .map(|line| line.split("  #").next().unwrap().trim())
        .filter(|line| !line.is_empty())
        .collect();
    assert!(commands.len() >= 10, "{commands:?}");
    let mut script = format!(
        "{MACHINE}
        mkdir pictures; head -c 100 /dev/urandom >pictures/a.png; mkdir caches /mnt/control
        free() {{ ! mountpoint -q /mnt/data || datasetrt umount --lazy /mnt/data; }}
        datasetrt pack --name first pictures/ caches/\n"
    );
    // As README says, in its order; a command in the foreground is stopped when it answers.
    for command in commands {
        let command = command.replace("17 > 17.png", "0 > 0.png");
        if command.starts_with("datasetrt-mount") && command.contains(" -f ") {
            script += &format!(
                "free; {command} & while ! mountpoint -q /mnt/data; do sleep 0.1; done; kill $!; wait $!\n"
            );
        } else if command.starts_with("datasetrt-mount") {
            script += &format!("free; {command}\n");
        } else if command.contains("/mnt/data") && !command.starts_with("fusermount3") {
            script += &format!(
                "mountpoint -q /mnt/data || datasetrt-mount /tmp/demo /mnt/data\n{command}\n"
            );
        } else {
            script += &format!("{command}\n");
        }
    }
    let (good, said) = run(&(script.clone() + "free"));
    assert!(good, "{script}\n{said}");
}
