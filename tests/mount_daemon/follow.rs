//! `.control/log`, followed by tail(1) as any growing file.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::common::mount::can_mount;
use crate::place;

/// Against hanging only.
const LIMIT: Duration = Duration::from_secs(120);

/// A tail(1) that runs until dropped.
struct Tail {
    child: Child,
    lines: Receiver<String>,
}

impl Tail {
    fn start(words: &[&str], file: &Path) -> Self {
        let mut child = Command::new("tail")
            .args(words)
            .arg(file)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let shown = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in shown.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// The lines up to the first that has `word`.
    fn lines_up_to(&self, word: &str) -> Vec<String> {
        let mut seen = Vec::new();
        while !seen.last().is_some_and(|line: &String| line.contains(word)) {
            let line = self.lines.recv_timeout(LIMIT);
            seen.push(line.unwrap_or_else(|_| panic!("no {word} in {seen:?}")));
        }
        seen
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn tail_shows_each_line_of_the_log_once_as_it_comes() {
    if !can_mount() {
        return;
    }
    let place = place();
    let guard = place.mounted("mount");
    let log = guard.point.join(".control/log");
    // A list that is refused is one line of the log.
    let note = |word: &str| {
        let list = guard.point.join(".control/prefetch");
        let mut list = OpenOptions::new().write(true).open(list).unwrap();
        assert_eq!(
            list.write(format!("{word}\n").as_bytes())
                .unwrap_err()
                .raw_os_error(),
            Some(22)
        );
    };
    note("before-0-it");
    let tails = [
        Tail::start(&["-n", "+1", "-s", "0.1", "-f"], &log),
        // Looks after each two looks without change whether the name leads to another file.
        Tail::start(
            &["-n", "+1", "-s", "0.1", "--max-unchanged-stats=2", "-F"],
            &log,
        ),
    ];
    for tail in &tails {
        tail.lines_up_to("before-0-it");
    }
    for n in 0..12 {
        let word = format!("line-{n}-it");
        note(&word);
        for tail in &tails {
            let seen = tail.lines_up_to(&word);
            assert_eq!(seen.len(), 1, "{seen:?}");
        }
        // Others read it meanwhile.
        let whole = fs::read_to_string(&log).unwrap();
        assert_eq!(whole.matches(&word).count(), 1);
        assert!(whole.ends_with('\n'));
    }
}
