//! The views that are there without being asked for.

use std::collections::HashSet;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use super::bound::View;
use super::escape::escape_component;
use super::spec::ViewSpec;
use super::template::Template;
use crate::dataset::Entry;
use crate::format::metadata::{FieldKind, Table, ValueRef};
use crate::parallel::in_parallel;

/// A field with more values than this over all caches has no view of its own.
pub const MAX_DISTINCT: usize = 1000;

/// The field whose values are paths, and the name of its view.
const PATH: &str = "path";

/// `by-<field>` for each bool, int or string field with few values, in the order in which the
/// caches have the fields, and `path` where a string field is called so. Names in `taken` are left
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

/// The values of one field that were met lately: nearly all values of a field with few are among
/// them, and finding them here costs no hash that withstands an adversary.
struct Lately<'a>(Box<[Option<ValueRef<'a>>]>);

impl<'a> Lately<'a> {
    fn new() -> Self {
        Self(vec![None; LATELY].into())
    }

    /// Whether the value was met lately; it is now.
    fn has(&mut self, value: ValueRef<'a>) -> bool {
        let Some(place) = self.0.get_mut(place(value)) else {
            return false;
        };
        let found = *place == Some(value);
        *place = Some(value);
        found
    }
}

/// A place for the value, the same for the same.
fn place(value: ValueRef<'_>) -> usize {
    let number = match value {
        ValueRef::Bool(value) => u64::from(value),
        ValueRef::Int(value) => value.cast_unsigned(),
        ValueRef::Float(value) => value.to_bits(),
        ValueRef::String(text) => {
            let (first, last) = (text.as_bytes().first_chunk(), text.as_bytes().last_chunk());
            let ends = first.zip(last).map(|(first, last)| {
                u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last).rotate_left(32)
            });
            let short = || text.bytes().fold(0, |sum, byte| sum << 8 | u64::from(byte));
            ends.unwrap_or_else(short) ^ text.len() as u64
        }
    };
    // The upper bits of a product depend on all bits of both.
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - LATELY.ilog2());
    usize::try_from(mixed).unwrap_or(0)
}

/// The values of one field over all caches.
#[derive(Default)]
struct Distinct {
    bools: HashSet<bool>,
    ints: HashSet<i64>,
    texts: HashSet<Box<str>>,
}

impl Distinct {
    /// Adds the values of another one, which can all be names of folders.
    fn join(&mut self, other: Self) {
        self.bools.extend(other.bools);
        self.ints.extend(other.ints);
        self.texts.extend(other.texts);
    }

    fn len(&self) -> usize {
        self.bools.len() + self.ints.len() + self.texts.len()
    }

    /// Notes a value; false when it cannot be the name of a folder.
    fn note(&mut self, value: ValueRef<'_>) -> bool {
        match value {
            ValueRef::Bool(value) => {
                self.bools.insert(value);
            }
            ValueRef::Int(value) => {
                self.ints.insert(value);
            }
            ValueRef::String(text) if !self.texts.contains(text) => {
                self.texts.insert(text.into());
                return escape_component(text).is_some();
            }
            ValueRef::String(_) => {}
            ValueRef::Float(_) => return false,
        }
        true
    }
}

/// Rows of one cache in which values of a field are counted.
struct Rows<'a> {
    table: &'a Table,
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
        let (mut distinct, mut lately) = (Distinct::default(), Lately::new());
        for Rows {
            table,
            column,
            rows,
        } in piece
        {
            if self.fails.load(Relaxed) {
                return;
            }
            let counted = table.each_value(*column, rows, |value| {
                let few =
                    lately.has(value) || (distinct.note(value) && distinct.len() <= MAX_DISTINCT);
                match few {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            });
            if counted.is_break() {
                self.fails.store(true, Relaxed);
            }
        }
        let mut all = self.distinct.lock().unwrap_or_else(PoisonError::into_inner);
        all.join(distinct);
        if all.len() > MAX_DISTINCT {
            self.fails.store(true, Relaxed);
        }
    }
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
                    table: entry.cache.table(),
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

/// Those of `fields` whose values over all caches that have them can be the names of folders, and
/// are at most [`MAX_DISTINCT`].
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
        .filter(|(_, count)| !count.fails.load(Relaxed))
        .map(|(field, _)| field)
}
