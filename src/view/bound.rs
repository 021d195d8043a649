//! Views bound to a list of caches: which columns their fields are, which samples they show.

use super::filter::{Compiled, Ids};
use super::spec::ViewSpec;
use super::template::{FieldPart, Template};
use crate::dataset::Entry;
use crate::error::{Error, Result};
use crate::format::metadata::{Field, FieldKind};

/// A view over the caches of one list.
#[derive(Debug)]
pub struct View {
    spec: ViewSpec,
    /// By place in the list; `None` for a cache none of whose samples are shown.
    bindings: Vec<Option<Binding>>,
    on_collision: OnCollision,
}

/// What happens to samples that a view would call the same.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnCollision {
    /// The view is refused, naming two of them.
    #[default]
    Refuse,
    /// Each gets `~<cache_id>-<sample_id>` before its extension.
    Suffix,
}

/// A view's fields in one cache.
#[derive(Debug)]
pub(super) struct Binding {
    /// Column of each field of the template, by slot; `None` where the default stands.
    pub(super) columns: Vec<Option<usize>>,
    filter: Option<Compiled>,
}

/// One sample of a list of caches.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Place of its cache in the list of entries.
    pub cache: usize,
    /// Its cache.
    pub entry: &'a Entry,
    /// Its id in the cache.
    pub sample: u64,
}

impl View {
    /// Binds `spec` to the caches of a list.
    ///
    /// # Errors
    /// [`Error::View`] when a cache lacks a field, or has it in a kind that does not fit.
    pub fn bind(spec: ViewSpec, entries: &[Entry], on_collision: OnCollision) -> Result<Self> {
        let bindings = entries
            .iter()
            .map(|entry| Binding::new(&spec, entry).map(Some))
            .collect::<Result<_>>()?;
        Ok(Self {
            spec,
            bindings,
            on_collision,
        })
    }

    /// Binds a view that leaves out caches without its fields and refuses nothing.
    pub(super) fn bind_where_possible(spec: ViewSpec, entries: &[Entry]) -> Self {
        let bindings = entries.iter().map(|entry| Binding::new(&spec, entry).ok());
        Self {
            bindings: bindings.collect(),
            spec,
            on_collision: OnCollision::Suffix,
        }
    }

    /// Its name under `/views`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.spec.name()
    }

    /// What was asked for.
    #[must_use]
    pub fn spec(&self) -> &ViewSpec {
        &self.spec
    }

    /// How its files are called.
    #[must_use]
    pub fn template(&self) -> &Template {
        self.spec.template()
    }

    /// What happens to samples that would be called the same.
    #[must_use]
    pub fn on_collision(&self) -> OnCollision {
        self.on_collision
    }

    /// Whether samples of the cache at place `cache` are shown at all.
    #[must_use]
    pub fn shows_cache(&self, cache: usize) -> bool {
        self.binding(cache).is_some()
    }

    /// Whether the sample is shown.
    #[must_use]
    pub fn shows(&self, subject: Subject<'_>) -> bool {
        let Some(binding) = self.binding(subject.cache) else {
            return false;
        };
        let Some(filter) = &binding.filter else {
            return true;
        };
        let entry = subject.entry;
        let ids = Ids {
            cache_id: entry.cache_id,
            sample: subject.sample,
            source_name: &entry.cache.manifest().source_name,
        };
        entry.cache.table().is_ok_and(|table| {
            let row = table.row(subject.sample);
            let admits = row.is_some_and(|row| filter.admits(&row, ids));
            admits && table.check().is_ok()
        })
    }

    /// Whether a name can be too long or occur twice only by what the metadata holds.
    #[must_use]
    pub fn depends_on_values(&self, entries: &[Entry]) -> bool {
        let text = self.template().fields().any(|field| {
            let kinds = entries.iter().map(|entry| {
                let schema = &entry.cache.manifest().schema;
                schema.iter().find(|known| known.name == field.name)
            });
            kinds.flatten().any(|known| known.kind == FieldKind::String)
        });
        text || !self.template().is_bounded() || !self.template().is_unique(entries.len())
    }

    /// More folders than the view has, its own included; for paths of no fixed depth, more than
    /// nearly all have.
    #[must_use]
    pub fn folder_bound(&self, entries: &[Entry]) -> u64 {
        /// Folders of a sample that is alone in each of them.
        const DEPTH: u64 = 16;
        /// A short list may have long paths.
        const LEAST: u64 = 1 << 16;
        let shown = entries.iter().enumerate();
        let shown = shown.filter(|(cache, _)| self.shows_cache(*cache));
        let samples = shown.map(|(_, entry)| entry.cache.sample_count());
        let samples = samples.fold(0_u64, u64::saturating_add);
        let folders = match self.template().folder_depth() {
            Some(depth) => samples.saturating_mul(depth as u64),
            None => samples.saturating_mul(DEPTH).max(LEAST),
        };
        folders.saturating_add(1)
    }

    pub(super) fn binding(&self, cache: usize) -> Option<&Binding> {
        self.bindings.get(cache)?.as_ref()
    }
}

impl Binding {
    fn new(spec: &ViewSpec, entry: &Entry) -> Result<Self> {
        let schema = &entry.cache.manifest().schema;
        let refused = |reason: String| Error::View {
            view: spec.name().to_owned(),
            reason: format!("{reason} (cache {})", entry.cache.dir().display()),
        };
        let columns = spec
            .template()
            .fields()
            .map(|field| column_of(field, schema).map_err(refused))
            .collect::<Result<_>>()?;
        let filter = match spec.filter() {
            None => None,
            Some(filter) => Some(Compiled::new(filter, schema).map_err(|error| {
                refused(format!("in the filter {:?}, {error}", filter.text().trim()))
            })?),
        };
        Ok(Self { columns, filter })
    }
}

fn column_of(part: &FieldPart, schema: &[Field]) -> Result<Option<usize>, String> {
    let column = schema.iter().position(|known| known.name == part.name);
    let kind = column
        .and_then(|column| schema.get(column))
        .map(|known| known.kind);
    match kind {
        None if part.default.is_some() => Ok(None),
        None => Err(format!(
            "expected {}, or a default as in {{{}|none}}, found {:?}",
            known_fields(schema),
            part.name,
            part.name
        )),
        Some(kind) if part.width > 0 && kind != FieldKind::Int => Err(format!(
            "expected an int to be padded with zeros, found field {:?} of kind {}",
            part.name,
            kind.name()
        )),
        Some(kind) if part.several && kind != FieldKind::String => Err(format!(
            "expected a string to make several components of, found field {:?} of kind {}",
            part.name,
            kind.name()
        )),
        Some(_) => Ok(column),
    }
}

/// The fields of a schema, for a message.
pub(super) fn known_fields(schema: &[Field]) -> String {
    /// More names than this help nobody.
    const SHOWN: usize = 20;
    let names: Vec<_> = schema
        .iter()
        .take(SHOWN)
        .map(|field| format!("{:?}", field.name))
        .collect();
    match (names.is_empty(), schema.len() > SHOWN) {
        (true, _) => "a field of the metadata (there is none)".to_owned(),
        (false, false) => format!("a field of the metadata ({})", names.join(", ")),
        (false, true) => format!("a field of the metadata ({}, ...)", names.join(", ")),
    }
}
