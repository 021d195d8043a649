//! The views that are there without being asked for.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use super::bound::View;
use super::escape::escape_component;
use super::spec::ViewSpec;
use super::template::Template;
use crate::dataset::{Entry, in_parallel};
use crate::format::metadata::{FieldKind, ValueRef};

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
    let few = in_parallel(fields.len(), |n| {
        fields
            .get(n)
            .is_some_and(|field| has_few_values(entries, field))
    });
    let by_field = fields.iter().zip(few).filter(|(_, few)| *few);
    let mut specs: Vec<_> = by_field
        .filter_map(|(field, _)| {
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
    texts: HashMap<Box<str>, ()>,
}

impl Distinct {
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
            ValueRef::String(text) if !self.texts.contains_key(text) => {
                self.texts.insert(text.into(), ());
                return escape_component(text).is_some();
            }
            ValueRef::String(_) => {}
            ValueRef::Float(_) => return false,
        }
        true
    }
}

/// Whether the field's values over all caches that have it can be the names of folders, and are at
/// most [`MAX_DISTINCT`].
fn has_few_values(entries: &[Entry], name: &str) -> bool {
    let (mut distinct, mut lately) = (Distinct::default(), Lately::new());
    for entry in entries {
        let schema = &entry.cache.manifest().schema;
        let Some(column) = schema.iter().position(|field| field.name == name) else {
            continue;
        };
        let counted = entry.cache.table().each_value(column, |value| {
            let few = lately.has(value) || (distinct.note(value) && distinct.len() <= MAX_DISTINCT);
            match few {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        if counted.is_break() {
            return false;
        }
    }
    true
}
