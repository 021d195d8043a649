//! docs/reliability.md: the tests that it names are there.

use std::path::Path;

use crate::document;

/// What stands between backticks and names a test, as file and function.
fn tests_in(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted
        .filter_map(|word| word.split_once(": "))
        .filter(|(file, _)| file.starts_with("tests/"))
}

#[test]
fn every_promise_names_a_test_that_is_there() {
    let text = document("docs/reliability.md");
    let promises = text.lines().filter(|line| line.starts_with("| "));
    for line in promises.filter(|line| line.contains("`tests/") || line.contains("`scripts/")) {
        let scripts = line.split('`').filter(|word| word.starts_with("scripts/"));
        for script in scripts {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
            assert!(path.exists(), "{script} is missing");
        }
    }
    let mut found = 0;
    for (file, test) in tests_in(&text) {
        let source = document(file);
        assert!(
            source.contains(&format!("#[test]\nfn {test}() {{")),
            "{file} has no test {test}"
        );
        found += 1;
    }
    assert!(found > 20, "{found} tests are named");
    // A table of promises has a test or a script in each of its lines.
    let mut inside = false;
    for line in text.lines() {
        inside = (inside || line.starts_with("| promise |")) && line.starts_with('|');
        let head = line.starts_with("| promise |") || line.starts_with("|---");
        assert!(
            !inside || head || line.contains("`tests/") || line.contains("`scripts/"),
            "{line}"
        );
    }
}
