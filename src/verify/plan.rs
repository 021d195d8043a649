//! Which piece of work a thread takes next, and in which order the findings come out.
//!
//! Pieces are numbered in the order of their findings: cache by cache; files, layout, then each
//! shard with its samples. Threads take them in another order: the samples of a shard right after
//! its bytes were hashed, while they are in memory; a shard that is still being hashed lends its
//! samples to threads that have nothing else to do. Findings wait for those of earlier pieces. When
//! too many wait, only the piece that they wait for is taken, so that memory is bounded.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};

use super::finding::Finding;
use crate::cache::FileCheck;

/// Findings that may wait for those of an earlier piece.
const MOST_WAITING: usize = 50_000;

/// What is to be done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Work {
    /// Hash a file.
    Hash(FileCheck),
    /// Report how the records lie.
    Layout,
    /// Check the samples one by one.
    Samples(Range<u64>),
    /// Sum up the cache once all its pieces are done; no thread takes this.
    End,
}

/// One piece of the work on one cache.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Piece {
    /// Place of the cache in the list.
    pub(super) cache: usize,
    pub(super) work: Work,
}

/// Pieces that belong together: `head` first, then the rest while what `head` read is in memory.
#[derive(Debug)]
pub(super) struct Group {
    /// Numbers of its pieces.
    pieces: Range<usize>,
    /// Bytes that the first piece reads.
    weight: u64,
    /// Whether the first piece is to be finished before the others are worth taking.
    headed: bool,
    taken: usize,
}

/// All pieces, in the order of their findings.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pieces: Vec<Piece>,
    groups: Vec<Group>,
}

impl Pieces {
    /// Appends a group whose first piece is `head` and reads `weight` bytes, if there is one.
    pub(super) fn add(
        &mut self,
        cache: usize,
        head: Option<(Work, u64)>,
        rest: impl IntoIterator<Item = Work>,
    ) {
        let start = self.pieces.len();
        let (head, weight) = head.unzip();
        let headed = head.is_some();
        let works = head.into_iter().chain(rest);
        self.pieces.extend(works.map(|work| Piece { cache, work }));
        self.groups.push(Group {
            pieces: start..self.pieces.len(),
            weight: weight.unwrap_or(0),
            headed,
            taken: 0,
        });
    }

    /// Appends the end of a cache.
    pub(super) fn end(&mut self, cache: usize) {
        self.add(cache, None, [Work::End]);
    }
}

/// Hears of each piece's findings in the order of the pieces.
pub(super) type Sink<'a> = dyn FnMut(&Piece, Vec<Finding>) + Send + 'a;

/// Hands out pieces and orders their findings.
pub(super) struct Plan<'a> {
    pieces: Vec<Piece>,
    state: Mutex<State<'a>>,
    emitted: Condvar,
    most_waiting: usize,
}

struct State<'a> {
    groups: Vec<Group>,
    /// Groups with a head, largest first as far as it matters, and how many were taken.
    heads: Vec<usize>,
    next_head: usize,
    /// Groups whose head is done and whose rest is not all taken.
    ready: VecDeque<usize>,
    /// Groups before this one have nothing left to take.
    first_open: usize,
    /// The piece whose findings come next.
    next: usize,
    waiting: BTreeMap<usize, Vec<Finding>>,
    waiting_count: usize,
    sink: Box<Sink<'a>>,
}

/// Groups are taken in order, except that files in steps of this many bytes go by size: the longest
/// must not start last.
const SIZE_STEP: u64 = 256 << 20;

impl<'a> Plan<'a> {
    pub(super) fn new(pieces: Pieces, sink: Box<Sink<'a>>) -> Self {
        Self::with_most_waiting(pieces, sink, MOST_WAITING)
    }

