//! Manuals, completions and the seeds of the fuzz targets: made by the code, and in step with it.
//!
//! `DATASETRT_UPDATE=1 cargo test --test generated` writes them anew.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

#[path = "common/mod.rs"]
mod common;
#[path = "generated/seeds.rs"]
mod seeds;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use clap_complete::{Shell, generate};
use clap_mangen::Man;
use datasetrt::cli::{mount, tool};

const MAN: &str = "docs/man";
const COMPLETIONS: &str = "scripts/packaging/completions";
const UPDATE: &str = "DATASETRT_UPDATE";

fn command_lines() -> [clap::Command; 2] {
    [mount::command_line(), tool::command_line()]
}

/// The manuals of `command` and of its subcommands, by file name.
fn manuals(mut command: clap::Command) -> BTreeMap<String, Vec<u8>> {
    command.build();
    let mut made = BTreeMap::new();
    add_manual(&command, &mut made);
    made
}

fn add_manual(command: &clap::Command, made: &mut BTreeMap<String, Vec<u8>>) {
    for inner in command
        .get_subcommands()
        .filter(|inner| inner.get_name() != "help")
    {
        add_manual(inner, made);
    }
    let name = command.get_display_name().unwrap_or(command.get_name());
    let mut text = Vec::new();
    Man::new(command.clone()).render(&mut text).unwrap();
    let text = String::from_utf8(text)
        .unwrap()
        .replace(".SH EXTRA\n", ".SH NOTES\n");
    made.insert(format!("{name}.1"), text.into_bytes());
}

fn completions(mut command: clap::Command) -> BTreeMap<String, Vec<u8>> {
    let name = command.get_name().to_owned();
    let mut made = BTreeMap::new();
    for (shell, file) in [
        (Shell::Bash, format!("{name}.bash")),
        (Shell::Zsh, format!("_{name}")),
        (Shell::Fish, format!("{name}.fish")),
    ] {
        let mut text = Vec::new();
        generate(shell, &mut command, &name, &mut text);
        made.insert(file, text);
    }
    made
}

/// Compares the files of `folder` with what was made, or writes them.
fn check(folder: &str, made: &BTreeMap<String, Vec<u8>>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    if std::env::var_os(UPDATE).is_some() {
        // A command that is gone takes its files with it.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in made {
            fs::write(folder.join(name), text).unwrap();
        }
    }
    let there: BTreeSet<_> = fs::read_dir(&folder)
        .map(|entries| entries.map(|entry| entry.unwrap().file_name()).collect())
        .unwrap_or_default();
    let wanted: BTreeSet<_> = made.keys().map(Into::into).collect();
    let advice = format!("run {UPDATE}=1 cargo test --test generated, and commit what it writes");
    assert_eq!(there, wanted, "{}: {advice}", folder.display());
    for (name, text) in made {
        let file = folder.join(name);
        assert!(
            fs::read(&file).unwrap() == *text,
            "{} is out of step: {advice}",
            file.display()
        );
    }
}

#[test]
fn the_manuals_are_in_step_with_the_command_lines() {
    let made = command_lines().into_iter().flat_map(manuals).collect();
    check(MAN, &made);
}

#[test]
fn the_completions_are_in_step_with_the_command_lines() {
    let made = command_lines().into_iter().flat_map(completions).collect();
    check(COMPLETIONS, &made);
}

/// The long options that `program arguments --help` explains.
fn options_of(program: &str, arguments: &[&str]) -> BTreeSet<String> {
    let output = Command::new(program)
        .args(arguments)
        .arg("--help")
        .output()
        .unwrap();
    assert!(output.status.success(), "{program} {arguments:?}");
    let help = String::from_utf8(output.stdout).unwrap();
    let lines = help
        .lines()
        .map(str::trim_start)
        .filter(|line| line.starts_with('-'));
    let words = lines.flat_map(|line| line.split([' ', ',', '[', '=', '.']));
    words
        .filter(|word| word.starts_with("--") && word.len() > 2)
        .map(str::to_owned)
        .collect()
}

#[test]
fn what_help_says_is_in_the_manual_and_in_the_completions() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mount = env!("CARGO_BIN_EXE_datasetrt-mount");
    let tool = env!("CARGO_BIN_EXE_datasetrt");
    let mut pages = vec![(
        "datasetrt-mount".to_owned(),
        "datasetrt-mount",
        options_of(mount, &[]),
    )];
    for inner in tool::command_line().get_subcommands() {
        let name = inner.get_name();
        pages.push((
            format!("datasetrt-{name}"),
            "datasetrt",
            options_of(tool, &[name]),
        ));
    }
    for (page, program, options) in pages {
        assert!(!options.is_empty(), "{page}");
        let manual = fs::read_to_string(folder.join(MAN).join(format!("{page}.1"))).unwrap();
        // What troff needs written otherwise.
        let manual = manual.replace("\\-", "-");
        let bash = folder.join(COMPLETIONS).join(format!("{program}.bash"));
        let bash = fs::read_to_string(bash).unwrap();
        for option in options {
            assert!(manual.contains(&option), "{page}: {option}");
            assert!(bash.contains(&option), "{program}.bash: {option}");
        }
    }
}

/// Whether every shell that is here accepts its file.
#[test]
fn shells_can_read_their_completions() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(COMPLETIONS);
    for program in ["datasetrt", "datasetrt-mount"] {
        for (shell, file) in [
            ("bash", format!("{program}.bash")),
            ("zsh", format!("_{program}")),
            ("fish", format!("{program}.fish")),
        ] {
            match Command::new(shell)
                .arg("-n")
                .arg(folder.join(file))
                .status()
            {
                Ok(status) => assert!(status.success(), "{shell} {program}"),
                Err(_) => eprintln!("SKIPPED: no {shell}"),
            }
        }
    }
}
