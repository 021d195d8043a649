//! `/.control/log`: the last lines of the log, as a file that only grows while somebody follows it.
//!
//! Once it is long it starts anew with its last lines, as another file (another inode number), like a log
//! that is rotated. Who still has the one before open reads on there: each shows the same lines, from
//! its own start on.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::control::later_than;
use super::inodes::LOGS;
use super::node::{ControlFile, Node};
use super::{Attr, FileKind, Ttl, Vfs, VfsError};

/// Lines that a new file starts with, bytes that they take together, and bytes of one line; what is longer
/// is cut.
const LINES: usize = 1000;
const BYTES: usize = 256 << 10;
const LINE_BYTES: usize = 4 << 10;
/// Bytes of one file; then it starts anew.
const MAX_BYTES: usize = 1 << 20;
/// What ends a line that was cut.
const CUT: &str = "...";
/// Files that are known at the same time, fewer than have numbers.
const KNOWN: usize = 512;
const _: () = assert!((KNOWN as u64) < LOGS);
/// Who has the file open sees new lines once in this time. A look at the log may itself be a line of it
/// (level debug): a reader that saw each at once would never come to the end.
const REFRESH: Duration = Duration::from_secs(1);

/// The last lines of a log: 1,000 or 256 KiB at least, 1 MiB at most. Whoever writes the log gives each line
/// here too.
#[derive(Debug)]
pub struct LogLines(Mutex<Kept>);

#[derive(Debug)]
struct Kept {
    text: VecDeque<u8>,
    /// Bytes that came before `text`.
    gone: u64,
    /// Number of the present file.
    file: u64,
    /// How many bytes came before each file that is known; the last is the present one.
    starts: VecDeque<u64>,
    /// Since when the last line is there.
    changed: SystemTime,
    /// Where the text ends for who has it open, since when it does, and when that was noted.
    shown: (u64, SystemTime, Instant),
}

impl Default for LogLines {
    fn default() -> Self {
        let changed = SystemTime::now();
        Self(Mutex::new(Kept {
            text: VecDeque::new(),
            gone: 0,
            file: 0,
            starts: VecDeque::from([0]),
            changed,
            shown: (0, changed, Instant::now()),
        }))
    }
}

