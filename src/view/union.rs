//! One list of columns for the metadata of caches whose fields differ.

use std::collections::{HashMap, HashSet};

use crate::dataset::Entry;
use crate::format::metadata::FieldKind;

/// A column over all caches.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnionColumn {
    /// The field's name; `_meta` after it where the name is taken by something else, and then
    /// `_<kind>` where caches disagree on its kind.
    pub name: String,
    /// The kind of its values.
    pub kind: FieldKind,
}

/// The columns of all caches.
#[derive(Clone, Debug)]
pub struct Union {
    columns: Vec<UnionColumn>,
    /// For each cache, by column: the field in that cache's schema.
    fields: Vec<Vec<Option<usize>>>,
}

impl Union {
    /// The columns over `entries`, in the order in which the caches have them. Names in `reserved`
    /// are not used.
    #[must_use]
    pub fn new(entries: &[Entry], reserved: &[&str]) -> Self {
        let mut found: Vec<(&str, FieldKind)> = Vec::new();
        let mut places = HashMap::new();
        let mut kinds: HashMap<&str, HashSet<FieldKind>> = HashMap::new();
        let schemas = || entries.iter().map(|entry| &entry.cache.manifest().schema);
        for field in schemas().flatten() {
            let key = (field.name.as_str(), field.kind);
            places.entry(key).or_insert_with(|| {
                found.push(key);
                found.len() - 1
            });
            kinds.entry(key.0).or_default().insert(key.1);
        }
        let names = column_names(&found, &kinds, reserved);
        let fields = schemas().map(|schema| {
            let mut row = vec![None; found.len()];
            for (n, field) in schema.iter().enumerate() {
                let place = places.get(&(field.name.as_str(), field.kind));
                if let Some(slot) = place.and_then(|place| row.get_mut(*place)) {
                    *slot = Some(n);
                }
            }
            row
        });
        Self {
            fields: fields.collect(),
            columns: found
                .iter()
                .zip(names)
                .map(|(&(_, kind), name)| UnionColumn { name, kind })
                .collect(),
        }
    }

    /// The columns.
    #[must_use]
    pub fn columns(&self) -> &[UnionColumn] {
        &self.columns
    }

    /// For each column, the field of the cache at place `cache`, if it has one.
    #[must_use]
    pub fn fields(&self, cache: usize) -> &[Option<usize>] {
        self.fields.get(cache).map_or(&[], Vec::as_slice)
    }
}

/// Names that need no suffix are given first, so that no suffixed one takes them.
fn column_names(
    found: &[(&str, FieldKind)],
    kinds: &HashMap<&str, HashSet<FieldKind>>,
    reserved: &[&str],
) -> Vec<String> {
    let is_plain = |name: &str| {
        let one_kind = kinds.get(name).is_none_or(|kinds| kinds.len() == 1);
        one_kind && !reserved.contains(&name)
    };
    let mut used: HashSet<String> = reserved.iter().map(|name| (*name).to_owned()).collect();
    let plain = found.iter().filter(|(name, _)| is_plain(name));
    used.extend(plain.map(|(name, _)| (*name).to_owned()));
    let named = found.iter().map(|&(name, kind)| {
        let mut column = name.to_owned();
        if is_plain(name) {
            return column;
        }
        if reserved.contains(&name) {
            column.push_str("_meta");
        }
        if kinds.get(name).is_some_and(|kinds| kinds.len() > 1) {
            column = format!("{column}_{}", kind.name());
        }
        while !used.insert(column.clone()) {
            column.push('_');
        }
        column
    });
    named.collect()
}
