//! The views that are there without being asked for.

use std::collections::HashSet;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use super::bound::View;
use super::escape::{NAME_MAX, escape_component};
use super::spec::ViewSpec;
use super::template::Template;
use crate::cache::Cache;
use crate::dataset::Entry;
use crate::format::metadata::{FieldKind, Visitor};
use crate::parallel::in_parallel;

/// A field with more values than this over all caches has no view of its own.
pub const MAX_DISTINCT: usize = 1000;

/// The field with the paths that samples had when they were packed, and the name of its view.
pub const PATH: &str = "path";

/// `by-<field>` for each bool, int or string field with few values, which are not all distinct, in
/// the order in which the caches have the fields, and `path` where a string field is called so. Names in `taken` are left
/// out. Reads each column once, until it has too many values; memory is bounded by [`MAX_DISTINCT`].
#[must_use]
pub fn automatic(entries: &[Entry], taken: &HashSet<&str>) -> Vec<View> {
    let mut fields: Vec<&str> = Vec::new();
    let mut seen = HashSet::new();
    let all = entries
        .iter()
        .flat_map(|entry| &entry.cache.manifest().schema);
    for field in all.filter(|field| field.kind != FieldKind::Float) {
        if seen.insert(field.name.as_str()) {
            fields.push(&field.name);
        }
    }
    let mut specs: Vec<_> = with_few_values(entries, &fields)
        .filter_map(|field| {
            let name = escape_component(field)?;
            ViewSpec::new(&format!("by-{name}"), Template::by_field(field)).ok()
        })
        .collect();
    if fields.contains(&PATH) {
        specs.extend(ViewSpec::new(PATH, Template::stored_path(PATH)));
    }
    specs.retain(|spec| !taken.contains(spec.name()));
    let views = specs
        .into_iter()
        .map(|spec| View::bind_where_possible(spec, entries));
    views
        .filter(|view| (0..entries.len()).any(|cache| view.shows_cache(cache)))
        .collect()
}

/// Places for values that were met lately; a power of two.
const LATELY: usize = 4096;

/// The values of one kind that were met lately: nearly all values of a field with few are among
/// them, and finding them here costs no hash that withstands an adversary.
struct Lately<T>(Box<[Option<T>]>);

impl<T: Copy + PartialEq> Lately<T> {
    fn new() -> Self {
        Self(vec![None; LATELY].into())
    }

    /// Whether the value was met lately; it is now. `place` is the same for the same value.
    fn has(&mut self, place: u64, value: T) -> bool {
        let place = usize::try_from(place % LATELY as u64).unwrap_or(0);
        let Some(place) = self.0.get_mut(place) else {
            return false;
        };
        if *place == Some(value) {
            return true;
        }
        *place = Some(value);
        false
    }
}

/// A number that depends on all of the text's length and much of its ends.
fn mixed(text: &str) -> u64 {
    let (first, last) = (text.as_bytes().first_chunk(), text.as_bytes().last_chunk());
    let ends = first.zip(last).map(|(first, last)| {
        u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last).rotate_left(32)
    });
    let short = || text.bytes().fold(0, |sum, byte| sum << 8 | u64::from(byte));
    let number = ends.unwrap_or_else(short) ^ text.len() as u64;
    // The upper bits of a product depend on all bits.
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - LATELY.ilog2())
}

/// Values of one field.
#[derive(Default)]
struct Distinct {
    bools: HashSet<bool>,
    ints: HashSet<i64>,
    texts: HashSet<Box<str>>,
}

impl Distinct {
    fn len(&self) -> usize {
        self.bools.len() + self.ints.len() + self.texts.len()
    }

    /// Adds the values of another one.
    fn join(&mut self, other: Self) {
        self.bools.extend(other.bools);
        self.ints.extend(other.ints);
        self.texts.extend(other.texts);
    }
}

/// Counts values up to one too many, or one that cannot be the name of a folder.
struct Counting<'a> {
    distinct: Distinct,
    bools: Lately<bool>,
    ints: Lately<i64>,
    texts: Lately<&'a str>,
}

impl Counting<'_> {
    fn new() -> Self {
        Self {
            distinct: Distinct::default(),
            bools: Lately::new(),
            ints: Lately::new(),
            texts: Lately::new(),
        }
    }

    #[cold]
    fn note(&mut self, add: impl FnOnce(&mut Distinct) -> bool) -> ControlFlow<()> {
        match add(&mut self.distinct) && self.distinct.len() <= MAX_DISTINCT {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }
}