impl LogLines {
    /// Keeps one line, which comes without its end.
    pub fn note(&self, line: &str) {
        let line = shortened(line);
        let mut kept = self.lock();
        if kept.text.len() + line.len() + 1 > MAX_BYTES {
            kept.start_anew();
        }
        kept.text.extend(line.as_bytes());
        kept.text.push_back(b'\n');
        kept.changed = later_than(kept.changed);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line of at most [`LINE_BYTES`], cut between characters.
fn shortened(line: &str) -> String {
    if line.len() <= LINE_BYTES {
        return line.to_owned();
    }
    let ends = (0..=LINE_BYTES - CUT.len()).rev();
    let start = ends.filter_map(|end| line.get(..end)).next();
    start.unwrap_or_default().to_owned() + CUT
}

impl Kept {
    /// Starts another file with the last lines of this one.
    fn start_anew(&mut self) {
        let ends = self.text.iter().rev().enumerate();
        let ends = ends.filter(|(_, byte)| **byte == b'\n').map(|(n, _)| n);
        // What stands before the end of a line that is not wanted is as many lines as come after it.
        let last = ends.take(LINES + 1).take_while(|n| *n <= BYTES).last();
        let gone = self.text.len() - last.unwrap_or(0);
        self.text.drain(..gone);
        self.gone += gone as u64;
        self.file += 1;
        self.starts.push_back(self.gone);
        if self.starts.len() > KNOWN {
            self.starts.pop_front();
        }
    }

    /// How many bytes came before a file.
    fn start_of(&self, file: u64) -> Option<u64> {
        let back = usize::try_from(self.file.checked_sub(file)?).ok()?;
        let at = self.starts.len().checked_sub(back.checked_add(1)?)?;
        self.starts.get(at).copied()
    }

    /// The file that has this number of [`LOGS`].
    fn file_of(&self, number: u64) -> Option<u64> {
        self.file
            .checked_sub((self.file % LOGS + LOGS - number % LOGS) % LOGS)
    }

    fn show_all(&mut self, now: Instant) {
        let end = self.gone + self.text.len() as u64;
        self.shown = (end, self.changed, now);
    }

    /// Shows what has come since, unless that was done a moment ago.
    fn refresh(&mut self, now: Instant) {
        if now.saturating_duration_since(self.shown.2) >= REFRESH {
            self.show_all(now);
        }
    }

    fn len_of(&self, number: u64) -> Option<u64> {
        let start = self.start_of(self.file_of(number)?)?;
        Some(self.shown.0.saturating_sub(start))
    }

    /// Puts the bytes from `offset` of a file on into `out`. `None` for what is not kept any more.
    fn read(&self, number: u64, offset: u64, out: &mut [u8]) -> Option<usize> {
        let start = self.start_of(self.file_of(number)?)?;
        let at = start.checked_add(offset)?;
        let Some(left) = self.shown.0.checked_sub(at) else {
            return Some(0);
        };
        let skipped = usize::try_from(at.checked_sub(self.gone)?).ok()?;
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let mut len = 0;
        let from = self.text.iter().skip(skipped).take(left);
        for (to, from) in out.iter_mut().zip(from) {
            *to = *from;
            len += 1;
        }
        Some(len)
    }
}

impl Vfs {
    /// Attributes of the log under a number; without one, of the present file.
    pub(super) fn log_attr(&self, number: Option<u64>) -> Result<Attr, VfsError> {
        let mut kept = self.options.log.lock();
        if number.is_none() {
            kept.show_all(Instant::now());
        }
        kept.refresh(Instant::now());
        let number = number.unwrap_or(kept.file % LOGS);
        let len = kept.len_of(number).ok_or(VfsError::Stale)?;
        let changed = kept.shown.1;
        drop(kept);
        let ino = self.ino(Node::Log(number));
        Ok(Attr {
            ttl: Ttl::Never,
            perm: self.perm_of(ControlFile::Log),
            ..self.plain(ino, FileKind::File, len, changed)
        })
    }

    pub(super) fn read_log(
        &self,
        number: Option<u64>,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize, VfsError> {
        let mut kept = self.options.log.lock();
        kept.refresh(Instant::now());
        let number = number.unwrap_or(kept.file % LOGS);
        kept.read(number, offset, out).ok_or(VfsError::Stale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(lines: &LogLines, file: u64) -> Option<String> {
        let mut text = vec![0; 2 * MAX_BYTES];
        lines.lock().show_all(Instant::now());
        let len = lines.lock().read(file % LOGS, 0, &mut text)?;
        text.truncate(len);
        Some(String::from_utf8(text).unwrap())
    }

    fn text(lines: &LogLines) -> String {
        let file = lines.lock().file;
        text_of(lines, file).unwrap()
    }

    #[test]
    fn the_file_only_grows_and_starts_anew_with_its_last_thousand_lines() {
        let lines = LogLines::default();
        assert_eq!(text(&lines), "");
        let (mut noted, mut before) = (0, String::new());
        while lines.lock().file == 0 {
            let line = format!("line {noted:0>60}");
            lines.note(&line);
            noted += 1;
            if lines.lock().file == 0 {
                before += &(line + "\n");
            }
        }
        assert_eq!(before.lines().count(), noted - 1);
        assert!(before.len() <= MAX_BYTES);
        let anew = text(&lines);
        assert_eq!(anew.lines().count(), LINES + 1);
        assert!(anew.starts_with(&format!("line {:0>60}\n", noted - 1 - LINES)));
        // Who has the first one open reads on behind what he has read.
        let mut rest = [0; 100];
        let kept = lines.lock();
        assert_eq!(kept.read(0, before.len() as u64, &mut rest), Some(66));
        assert_eq!(kept.len_of(0), Some(before.len() as u64 + 66));
        assert_eq!(kept.read(0, 0, &mut rest), None, "not kept any more");
        drop(kept);
        assert!(text_of(&lines, 0).is_none());
        assert!(text_of(&lines, 7).is_none(), "not there yet");
    }

    #[test]
    fn a_reader_whose_looks_are_lines_comes_to_the_end() {
        let lines = LogLines::default();
        lines.note("first");
        let now = Instant::now();
        lines.lock().show_all(now);
        let read = |offset, now| {
            lines.note("somebody has looked at the log");
            let mut kept = lines.lock();
            kept.refresh(now);
            kept.read(0, offset, &mut [0; 100])
        };
        assert_eq!(read(0, now), Some(6));
        assert_eq!(read(6, now), Some(0), "the end");
        assert_eq!(read(6, now + REFRESH), Some(93), "and more for who follows");
    }

    #[test]
    fn long_lines_take_bounded_memory() {
        let lines = LogLines::default();
        // Of characters of two bytes, so that a cut by bytes would be inside one.
        let long = format!("x{}", "\u{e9}".repeat(1 << 20));
        for _ in 0..600 {
            lines.note(&long);
            assert!(lines.lock().text.len() <= MAX_BYTES);
        }
        let text = text(&lines);
        assert!(text.len() > BYTES - 2 * LINE_BYTES);
        for line in text.lines() {
            assert!(line.len() <= LINE_BYTES && line.ends_with("\u{e9}..."));
        }
        assert!(lines.lock().starts.len() <= KNOWN);
    }
}
