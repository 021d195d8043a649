//! `/.control/log`: the last lines of the log.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Lines that are kept, bytes that they take together, and bytes of one line; what is longer is cut.
const LINES: usize = 1000;
const BYTES: usize = 256 << 10;
const LINE_BYTES: usize = 4 << 10;
/// What ends a line that was cut.
const CUT: &str = "...";

/// The last 1,000 lines of a log, at most 256 KiB. Whoever writes the log gives each line here too.
#[derive(Debug, Default)]
pub struct LogLines {
    kept: Mutex<Kept>,
    /// Lines ever noted.
    noted: AtomicU64,
}

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<String>,
    /// Of all lines with their ends.
    bytes: usize,
}

impl LogLines {
    /// Keeps one line, which comes without its end.
    pub fn note(&self, line: &str) {
        let line = match line.len() > LINE_BYTES {
            false => line.to_owned(),
            true => {
                let ends = (0..=LINE_BYTES - CUT.len()).rev();
                let start = ends.filter_map(|end| line.get(..end)).next();
                start.unwrap_or_default().to_owned() + CUT
            }
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += line.len() + 1;
        kept.lines.push_back(line);
        while kept.lines.len() > LINES || kept.bytes > BYTES {
            let oldest = kept.lines.pop_front();
            kept.bytes -= oldest.map_or(0, |line| line.len() + 1);
        }
        self.noted.fetch_add(1, Ordering::Relaxed);
    }

    /// The lines, the oldest first.
    pub(super) fn text(&self) -> Vec<u8> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = Vec::with_capacity(kept.bytes);
        for line in &kept.lines {
            text.extend_from_slice(line.as_bytes());
            text.push(b'\n');
        }
        text
    }

    /// A number that differs after each line.
    pub(super) fn changes(&self) -> u64 {
        self.noted.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &LogLines) -> String {
        String::from_utf8(lines.text()).unwrap()
    }

    #[test]
    fn the_last_thousand_lines_are_kept() {
        let lines = LogLines::default();
        assert_eq!(text(&lines), "");
        (0..LINES + 500).for_each(|n| lines.note(&format!("line {n}")));
        let text = text(&lines);
        assert_eq!(text.lines().count(), LINES);
        assert!(text.starts_with("line 500\n") && text.ends_with("line 1499\n"));
        assert_eq!(lines.changes(), 1500);
    }

    #[test]
    fn long_lines_take_bounded_memory() {
        let lines = LogLines::default();
        // Of characters of two bytes, so that a cut by bytes would be inside one.
        let long = format!("x{}", "\u{e9}".repeat(1 << 20));
        (0..LINES).for_each(|_| lines.note(&long));
        let text = text(&lines);
        assert!(text.len() <= BYTES && text.len() > BYTES - 2 * LINE_BYTES);
        for line in text.lines() {
            assert!(line.len() <= LINE_BYTES && line.ends_with("\u{e9}..."));
        }
    }
}
