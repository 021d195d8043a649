//! What is to be packed: the sources, read through once to count the samples, learn the metadata's
//! types and find what cannot be packed before anything is written.

mod classes;
mod twice;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use super::infer::{FieldChoices, Inference, convert};
use super::join::{Join, JoinOptions, JoinReader};
use super::spelling::spell;
use super::{Cells, Found, Item, Payload, Place, Source, refuse};
use crate::error::{Error, Result};
use crate::format::manifest::FieldKind;
use crate::format::metadata::{Field, Value};
use classes::Classes;
use twice::Names;

/// Name of the field with a sample's path.
const PATH: &str = "path";
/// Name of the field with a sample's class.
const LABEL: &str = "label";

/// Whether samples get a label: the name of the folder that they lie in.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Labels {
    /// When each source is folders of classes: all files lie in at least two folders, which have
    /// one parent.
    #[default]
    Auto,
    /// Always.
    Yes,
    /// Never.
    No,
}

/// What the metadata is made of.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// Whether samples get their path as metadata.
    pub path: bool,
    /// Whether they get a label.
    pub labels: Labels,
    /// Types and fields that the user chose.
    pub choices: FieldChoices,
    /// Names and text that are not UTF-8 are mended instead of escaped or refused.
    pub lossy: bool,
    /// A table of further metadata.
    pub join: Option<JoinOptions>,
}

/// What the first reading found.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Number of samples.
    pub samples: u64,
    /// Bytes of the payloads whose length is known without opening them.
    pub bytes: u64,
    /// What is left out: its kind, how many there are, and the first.
    pub skipped: BTreeMap<String, (u64, String)>,
    /// Rows of the joined table without a sample.
    pub unused_rows: u64,
}

/// Sources that were read through once.
#[derive(Debug)]
pub struct Plan {
    sources: Vec<Box<dyn Source>>,
    lossy: bool,
    join: Option<Join>,
    fields: Vec<Field>,
    path_slot: Option<usize>,
    label_slot: Option<usize>,
    /// Where the values of tables and archives go; those that were left out have no place.
    slots: HashMap<Arc<str>, usize>,
    totals: Totals,
}

/// A sample that is ready to be written.
#[derive(Debug)]
pub struct Work {
    /// Where its bytes are.
    pub payload: Payload,
    /// Its metadata, in schema order.
    pub values: Vec<Value>,
    /// The source, for messages.
    pub source: Arc<Path>,
    /// Which sample of the source it is.
    pub place: Place,
}

