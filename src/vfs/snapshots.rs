//! Files whose text changes all the time. Each look-up gives a node that never changes: the text
//! as it was then, with its true length. So no reader ever sees a mix of two texts or a wrong end,
//! although the kernel keeps pages and there are no open files to tie a text to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::inodes::SNAPSHOTS;
use super::node::ControlFile;

/// Texts of one file that are kept for readers, and bytes that they take together; older ones are stale.
/// Each file has its own, so that a look at one makes no other stale.
const KEPT: usize = 256;
const KEPT_BYTES: usize = 16 << 20;
/// A text is given again for this long, unless something of weight has changed since: tools such
/// as cp(1) insist that a file looked up twice is the same file.
const FRESH: Duration = Duration::from_secs(1);

/// One text.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) number: u64,
    pub(super) text: Arc<[u8]>,
    pub(super) taken: SystemTime,
    pub(super) file: ControlFile,
    /// What the text depends on beside mere counters.
    state: u64,
    since: Instant,
}

/// The latest texts of all such files of a mount.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    kept: Mutex<(u64, VecDeque<Snapshot>)>,
}

impl Snapshots {
    /// The present text of `file`. `state` is a number that differs after each change of weight.
    pub(super) fn take(
        &self,
        file: ControlFile,
        state: u64,
        text: impl FnOnce() -> Vec<u8>,
    ) -> Snapshot {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, texts) = &mut *kept;
        let last = texts.iter().rev().find(|snapshot| snapshot.file == file);
        if let Some(last) = last
            && last.state == state
            && last.since.elapsed() < FRESH
        {
            return last.clone();
        }
        let text = text();
        if let Some(last) = last
            && *last.text == *text
        {
            return last.clone();
        }
        let snapshot = Snapshot {
            number: *next,
            text: text.into(),
            taken: SystemTime::now(),
            file,
            state,
            since: Instant::now(),
        };
        *next = (*next + 1) % SNAPSHOTS;
        texts.push_back(snapshot.clone());
        let same = texts.iter().filter(|other| other.file == file);
        let (mut count, mut bytes) = same.fold((0, 0), |(count, bytes), other| {
            (count + 1, bytes + other.text.len())
        });
        texts.retain(|other| {
            let drop = other.file == file && (count > KEPT || bytes > KEPT_BYTES && count > 1);
            if drop {
                count -= 1;
                bytes -= other.text.len();
            }
            !drop
        });
        snapshot
    }

    /// The text with this number, if it is still kept.
    pub(super) fn get(&self, number: u64) -> Option<Snapshot> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept
            .1
            .iter()
            .rev()
            .find(|snapshot| snapshot.number == number);
        found.cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_keeps_its_text_while_the_file_changes() {
        let snapshots = Snapshots::default();
        let first = snapshots.take(ControlFile::Status, 0, || b"one".to_vec());
        let again = snapshots.take(ControlFile::Status, 0, || b"counters moved".to_vec());
        assert_eq!(again.number, first.number, "the same file for a moment");
        let second = snapshots.take(ControlFile::Status, 1, || b"two".to_vec());
        assert_ne!(
            second.number, first.number,
            "a change of weight shows at once"
        );
        assert_eq!(*snapshots.get(first.number).unwrap().text, *b"one");
        let many = |file| {
            for n in 0..KEPT as u64 {
                snapshots.take(file, n + 10, || n.to_string().into_bytes());
            }
        };
        many(ControlFile::Damaged);
        assert!(snapshots.get(first.number).is_some(), "of another file");
        many(ControlFile::Status);
        assert!(snapshots.get(first.number).is_none(), "memory is bounded");
        let large = |n: u64| {
            let mut text = vec![0; KEPT_BYTES / 4];
            text.extend(n.to_string().into_bytes());
            snapshots.take(ControlFile::Metrics, n, || text)
        };
        let [oldest, second] = [0, 1].map(large);
        (2..4).for_each(|n| drop(large(n)));
        assert!(snapshots.get(oldest.number).is_none(), "bytes are bounded");
        assert!(snapshots.get(second.number).is_some());
    }
}
