//! docs/inspect.md: each command that it shows, with each of its options, on a cache.

use std::path::Path;
use std::process::{Command, Output};

use super::document;

fn run(folder: &Path, words: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_datasetrt");
    let mut command = Command::new(program);
    command.current_dir(folder).args(words).output().unwrap()
}

#[test]
fn every_command_with_every_option_runs() {
    let folder = tempfile::tempdir().unwrap();
    let made = run(folder.path(), &["demo", "caches"]);
    assert!(made.status.success(), "{made:?}");
    let caches = std::fs::read_dir(folder.path().join("caches")).unwrap();
    let cache = caches.map(|entry| entry.unwrap().path()).min().unwrap();
    let cache = cache.to_str().unwrap();
    let text = document("docs/inspect.md");
    let mut tried = 0;
    for line in text.lines().filter(|line| line.starts_with("datasetrt ")) {
        let (words, options) = line.split_once('[').unwrap();
        let words: Vec<&str> = words
            .split_whitespace()
            .skip(1)
            .map(|word| match word {
                "CACHE" | "CACHE..." => cache,
                "SAMPLE" => "0",
                word => word,
            })
            .collect();
        for option in options.split(['[', ']', '|']) {
            let option = option.trim();
            let option = option.replace("FILE", "out").replace(" N", " 1");
            let whole: Vec<&str> = words
                .iter()
                .copied()
                .chain(option.split_whitespace())
                .collect();
            let output = run(folder.path(), &whole);
            assert!(output.status.success(), "{whole:?}: {output:?}");
            tried += 1;
        }
    }
    assert!(tried >= 8, "{tried}");
}
