//! Many small reads of one file in order, served from few large ones.
//!
//! Whoever walks over the records of a shard reads some hundred bytes of each. Inside
//! [`with_window`] a thread's small reads that follow one another closely are taken from a window
//! of the file that is filled by one call.

use std::cell::{Cell, RefCell};
use std::io;

use super::StoredFile;

/// Bytes of a window: few calls, and still in the processor's cache when they are used.
const WINDOW: usize = 128 << 10;
/// Reads above this size gain nothing from being copied twice.
const SMALL: usize = 16 << 10;
/// A read that starts further behind the one before it than this is not part of a walk: filling
/// the window for it would read what nobody asks for.
const NEAR: u64 = 16 << 10;

#[derive(Default)]
struct Window {
    /// Number of the open file.
    file: Option<u64>,
    start: u64,
    bytes: Vec<u8>,
    /// Where the last read ended.
    last: u64,
}

thread_local! {
    static ACTIVE: Cell<bool> = const { Cell::new(false) };
    static CURRENT: RefCell<Window> = RefCell::default();
}

/// Runs `work`, serving this thread's small reads of [`StoredFile`]s from a window. What a file
/// holds is seen as of some moment during `work`.
pub fn with_window<T>(work: impl FnOnce() -> T) -> T {
    /// Also after a panic no later read may see an old window.
    struct Close(bool);
    impl Drop for Close {
        fn drop(&mut self) {
            ACTIVE.set(self.0);
            CURRENT.with_borrow_mut(Window::forget);
        }
    }
    let _close = Close(ACTIVE.replace(true));
    CURRENT.with_borrow_mut(Window::forget);
    work()
}

/// Whether this thread is inside [`with_window`].
pub(super) fn active() -> bool {
    ACTIVE.get()
}

/// As [`StoredFile::read_exact_at`], from the window if possible.
pub(super) fn read_exact_at(file: &StoredFile, buf: &mut [u8], offset: u64) -> io::Result<()> {
    if buf.len() > SMALL {
        return file.read_exact_at_directly(buf, offset);
    }
    CURRENT.with_borrow_mut(|window| window.read_exact_at(file, buf, offset))
}

impl Window {
    fn forget(&mut self) {
        self.file = None;
        self.bytes.clear();
    }

    fn read_exact_at(&mut self, file: &StoredFile, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let same = self.file == Some(file.number);
        if same && self.copy(buf, offset) {
            return Ok(());
        }
        let near = same && offset.checked_sub(self.last).is_some_and(|gap| gap < NEAR);
        if !same {
            self.forget();
            self.file = Some(file.number);
        }
        if near {
            self.fill(file, offset)?;
            if self.copy(buf, offset) {
                return Ok(());
            }
        }
        self.last = offset.saturating_add(buf.len() as u64);
        file.read_exact_at_directly(buf, offset)
    }

    fn copy(&mut self, buf: &mut [u8], offset: u64) -> bool {
        let bytes = offset
            .checked_sub(self.start)
            .and_then(|at| usize::try_from(at).ok())
            .and_then(|at| self.bytes.get(at..at.checked_add(buf.len())?));
        let Some(bytes) = bytes else {
            return false;
        };
        buf.copy_from_slice(bytes);
        self.last = offset.saturating_add(buf.len() as u64);
        true
    }

    fn fill(&mut self, file: &StoredFile, offset: u64) -> io::Result<()> {
        self.bytes.resize(WINDOW, 0);
        self.start = offset;
        let read = file.read_at_most(&mut self.bytes, offset);
        self.bytes.truncate(*read.as_ref().unwrap_or(&0));
        read.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_inside_a_window_are_those_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let bytes: Vec<u8> = (0..400_000_u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = StoredFile::open(&path).unwrap();
        with_window(|| {
            let check = |offset: usize, len: usize| {
                let mut buf = vec![0; len];
                let result = file.read_exact_at(&mut buf, offset as u64);
                match bytes.get(offset..offset + len) {
                    Some(expected) => {
                        result.unwrap();
                        assert!(buf == expected, "{offset} {len}");
                    }
                    None => {
                        let kind = result.unwrap_err().kind();
                        assert_eq!(kind, io::ErrorKind::UnexpectedEof, "{offset} {len}");
                    }
                }
            };
            // In steps, over the edge of each window and the end of the file, back, and far away.
            for step in [1, 100, 5000, 15_000, 20_000] {
                (0..400_010 / step).for_each(|n| check(n * step, 90));
            }
            for (offset, len) in [(0, 10), (399_990, 10), (399_991, 10), (5, 300_000), (7, 0)] {
                check(offset, len);
            }
        });
        assert!(!active());
    }

    #[test]
    fn a_window_is_not_used_after_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, [1; 100]).unwrap();
        let file = StoredFile::open(&path).unwrap();
        let walk = || {
            with_window(|| {
                let mut buf = [0];
                (0..10).for_each(|at| file.read_exact_at(&mut buf, at).unwrap());
                buf[0]
            })
        };
        assert_eq!(walk(), 1);
        std::fs::write(&path, [2; 100]).unwrap();
        assert_eq!(walk(), 2);
    }
}