impl Plan {
    /// Reads through all sources. `check` is called for each sample, with the number of those
    /// before it, and may stop the reading.
    ///
    /// # Errors
    /// [`Error::Refused`] naming file, place and field for what cannot be packed, and when there
    /// are no samples; [`Error::Io`]; what `check` gives.
    pub fn make(
        sources: Vec<Box<dyn Source>>,
        options: PlanOptions,
        check: &dyn Fn(u64) -> Result<()>,
    ) -> Result<Self> {
        let (mut join, joined) = match options.join.clone() {
            Some(join) => {
                let choices = options.choices.clone();
                let (join, fields) = Join::open(join, choices, options.lossy, &|| check(0))?;
                (Some(join), fields)
            }
            None => (None, Vec::new()),
        };
        let mut scan = Scan::new(&options);
        for source in &sources {
            scan.source(&**source, join.as_mut(), check)?;
        }
        if scan.totals.samples == 0 {
            let path = sources.first().map(|source| source.path());
            return Err(Error::refused(
                path.unwrap_or(Path::new("")),
                "no samples in it: nothing to pack",
            ));
        }
        scan.totals.unused_rows = join.as_ref().map_or(0, Join::unused);
        let place = sources
            .first()
            .map_or(Path::new(""), |source| source.path());
        let (path, labels) = (scan.paths(place)?, scan.classes.labels(options.labels));
        let own = scan.inference.finish();
        let own = own.map_err(|reason| Error::refused(place, reason))?;
        let taken = |name: &str| own.iter().chain(&joined).any(|(other, _)| **other == *name);
        // A label of the user's own takes the place of the one that nobody asked for.
        let labels = labels && !(options.labels == Labels::Auto && taken(LABEL));
        let text = |name: &str| (Arc::from(name), FieldKind::String);
        let made = [(path, PATH), (labels, LABEL)];
        let made = made.iter().filter(|(wanted, _)| *wanted);
        let mut all: Vec<(Arc<str>, FieldKind)> = made.map(|(_, name)| text(name)).collect();
        all.extend(own.iter().chain(&joined).cloned());
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        refuse_clashes(place, &all)?;
        let known = |name: &String| all.iter().any(|(other, _)| **other == **name);
        if let Some(unknown) = options.choices.types.keys().find(|name| !known(name)) {
            let names: Vec<&str> = all.iter().map(|(name, _)| &**name).collect();
            let reason = format!(
                "a type is given for field {unknown:?}, but there are only: {}",
                names.join(", ")
            );
            return Err(Error::refused(place, reason));
        }
        let made_here = |name: &str| matches!(name, PATH | LABEL) && !taken(name);
        let mut types = options.choices.types.iter();
        let of_ours =
            types.find(|(name, kind)| made_here(name.as_str()) && **kind != FieldKind::String);
        if let Some((name, kind)) = of_ours {
            let reason = format!(
                "the type {} is given for field {name:?}, which is made by pack and a string",
                kind.name()
            );
            return Err(Error::refused(place, reason));
        }
        let slot = |wanted: bool, name: &str| {
            all.iter()
                .position(|(other, _)| **other == *name)
                .filter(|_| wanted)
        };
        let given = own.iter().chain(&joined);
        let slots = given
            .filter_map(|(name, _)| Some((Arc::clone(name), slot(true, name)?)))
            .collect();
        Ok(Self {
            lossy: options.lossy,
            path_slot: slot(path, PATH),
            label_slot: slot(labels, LABEL),
            slots,
            fields: all
                .into_iter()
                .map(|(name, kind)| Field {
                    name: name.to_string(),
                    kind,
                })
                .collect(),
            totals: scan.totals,
            sources,
            join,
        })
    }

    /// The metadata fields, in schema order.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// What the reading found.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Calls `each` for every sample, in order.
    ///
    /// # Errors
    /// As [`Plan::make`]; what `each` gives.
    pub fn visit(&self, each: &mut dyn FnMut(Work) -> Result<()>) -> Result<()> {
        let mut join = match &self.join {
            Some(join) => Some(join.reader()?),
            None => None,
        };
        for source in &self.sources {
            let path: Arc<Path> = Arc::from(source.path());
            source.visit(true, &mut |found| match found {
                Found::Item(item) => each(self.work(item, &path, join.as_mut())?),
                Found::Skipped(..) => Ok(()),
            })?;
        }
        Ok(())
    }

    fn work(
        &self,
        item: Item,
        source: &Arc<Path>,
        join: Option<&mut JoinReader<'_>>,
    ) -> Result<Work> {
        let refused = |reason: String| refuse(source, &item.place, reason);
        let mut values: Vec<Option<Value>> = vec![None; self.fields.len()];
        let mut put = |slot: usize, value: Value| {
            if let Some(place) = values.get_mut(slot) {
                *place = Some(value);
            }
        };
        if self.path_slot.is_some() || join.is_some() {
            let path = spell(&item.name, self.lossy);
            if let Some(join) = join {
                let cells = join.row(&path)?.map_err(refused)?;
                self.put_cells(cells, &mut put).map_err(refused)?;
            }
            if let Some(slot) = self.path_slot {
                put(slot, Value::String(path));
            }
        }
        if let Some(slot) = self.label_slot {
            let label = classes::parent(&item.name)
                .ok_or_else(|| refused("lies in no folder that could be its label".to_owned()))?;
            put(slot, Value::String(spell(label, self.lossy)));
        }
        self.put_cells(item.cells, &mut put).map_err(refused)?;
        let values = self.fields.iter().zip(values);
        let values = values
            .map(|(field, value)| value.ok_or_else(|| format!("field {:?}: no value", field.name)))
            .collect::<Result<_, _>>()
            .map_err(refused)?;
        Ok(Work {
            payload: item.payload,
            values,
            source: Arc::clone(source),
            place: item.place,
        })
    }

