//! Filters bound to the columns of one cache, and how they decide.

use std::cmp::Ordering;

use super::{Comparison, Expr, Field, Filter, Literal};
use crate::format::metadata::{FieldKind, Row, ValueRef};
use crate::view::template::SyntaxError;

/// A filter whose fields are columns of one cache. Evaluation allocates nothing.
#[derive(Clone, Debug)]
pub(in crate::view) struct Compiled {
    root: Node,
}

#[derive(Clone, Debug)]
enum Node {
    Any(Vec<Node>),
    All(Vec<Node>),
    Not(Box<Node>),
    Constant(bool),
    Compare(Origin, Comparison, Operand),
    In(Origin, Vec<Operand>),
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug)]
enum Origin {
    Column(usize),
    CacheId,
    SampleId,
    SourceName,
}

/// What a value is compared with.
#[derive(Clone, Debug)]
enum Operand {
    Bool(bool),
    Number(Number),
    Text(String),
}

/// A number that integers and floats are compared with exactly.
#[derive(Clone, Copy, Debug)]
struct Number {
    /// The nearest float.
    float: f64,
    /// The number itself, when it is an integer.
    int: Option<i128>,
    /// How `float` compares with the number itself.
    rounding: Ordering,
}

/// A value of one sample.
#[derive(Clone, Copy, Debug)]
enum Found<'a> {
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(&'a str),
}

/// What a filter may ask of a sample beside its metadata.
#[derive(Clone, Copy, Debug)]
pub(in crate::view) struct Ids<'a> {
    pub(in crate::view) cache_id: u64,
    pub(in crate::view) sample: u64,
    pub(in crate::view) source_name: &'a str,
}

impl Compiled {
    /// Binds `filter` to the fields of `schema`.
    ///
    /// # Errors
    /// [`SyntaxError`] for a field that the schema lacks, or whose kind does not fit its use.
    pub(in crate::view) fn new(
        filter: &Filter,
        schema: &[crate::format::metadata::Field],
    ) -> Result<Self, SyntaxError> {
        Ok(Self {
            root: bind(&filter.root, schema)?,
        })
    }

    /// Whether the filter lets the sample in. A comparison with a null does not hold.
    pub(in crate::view) fn admits(&self, row: &Row<'_>, ids: Ids<'_>) -> bool {
        holds(&self.root, row, ids)
    }
}

fn bind(expr: &Expr, schema: &[crate::format::metadata::Field]) -> Result<Node, SyntaxError> {
    let each = |terms: &[Expr]| {
        terms
            .iter()
            .map(|term| bind(term, schema))
            .collect::<Result<_, _>>()
    };
    Ok(match expr {
        Expr::Any(terms) => Node::Any(each(terms)?),
        Expr::All(terms) => Node::All(each(terms)?),
        Expr::Not(term) => Node::Not(Box::new(bind(term, schema)?)),
        Expr::Constant(value) => Node::Constant(*value),
        Expr::Flag(field) => {
            let (source, kind) = resolve(field, schema)?;
            if kind != FieldKind::Bool {
                return Err(SyntaxError::new(
                    field.at,
                    "a comparison, or a field of kind bool",
                    format!("field {:?} of kind {}", field.name, kind.name()),
                ));
            }
            Node::Compare(source, Comparison::Equal, Operand::Bool(true))
        }
        Expr::Compare(field, comparison, literal) => {
            let (source, kind) = resolve(field, schema)?;
            let ordered = !matches!(comparison, Comparison::Equal | Comparison::NotEqual);
            if kind == FieldKind::Bool && ordered {
                return Err(SyntaxError::new(
                    field.at,
                    format!("== or != after field {:?} of kind bool", field.name),
                    comparison.symbol(),
                ));
            }
            Node::Compare(source, *comparison, operand(field, kind, literal)?)
        }
        Expr::In(field, literals) => {
            let (source, kind) = resolve(field, schema)?;
            let operands = literals.iter().map(|literal| operand(field, kind, literal));
            Node::In(source, operands.collect::<Result<_, _>>()?)
        }
    })
}

fn resolve(
    field: &Field,
    schema: &[crate::format::metadata::Field],
) -> Result<(Origin, FieldKind), SyntaxError> {
    match field.name.as_str() {
        _ if field.quoted => {}
        "cache_id" => return Ok((Origin::CacheId, FieldKind::Int)),
        "sample_id" => return Ok((Origin::SampleId, FieldKind::Int)),
        "source_name" => return Ok((Origin::SourceName, FieldKind::String)),
        _ => {}
    }
    let column = schema.iter().position(|known| known.name == field.name);
    match column.and_then(|column| Some((column, schema.get(column)?))) {
        Some((column, known)) => Ok((Origin::Column(column), known.kind)),
        None => Err(SyntaxError::new(
            field.at,
            super::super::bound::known_fields(schema),
            format!("{:?}", field.name),
        )),
    }
}