impl<'a> Visitor<'a> for Counting<'a> {
    fn bool(&mut self, value: bool) -> ControlFlow<()> {
        if self.bools.has(u64::from(value), value) {
            return ControlFlow::Continue(());
        }
        self.note(|distinct| {
            distinct.bools.insert(value);
            true
        })
    }

    fn int(&mut self, value: i64) -> ControlFlow<()> {
        // Numbers of classes lie side by side, so that they are few lines of memory.
        if self.ints.has(value.cast_unsigned(), value) {
            return ControlFlow::Continue(());
        }
        self.note(|distinct| {
            distinct.ints.insert(value);
            true
        })
    }

    fn float(&mut self, _: f64) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn text(&mut self, value: &'a str) -> ControlFlow<()> {
        if self.texts.has(mixed(value), value) {
            return ControlFlow::Continue(());
        }
        self.note(|distinct| {
            if distinct.texts.contains(value) {
                return true;
            }
            distinct.texts.insert(value.into());
            value.len() <= NAME_MAX
        })
    }
}

/// Rows of one cache in which values of a field are counted.
struct Rows<'a> {
    cache: &'a Cache,
    column: usize,
    rows: Range<u64>,
}

/// The values of one field over all caches that have it, counted by many threads.
#[derive(Default)]
struct Count {
    distinct: Mutex<Distinct>,
    /// Whether there are more than [`MAX_DISTINCT`], or one that cannot be the name of a folder.
    fails: AtomicBool,
}

impl Count {
    /// Counts the values of one piece of work.
    fn add(&self, piece: &[Rows<'_>]) {
        let mut counting = Counting::new();
        for Rows {
            cache,
            column,
            rows,
        } in piece
        {
            if self.fails.load(Relaxed) {
                return;
            }
            let visited = cache.table().is_ok_and(|table| {
                let visited = table.get().visit(*column, rows, &mut counting);
                visited.is_continue() && table.check().is_ok()
            });
            if !visited {
                self.fails.store(true, Relaxed);
            }
        }
        let mut all = self.distinct.lock().unwrap_or_else(PoisonError::into_inner);
        all.join(counting.distinct);
        if all.len() > MAX_DISTINCT {
            self.fails.store(true, Relaxed);
        }
    }

    /// Whether there are several samples with the field, and each has a value of its own.
    fn is_one_each(&self, entries: &[Entry], field: &str) -> bool {
        let with_field = entries.iter().filter(|entry| has(entry, field));
        let samples: u64 = with_field.map(|entry| entry.cache.sample_count()).sum();
        let all = self.distinct.lock().unwrap_or_else(PoisonError::into_inner);
        samples > 1 && all.len() as u64 == samples
    }
}

/// Whether the cache has the field.
fn has(entry: &Entry, field: &str) -> bool {
    let schema = &entry.cache.manifest().schema;
    schema.iter().any(|known| known.name == field)
}

/// Rows that one thread counts before it takes the next ones.
const AT_ONCE: u64 = 1 << 18;

/// All rows that have the field, in pieces of about [`AT_ONCE`].
fn pieces<'a>(entries: &'a [Entry], field: &str) -> Vec<Vec<Rows<'a>>> {
    let mut pieces = vec![Vec::new()];
    let mut room = AT_ONCE;
    for entry in entries {
        let schema = &entry.cache.manifest().schema;
        let Some(column) = schema.iter().position(|known| known.name == field) else {
            continue;
        };
        let mut rest = 0..entry.cache.sample_count();
        while !rest.is_empty() {
            let end = rest.end.min(rest.start.saturating_add(room));
            if let Some(piece) = pieces.last_mut() {
                piece.push(Rows {
                    cache: &entry.cache,
                    column,
                    rows: rest.start..end,
                });
            }
            room -= end - rest.start;
            rest.start = end;
            if room == 0 {
                pieces.push(Vec::new());
                room = AT_ONCE;
            }
        }
    }
    pieces
}

/// Those of `fields` whose values over all caches that have them can be the names of folders, are at
/// most [`MAX_DISTINCT`], and put some samples together: a folder for each sample is noise.
fn with_few_values<'f>(entries: &[Entry], fields: &[&'f str]) -> impl Iterator<Item = &'f str> {
    let counts: Vec<_> = fields
        .iter()
        .map(|field| (*field, Count::default()))
        .collect();
    let work: Vec<_> = counts
        .iter()
        .flat_map(|(field, count)| {
            let pieces = pieces(entries, field);
            pieces.into_iter().map(move |piece| (count, piece))
        })
        .collect();
    in_parallel(work.len(), |n| {
        if let Some((count, piece)) = work.get(n) {
            count.add(piece);
        }
    });
    drop(work);
    counts
        .into_iter()
        .filter(|(field, count)| !count.fails.load(Relaxed) && !count.is_one_each(entries, field))
        .map(|(field, _)| field)
}
