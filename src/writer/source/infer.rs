//! The type of each metadata field, learnt from all of its values.
//!
//! In typed sources (JSON, Parquet, Arrow) a column is what its values are; integers and floats
//! together are floats as long as no integer loses anything. In untyped ones (CSV, `.cls` members)
//! a column is an integer, float or boolean column when every value reads as one, and text
//! otherwise. What a value is not, it is never made silently: a missing value, an integer beyond 64
//! bits and a float that is not finite are refused with field and place.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::{Cells, Place};
use crate::format::manifest::FieldKind;
use crate::format::metadata::{Cell, Value};

/// Floats have every integer up to this size.
const EXACT_IN_FLOAT: u64 = 1 << 53;

/// What the user says about fields.
#[derive(Clone, Debug, Default)]
pub struct FieldChoices {
    /// Types that are not to be inferred.
    pub types: BTreeMap<String, FieldKind>,
    /// Fields that are left out.
    pub dropped: BTreeSet<String>,
}

/// What a value looks like.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Class {
    Bool,
    Int,
    Float,
    Text,
    /// Untyped, and no characters at all.
    Empty,
    /// Reads as a float that is not finite.
    NotFinite,
    /// Reads as an integer beyond 64 bits.
    BigInt,
}

impl Class {
    fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Float => "float",
            Self::Text => "string",
            Self::Empty => "an empty value",
            Self::NotFinite => "a float that is not finite",
            Self::BigInt => "an integer beyond 64 bits",
        }
    }
}

/// What `cell` is, for a message.
pub(super) fn what(cell: &Cell) -> &'static str {
    match cell {
        Cell::Null => "no value",
        Cell::Bytes(_) => "bytes",
        Cell::Other { what, .. } => what,
        Cell::Bool(_) => Class::Bool.name(),
        Cell::Int(_) => Class::Int.name(),
        Cell::BigInt(_) => Class::BigInt.name(),
        Cell::Float(value) if value.is_finite() => Class::Float.name(),
        Cell::Float(_) => Class::NotFinite.name(),
        Cell::Text(_) => Class::Text.name(),
        Cell::Untyped(text) => classify(text).name(),
    }
}

/// Fields with their types, in the order of their source.
pub type Kinds = Vec<(Arc<str>, FieldKind)>;

/// Learns the types of all fields from all rows.
#[derive(Debug)]
pub struct Inference {
    choices: FieldChoices,
    columns: Vec<Column>,
    by_name: HashMap<Arc<str>, usize>,
    rows: u64,
}

#[derive(Debug)]
struct Column {
    name: Arc<str>,
    forced: Option<FieldKind>,
    /// Whether all its values came from a source without types.
    untyped: bool,
    /// Where each class was first met.
    first: BTreeMap<Class, Place>,
    /// The first integer that a float would change, and where.
    inexact: Option<(Place, String)>,
    /// Number of the last row that has it.
    last_row: u64,
}

impl Inference {
    /// Nothing learnt yet.
    #[must_use]
    pub fn new(choices: FieldChoices) -> Self {
        Self {
            choices,
            columns: Vec::new(),
            by_name: HashMap::new(),
            rows: 0,
        }
    }

    /// Learns from one row.
    ///
    /// # Errors
    /// Field and reason, without the place, when a value cannot be stored whatever else the column
    /// holds.
    pub fn observe(&mut self, place: &Place, cells: &Cells) -> Result<(), String> {
        self.rows += 1;
        let mut met = 0;
        for (n, (name, cell)) in cells.iter().enumerate() {
            if self.choices.dropped.contains(&**name) {
                continue;
            }
            met += 1;
            let known = self.columns.get(n).filter(|column| column.name == *name);
            let known = match known {
                Some(_) => Some(n),
                None => self.by_name.get(name).copied(),
            };
            let n = match known {
                Some(n) => n,
                None if self.rows > 1 => {
                    return Err(format!("field {name:?}: earlier rows have no such value"));
                }
                None => self.add(name),
            };
            let Some(column) = self.columns.get_mut(n) else {
                continue;
            };
            if std::mem::replace(&mut column.last_row, self.rows) == self.rows {
                return Err(format!("field {name:?}: given twice"));
            }
            column
                .observe(place, cell)
                .map_err(|reason| format!("field {name:?}: {reason}"))?;
        }
        if met < self.columns.len()
            && let Some(column) = self.columns.iter().find(|c| c.last_row < self.rows)
        {
            return Err(format!("field {:?}: no value", column.name));
        }
        Ok(())
    }