    fn put_cells(&self, cells: Cells, put: &mut dyn FnMut(usize, Value)) -> Result<(), String> {
        for (name, cell) in cells {
            let Some(&slot) = self.slots.get(&name) else {
                continue;
            };
            if let Some(field) = self.fields.get(slot) {
                let value = convert(cell, field.kind);
                let value = value.map_err(|reason| format!("field {name:?}: {reason}"))?;
                put(slot, value);
            }
        }
        Ok(())
    }
}

/// The first reading.
struct Scan {
    inference: Inference,
    classes: Classes,
    totals: Totals,
    path: bool,
    lossy: bool,
    /// The first sample with a path and the first without.
    named: Option<Place>,
    unnamed: Option<Place>,
}

impl Scan {
    fn new(options: &PlanOptions) -> Self {
        Self {
            inference: Inference::new(options.choices.clone()),
            classes: Classes::default(),
            totals: Totals::default(),
            path: options.path,
            lossy: options.lossy,
            named: None,
            unnamed: None,
        }
    }

    fn source(
        &mut self,
        source: &dyn Source,
        mut join: Option<&mut Join>,
        check: &dyn Fn(u64) -> Result<()>,
    ) -> Result<()> {
        self.classes.next_source(source.has_folders());
        let mut names = source.names_are_unique().then(Names::default);
        source.visit(false, &mut |found| {
            check(self.totals.samples)?;
            match found {
                Found::Item(item) => {
                    if let Some(names) = &mut names {
                        names.add(&item.name);
                    }
                    self.item(&item, join.as_deref_mut())
                        .map_err(|reason| refuse(source.path(), &item.place, reason))
                }
                Found::Skipped(place, what) => {
                    let first = format!("{}: {place}", source.path().display());
                    let known = self.totals.skipped.entry(what).or_insert((0, first));
                    known.0 += 1;
                    Ok(())
                }
            }
        })?;
        match names {
            Some(names) => names.refuse_twice(source),
            None => Ok(()),
        }
    }

    fn item(&mut self, item: &Item, join: Option<&mut Join>) -> Result<(), String> {
        self.totals.samples += 1;
        self.totals.bytes += item.len.unwrap_or(0);
        self.classes.add(&item.name);
        let seen = match item.name.is_empty() {
            true => &mut self.unnamed,
            false => &mut self.named,
        };
        if seen.is_none() {
            *seen = Some(item.place.clone());
        }
        if let Some(join) = join
            && !join.note(&spell(&item.name, self.lossy))
        {
            return Err(join.no_row());
        }
        self.inference.observe(&item.place, &item.cells)
    }

    /// Whether samples get a path: payloads that stand in a table have none.
    fn paths(&self, place: &Path) -> Result<bool> {
        match (&self.named, &self.unnamed) {
            (Some(named), Some(unnamed)) if self.path => {
                let reason = format!("{unnamed} has no path, but {named} has one (see --no-path)");
                Err(Error::refused(place, reason))
            }
            (named, _) => Ok(self.path && named.is_some()),
        }
    }
}

/// Refuses fields that come from two sides.
fn refuse_clashes(path: &Path, fields: &[(Arc<str>, FieldKind)]) -> Result<()> {
    let twice = fields.windows(2).find_map(|pair| match pair {
        [(a, _), (b, _)] if a == b => Some(a),
        _ => None,
    });
    match twice {
        Some(name) => Err(Error::refused(
            path,
            format!(
                "field {name:?} comes from two sides (--drop {name} leaves out the one of the \
                 table or archive, --no-path and --no-label the ones made here)"
            ),
        )),
        None => Ok(()),
    }
}
