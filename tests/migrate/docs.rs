//! The examples of docs/migration.md, run one after the other.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::files::v2_cache;

#[test]
fn the_examples_do_what_the_page_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/migration.md");
    let page = std::fs::read_to_string(page).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for name in ["train", "val", "test"] {
        v2_cache(folder.path(), name);
    }
    let tool = Path::new(env!("CARGO_BIN_EXE_datasetrt")).parent().unwrap();
    let mut path = tool.as_os_str().to_owned();
    path.push(":");
    path.push(env::var_os("PATH").unwrap());

    let mut count = 0;
    for block in page.split("```console\n").skip(1) {
        let (block, _) = block.split_once("```").unwrap();
        for example in block.split("$ ").skip(1) {
            let (line, expected) = example.split_once('\n').unwrap();
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(format!("exec 2>&1\n{line}"));
            let output = shell
                .current_dir(&folder)
                .env("PATH", &path)
                .output()
                .unwrap();
            let output = String::from_utf8(output.stdout).unwrap();
            assert_eq!(output, expected, "$ {line}");
            count += 1;
        }
    }
    assert_eq!(count, 9, "examples");
}