    fn with_most_waiting(pieces: Pieces, sink: Box<Sink<'a>>, most_waiting: usize) -> Self {
        let Pieces { pieces, groups } = pieces;
        let numbered = groups.iter().enumerate();
        let mut heads: Vec<(u64, usize)> = numbered
            .filter(|(_, group)| group.headed)
            .map(|(n, group)| (group.weight / SIZE_STEP, n))
            .collect();
        heads.sort_by_key(|&(size, _)| std::cmp::Reverse(size));
        let plan = Self {
            pieces,
            state: Mutex::new(State {
                groups,
                heads: heads.into_iter().map(|(_, n)| n).collect(),
                next_head: 0,
                ready: VecDeque::new(),
                first_open: 0,
                next: 0,
                waiting: BTreeMap::new(),
                waiting_count: 0,
                sink,
            }),
            emitted: Condvar::new(),
            most_waiting,
        };
        plan.lock().emit(&plan.pieces);
        plan
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next piece and its number; `None` when nothing is left to take.
    pub(super) fn take(&self) -> Option<(usize, &Piece)> {
        let mut state = self.lock();
        while state.waiting_count > self.most_waiting {
            let next = state.next;
            if let Some(number) = state.take_number(next) {
                return Some((number, self.pieces.get(number)?));
            }
            state = self
                .emitted
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let number = state.take_any(&self.pieces)?;
        Some((number, self.pieces.get(number)?))
    }

    /// Notes that piece `number` is done and passes on all findings whose turn has come.
    pub(super) fn done(&self, number: usize, findings: Vec<Finding>) {
        let mut state = self.lock();
        let group = state.group_of(number);
        if let Some(n) = group
            && let Some(group) = state.groups.get(n)
            && group.headed
            && group.pieces.start == number
        {
            state.ready.push_back(n);
        }
        state.waiting_count += findings.len();
        state.waiting.insert(number, findings);
        state.emit(&self.pieces);
        self.emitted.notify_all();
    }
}

impl State<'_> {
    fn group_of(&self, number: usize) -> Option<usize> {
        self.groups
            .partition_point(|group| group.pieces.start <= number)
            .checked_sub(1)
    }

    /// Takes the next piece of group `n`.
    fn take_of(&mut self, n: usize) -> Option<usize> {
        let group = self.groups.get_mut(n)?;
        let number = group.pieces.start.checked_add(group.taken)?;
        if number >= group.pieces.end {
            return None;
        }
        group.taken += 1;
        Some(number)
    }

    /// Takes piece `number`, unless a thread has it already.
    fn take_number(&mut self, number: usize) -> Option<usize> {
        let n = self.group_of(number)?;
        let group = self.groups.get(n)?;
        if group.pieces.start.checked_add(group.taken)? != number {
            return None;
        }
        self.take_of(n)
    }

    fn take_any(&mut self, pieces: &[Piece]) -> Option<usize> {
        while let Some(&n) = self.ready.front() {
            match self.take_of(n) {
                Some(number) => return Some(number),
                None => self.ready.pop_front(),
            };
        }
        while let Some(&n) = self.heads.get(self.next_head) {
            self.next_head += 1;
            if self.groups.get(n).is_some_and(|group| group.taken == 0)
                && let Some(number) = self.take_of(n)
            {
                return Some(number);
            }
        }
        while let Some(group) = self.groups.get(self.first_open) {
            let first = pieces.get(group.pieces.start);
            if first.is_some_and(|piece| piece.work != Work::End)
                && let Some(number) = self.take_of(self.first_open)
            {
                return Some(number);
            }
            self.first_open += 1;
        }
        None
    }

    /// Passes on what can be passed on.
    fn emit(&mut self, pieces: &[Piece]) {
        while let Some(piece) = pieces.get(self.next) {
            let findings = match (&piece.work, self.waiting.remove(&self.next)) {
                (_, Some(findings)) => findings,
                (Work::End, None) => Vec::new(),
                (_, None) => return,
            };
            self.waiting_count = self.waiting_count.saturating_sub(findings.len());
            self.next += 1;
            (self.sink)(piece, findings);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::finding::{Kind, Severity, Subject};
    use super::*;

    fn pieces() -> Pieces {
        let mut pieces = Pieces::default();
        for cache in 0..3 {
            pieces.add(cache, Some((Work::Hash(FileCheck::Metadata), 10)), []);
            pieces.add(cache, Some((Work::Layout, 0)), []);
            for shard in 0..4 {
                let rest = (0..20).map(|n| Work::Samples(n..n + 1));
                let weight = (shard as u64) << 30;
                pieces.add(
                    cache,
                    Some((Work::Hash(FileCheck::Shard(shard)), weight)),
                    rest,
                );
            }
            pieces.add(cache, None, (20..25).map(|n| Work::Samples(n..n + 1)));
            pieces.end(cache);
        }
        pieces
    }

    fn finding(number: usize) -> Finding {
        let subject = Subject {
            dir: std::path::Path::new("/c"),
            cache_id: None,
        };
        Finding {
            sample: Some(number as u64),
            ..subject.finding(Severity::Damage, Kind::Payload, PathBuf::new())
        }
    }

    #[test]
    fn every_piece_is_taken_once_and_findings_come_in_order_even_when_few_may_wait() {
        for (threads, most_waiting) in [(1, 0), (1, 100), (4, 0), (4, 3), (8, 1000)] {
            let seen = Mutex::new(Vec::new());
            let ends = AtomicUsize::new(0);
            let taken = AtomicUsize::new(0);
            let plan = Plan::with_most_waiting(
                pieces(),
                Box::new(|piece, findings| {
                    seen.lock()
                        .unwrap()
                        .extend(findings.into_iter().filter_map(|finding| finding.sample));
                    if piece.work == Work::End {
                        ends.fetch_add(1, Ordering::Relaxed);
                    }
                }),
                most_waiting,
            );
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        while let Some((number, _)) = plan.take() {
                            taken.fetch_add(1, Ordering::Relaxed);
                            plan.done(number, vec![finding(number), finding(number)]);
                        }
                    });
                }
            });
            drop(plan);
            let seen = seen.into_inner().unwrap();
            assert_eq!(taken.into_inner(), 3 * (2 + 4 * 21 + 5));
            assert_eq!(ends.into_inner(), 3);
            assert_eq!(seen.len(), 2 * 3 * (2 + 4 * 21 + 5));
            assert!(seen.is_sorted());
        }
    }

    #[test]
    fn the_samples_of_a_shard_are_taken_right_after_it_and_lent_out_before_when_nothing_else_is_left()
     {
        let mut pieces = Pieces::default();
        for shard in 0..2 {
            pieces.add(
                0,
                Some((Work::Hash(FileCheck::Shard(shard)), 1)),
                [Work::Samples(0..1), Work::Samples(1..2)],
            );
        }
        let plan = Plan::new(pieces, Box::new(|_, _| {}));
        assert_eq!(plan.take().unwrap().0, 0);
        plan.done(0, Vec::new());
        assert_eq!(plan.take().unwrap().0, 1);
        assert_eq!(plan.take().unwrap().0, 2);
        assert_eq!(plan.take().unwrap().0, 3, "the second shard's bytes");
        assert_eq!(
            plan.take().unwrap().0,
            4,
            "its samples, for a second thread"
        );
        plan.done(3, Vec::new());
        assert_eq!(plan.take().unwrap().0, 5);
        assert!(plan.take().is_none());
    }
}