    fn add(&mut self, name: &Arc<str>) -> usize {
        self.columns.push(Column {
            name: Arc::clone(name),
            forced: self.choices.types.get(&**name).copied(),
            untyped: true,
            first: BTreeMap::new(),
            inexact: None,
            last_row: 0,
        });
        let n = self.columns.len() - 1;
        self.by_name.insert(Arc::clone(name), n);
        n
    }

    /// The fields and their types, in the order in which they were met.
    ///
    /// # Errors
    /// The conflict: field, types and places.
    pub fn finish(self) -> Result<Kinds, String> {
        self.columns
            .into_iter()
            .map(|column| match column.decide() {
                Ok(kind) => Ok((column.name, kind)),
                Err(reason) => Err(reason),
            })
            .collect()
    }
}

impl Column {
    fn observe(&mut self, place: &Place, cell: &Cell) -> Result<(), String> {
        if let Some(kind) = self.forced {
            return check(cell, kind);
        }
        let class = match cell {
            Cell::Bool(_) => Class::Bool,
            Cell::Int(_) => Class::Int,
            Cell::Float(value) if value.is_finite() => Class::Float,
            Cell::Text(_) => Class::Text,
            Cell::Untyped(text) => classify(text),
            Cell::Float(value) => return Err(not_finite(*value)),
            Cell::BigInt(text) => return Err(too_big(text)),
            Cell::Null => return Err("no value".to_owned()),
            Cell::Bytes(_) | Cell::Other { .. } => {
                return Err(format!(
                    "{} cannot be stored (--type {}=string stores its text, --drop {} leaves the \
                     field out)",
                    what(cell),
                    self.name,
                    self.name
                ));
            }
        };
        if class == Class::Int && self.inexact.is_none() {
            self.note_inexact(place, cell);
        }
        self.untyped &= matches!(cell, Cell::Untyped(_));
        if let Entry::Vacant(first) = self.first.entry(class) {
            first.insert(place.clone());
            if !self.untyped {
                self.conflict_at(class)?;
            }
        }
        Ok(())
    }

    /// A typed column has one type, or is made of integers and floats.
    fn conflict_at(&self, class: Class) -> Result<(), String> {
        let numeric = |class| matches!(class, Class::Int | Class::Float);
        let other = self
            .first
            .iter()
            .find(|&(&other, _)| other != class && !(numeric(other) && numeric(class)));
        match other {
            Some((other, place)) => Err(format!(
                "{} here, but {} in {place} (--type {}=string takes both)",
                class.name(),
                other.name(),
                self.name
            )),
            None => Ok(()),
        }
    }

    fn note_inexact(&mut self, place: &Place, cell: &Cell) {
        let value = match cell {
            Cell::Int(value) => *value,
            Cell::Untyped(text) => text.parse().unwrap_or(0),
            _ => 0,
        };
        if value.unsigned_abs() > EXACT_IN_FLOAT {
            self.inexact = Some((place.clone(), value.to_string()));
        }
    }

    fn decide(&self) -> Result<FieldKind, String> {
        if let Some(kind) = self.forced {
            return Ok(kind);
        }
        let place = |class| self.first.get(&class);
        let has = |class| place(class).is_some();
        let numeric = [Class::Int, Class::Float, Class::NotFinite, Class::BigInt];
        let number = numeric.into_iter().find(|&class| has(class));
        if has(Class::Text) || (has(Class::Bool) && number.is_some()) {
            return Ok(FieldKind::String);
        }
        let Some(kind) = number.or(place(Class::Bool).map(|_| Class::Bool)) else {
            return Ok(FieldKind::String);
        };
        let conflict = |bad: Class, at: &Place| {
            let with = place(kind).filter(|_| kind != bad);
            let with = with.map_or(String::new(), |place| {
                format!(", but {} in {place}", kind.name())
            });
            Err(format!(
                "{at}: field {:?}: {}{with} (--type {}=string takes both)",
                self.name,
                bad.name(),
                self.name
            ))
        };
        for bad in [Class::Empty, Class::BigInt, Class::NotFinite] {
            if let Some(at) = place(bad) {
                return conflict(bad, at);
            }
        }
        match (kind, &self.inexact) {
            (Class::Bool, _) => Ok(FieldKind::Bool),
            _ if !has(Class::Float) => Ok(FieldKind::Int),
            (_, None) => Ok(FieldKind::Float),
            (_, Some((at, text))) => Err(format!(
                "{at}: field {:?}: int {text}, which no float has, but float in {} (--type \
                 {}=string takes both)",
                self.name,
                place(Class::Float).map_or(String::new(), Place::to_string),
                self.name
            )),
        }
    }
}