fn operand(field: &Field, kind: FieldKind, literal: &Literal) -> Result<Operand, SyntaxError> {
    match (kind, literal) {
        (FieldKind::Bool, Literal::Bool(value)) => Ok(Operand::Bool(*value)),
        (FieldKind::Int | FieldKind::Float, Literal::Int(value)) => {
            Ok(Operand::Number(Number::of_int(*value)))
        }
        (FieldKind::Int | FieldKind::Float, Literal::Float(value)) => {
            Ok(Operand::Number(Number::of_float(*value)))
        }
        (FieldKind::String, Literal::Text(value)) => Ok(Operand::Text(value.clone())),
        _ => {
            let wanted = match kind {
                FieldKind::Bool => "true or false",
                FieldKind::Int | FieldKind::Float => "a number",
                FieldKind::String => "text in quotes",
            };
            Err(SyntaxError::new(
                field.at,
                format!(
                    "{wanted} to compare field {:?} of kind {} with",
                    field.name,
                    kind.name()
                ),
                literal.to_string(),
            ))
        }
    }
}

impl Number {
    fn of_int(int: i128) -> Self {
        let float = float_of(int);
        let rounding = exact(float).map_or(Ordering::Equal, |rounded| rounded.cmp(&int));
        Self {
            float,
            int: Some(int),
            rounding,
        }
    }

    fn of_float(float: f64) -> Self {
        Self {
            float,
            int: exact(float),
            rounding: Ordering::Equal,
        }
    }

    fn compare_int(&self, value: i128) -> Option<Ordering> {
        match self.int {
            Some(int) => Some(value.cmp(&int)),
            // Not an integer, so below 2^53 and exact, or beyond every integer that occurs.
            None => float_of(value).partial_cmp(&self.float),
        }
    }

    fn compare_float(&self, value: f64) -> Option<Ordering> {
        let ordering = value.partial_cmp(&self.float)?;
        Some(ordering.then(self.rounding))
    }
}

/// The nearest float.
fn float_of(int: i128) -> f64 {
    int as f64
}

/// The integer that a float is, if it is one that fits.
fn exact(float: f64) -> Option<i128> {
    if float.is_finite() && float.fract() == 0.0 {
        // The spelling without a fraction has all digits of the exact value.
        return format!("{float:.0}").parse().ok();
    }
    None
}

fn holds(node: &Node, row: &Row<'_>, ids: Ids<'_>) -> bool {
    match node {
        Node::Any(terms) => terms.iter().any(|term| holds(term, row, ids)),
        Node::All(terms) => terms.iter().all(|term| holds(term, row, ids)),
        Node::Not(term) => !holds(term, row, ids),
        Node::Constant(value) => *value,
        Node::Compare(source, comparison, operand) => {
            let Some(found) = found(*source, row, ids) else {
                return false;
            };
            let ordering = compare(found, operand);
            match comparison {
                Comparison::Equal => ordering == Some(Ordering::Equal),
                Comparison::NotEqual => ordering != Some(Ordering::Equal),
                Comparison::Less => ordering == Some(Ordering::Less),
                Comparison::LessOrEqual => ordering.is_some_and(Ordering::is_le),
                Comparison::Greater => ordering == Some(Ordering::Greater),
                Comparison::GreaterOrEqual => ordering.is_some_and(Ordering::is_ge),
            }
        }
        Node::In(source, operands) => found(*source, row, ids).is_some_and(|found| {
            operands
                .iter()
                .any(|operand| compare(found, operand) == Some(Ordering::Equal))
        }),
    }
}

/// The value, unless it is a null or the mapped bytes no longer hold one.
fn found<'a>(source: Origin, row: &Row<'a>, ids: Ids<'a>) -> Option<Found<'a>> {
    Some(match source {
        Origin::CacheId => Found::Int(ids.cache_id.into()),
        Origin::SampleId => Found::Int(ids.sample.into()),
        Origin::SourceName => Found::Text(ids.source_name),
        Origin::Column(column) => match row.value(column).ok()?? {
            ValueRef::Bool(value) => Found::Bool(value),
            ValueRef::Int(value) => Found::Int(value.into()),
            ValueRef::Float(value) => Found::Float(value),
            ValueRef::String(value) => Found::Text(value),
        },
    })
}

/// `None` for a NaN, and for kinds that were not let through when the filter was bound.
fn compare(found: Found<'_>, operand: &Operand) -> Option<Ordering> {
    match (found, operand) {
        (Found::Bool(value), Operand::Bool(other)) => Some(value.cmp(other)),
        (Found::Int(value), Operand::Number(other)) => other.compare_int(value),
        (Found::Float(value), Operand::Number(other)) => other.compare_float(value),
        (Found::Text(value), Operand::Text(other)) => Some(value.cmp(other.as_str())),
        _ => None,
    }
}
