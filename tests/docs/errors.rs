//! docs/troubleshooting.md: its headings are texts of errors. Each is in the code, and each error that
//! people see when they mount has its heading.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::document;

/// Where the errors of mounting, unmounting and refusing are made.
const SOURCES: [&str; 17] = [
    "src/error.rs",
    "src/dataset.rs",
    "src/cache.rs",
    "src/vfs.rs",
    "src/fuse/mount.rs",
    "src/fuse/mount/mountpoint.rs",
    "src/fuse/mount/root.rs",
    "src/fuse/mount/look.rs",
    "src/fuse/mount/helper.rs",
    "src/fuse/mount/given.rs",
    "src/fuse/session.rs",
    "src/fuse/confine/user.rs",
    "src/cli/mount.rs",
    "src/cli/mount/config.rs",
    "src/cli/mount/options.rs",
    "src/cli/mount/tree.rs",
    "src/cli/umount.rs",
];

/// What comes before the literal of an error.
const MAKERS: [&str; 6] = [
    "Error::refused(",
    "#[error(",
    "let reason =",
    "still_mounted(",
    "let text =",
    "Some(Errno::",
];

/// String literals of `code`, with continued lines joined and escapes undone, and where each starts.
fn literals(code: &str) -> Vec<(usize, String)> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"//") {
            at += code[at..].find('\n').unwrap_or(code.len() - at);
        } else if bytes[at..].starts_with(b"'\"'") {
            at += 3;
        } else if bytes[at] == b'"' {
            let start = at;
            at += 1;
            let mut text = Vec::new();
            while bytes[at] != b'"' {
                if bytes[at] == b'\\' && bytes[at + 1] == b'\n' {
                    at += 2;
                    while bytes[at].is_ascii_whitespace() {
                        at += 1;
                    }
                    continue;
                }
                if bytes[at] == b'\\' {
                    at += 1;
                }
                text.push(bytes[at]);
                at += 1;
            }
            at += 1;
            found.push((start, String::from_utf8(text).unwrap()));
        } else {
            at += 1;
        }
    }
    found
}

/// The code of a file without its tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.split("#[cfg(test)]\nmod tests")
        .next()
        .unwrap()
        .to_owned()
}

/// The longest part of a literal that has nothing filled in.
fn fixed_part(literal: &str) -> String {
    let mut parts = Vec::new();
    let mut rest = literal;
    while let Some((before, after)) = rest.split_once('{') {
        parts.push(before);
        rest = after.split_once('}').map_or("", |(_, rest)| rest);
    }
    parts.push(rest);
    let longest = parts.into_iter().max_by_key(|part| part.len()).unwrap();
    longest.trim().to_owned()
}

/// The errors of the sources, as they stand there.
fn errors() -> BTreeSet<String> {
    let mut errors = BTreeSet::new();
    for source in SOURCES {
        let code = code(&Path::new(env!("CARGO_MANIFEST_DIR")).join(source));
        for (start, literal) in literals(&code) {
            // From the last statement or arm on.
            let before = &code[..start];
            let statement = before.rfind([';', '}']).map_or(before, |at| &before[at..]);
            let part = fixed_part(&literal);
            if MAKERS.iter().any(|maker| statement.contains(maker)) && part.split(' ').count() >= 3
            {
                errors.insert(literal);
            }
        }
    }
    errors
}

fn all_sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all_sources(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// The texts that the headings of the document quote.
fn headings(text: &str) -> Vec<&str> {
    let headings = text.lines().filter_map(|line| line.strip_prefix("### `"));
    headings
        .map(|heading| heading.strip_suffix('`').expect(heading))
        .collect()
}

#[test]
fn each_text_of_the_document_is_in_the_code() {
    let document = document("docs/troubleshooting.md");
    let headings = headings(&document);
    assert!(headings.len() > 20);
    let mut files = Vec::new();
    all_sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut files,
    );
    let all: Vec<String> = files
        .iter()
        .flat_map(|file| literals(&code(file)))
        .map(|(_, literal)| literal)
        .collect();
    let unknown: Vec<&&str> = headings
        .iter()
        .filter(|heading| !all.iter().any(|literal| literal.contains(**heading)))
        .filter(|heading| !SYSTEM.contains(heading))
        .collect();
    assert!(unknown.is_empty(), "not in src: {unknown:#?}");
}

/// What the system says, not we.
const SYSTEM: [&str; 3] = [
    "Transport endpoint is not connected",
    "Device or resource busy",
    "Input/output error",
];

#[test]
fn each_error_of_mounting_is_in_the_document() {
    let errors = errors();
    assert!(errors.len() > 30, "{errors:#?}");
    let document = document("docs/troubleshooting.md");
    let headings = headings(&document);
    let missing: Vec<&String> = errors
        .iter()
        .filter(|error| !headings.iter().any(|heading| error.contains(heading)))
        .collect();
    assert!(
        missing.is_empty(),
        "not in docs/troubleshooting.md: {missing:#?}"
    );
}

#[test]
fn literals_are_found_as_they_are_written() {
    let code = "let reason = \"one \\\n    two {x} \\\"three\\\"\"; // \"no\"\n f('\"', \"four\");";
    let found: Vec<String> = literals(code).into_iter().map(|(_, text)| text).collect();
    assert_eq!(found, ["one two {x} \"three\"", "four"]);
    assert_eq!(fixed_part(&found[0]), "\"three\"");
}