fn not_finite(value: f64) -> String {
    format!("float {value} is not finite, and the format's JSON has no spelling for it")
}

fn too_big(text: &str) -> String {
    format!("int {text} does not fit 64 bits with a sign")
}

/// What an untyped value reads as.
fn classify(text: &str) -> Class {
    if text.is_empty() {
        return Class::Empty;
    }
    if parse_bool(text).is_some() {
        return Class::Bool;
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    let starts = |c: char| digits.starts_with(c);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        // 007 and -0 would not come back as they were.
        return if text == "-0" {
            Class::Float
        } else if starts('0') && digits.len() > 1 {
            Class::Text
        } else if text.parse::<i64>().is_ok() {
            Class::Int
        } else {
            Class::BigInt
        };
    }
    let unsigned = text.trim_start_matches(['-', '+']).to_ascii_lowercase();
    if matches!(unsigned.as_str(), "nan" | "inf" | "infinity") && text.len() <= unsigned.len() + 1 {
        return Class::NotFinite;
    }
    let spelled_as_number = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && !(starts('0') && digits.as_bytes().get(1).is_some_and(u8::is_ascii_digit));
    let mantissa = digits.split(['e', 'E']).next().unwrap_or(digits);
    let is_zero = !mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    match text.parse::<f64>() {
        // So small that a float would make it zero.
        Ok(0.0) if !is_zero => Class::Text,
        Ok(value) if spelled_as_number && value.is_finite() => Class::Float,
        Ok(_) if spelled_as_number => Class::NotFinite,
        _ => Class::Text,
    }
}

fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

fn check(cell: &Cell, kind: FieldKind) -> Result<(), String> {
    match (cell, kind) {
        (Cell::Text(_) | Cell::Untyped(_), FieldKind::String) => Ok(()),
        _ => convert(cell.clone(), kind).map(|_| ()),
    }
}

/// `cell` as a value of type `kind`, without any loss.
///
/// # Errors
/// Both types, or why the value does not fit.
pub(super) fn convert(cell: Cell, kind: FieldKind) -> Result<Value, String> {
    let found = what(&cell);
    let mismatch = || Err(format!("expected {}, found {found}", kind.name()));
    match (kind, cell) {
        (FieldKind::Bool, Cell::Bool(value)) => Ok(Value::Bool(value)),
        (FieldKind::Bool, Cell::Untyped(text)) => match parse_bool(&text) {
            Some(value) => Ok(Value::Bool(value)),
            None => mismatch(),
        },
        (FieldKind::Int, Cell::Int(value)) => Ok(Value::Int(value)),
        (FieldKind::Int | FieldKind::Float, Cell::BigInt(text)) => Err(too_big(&text)),
        (FieldKind::Int, Cell::Untyped(text)) => match text.parse() {
            Ok(value) => Ok(Value::Int(value)),
            Err(_) => mismatch(),
        },
        (FieldKind::Float, Cell::Float(value)) => finite(value),
        (FieldKind::Float, Cell::Int(value)) if value.unsigned_abs() <= EXACT_IN_FLOAT => {
            // Exact up to the bound just checked.
            #[allow(clippy::cast_precision_loss)]
            finite(value as f64)
        }
        (FieldKind::Float, Cell::Int(value)) => Err(format!(
            "expected float, found int {value}, which no float has"
        )),
        (FieldKind::Float, Cell::Untyped(text)) => match text.parse() {
            Ok(value) => finite(value),
            Err(_) => mismatch(),
        },
        (FieldKind::String, cell) => match cell.into_text() {
            Ok(text) => Ok(Value::String(text)),
            Err(found) => Err(format!("expected string, found {found}")),
        },
        _ => mismatch(),
    }
}

fn finite(value: f64) -> Result<Value, String> {
    match value.is_finite() {
        true => Ok(Value::Float(value)),
        false => Err(not_finite(value)),
    }
}

#[cfg(test)]
mod tests;
