//! The path that a view gives a sample.

use std::cell::OnceCell;
use std::io::Write as _;

use super::bound::{Subject, View};
use super::decimal::Decimal;
use super::escape::{NAME_MAX, push_escaped};
use super::template::{FieldPart, Part};
use crate::error::Error;
use crate::format::metadata::{Row, ValueRef};

/// Most components of a path: paths of more cannot be opened.
pub const MAX_DEPTH: usize = 2048;
/// What stands for a null. No escaped text reads like this.
const NULL: &str = "%null";

/// Where extensions come from.
pub trait Extensions {
    /// The extension of the sample's payload, without the dot.
    fn extension(&self, subject: Subject<'_>) -> &'static str;
}

/// How much of a path is wanted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// All of it.
    Path,
    /// The last component.
    Name,
}

/// Why a sample has no path.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NameFault {
    /// A component has more than 255 bytes.
    #[error("expected a name of at most {NAME_MAX} bytes, found {len} bytes: {start:?}...")]
    TooLong {
        /// Its length in bytes.
        len: usize,
        /// Its first characters.
        start: String,
    },
    /// The path has too many components.
    #[error("expected a path of at most {MAX_DEPTH} components, found more")]
    TooDeep,
}

impl NameFault {
    /// A component that is too long.
    #[must_use]
    pub fn too_long(component: &[u8]) -> Self {
        let start = String::from_utf8_lossy(component.get(..40).unwrap_or(component));
        Self::TooLong {
            len: component.len(),
            start: start.into_owned(),
        }
    }

    /// The fault as an error about a sample of a view.
    #[must_use]
    pub fn in_view(self, view: &View, subject: Subject<'_>) -> Error {
        Error::View {
            view: view.name().to_owned(),
            reason: format!("{subject}: {self}"),
        }
    }
}

impl std::fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sample, dir) = (self.sample, self.entry.cache.dir().display());
        write!(
            f,
            "sample {sample} of cache {} ({dir})",
            self.entry.cache_id
        )
    }
}

impl View {
    /// Puts the sample's path, with `/` between its components, into `out`, which is cleared first.
    /// An `{ext}` at the end of the template is left to the caller. The path has no empty, `.` or
    /// `..` component.
    ///
    /// # Errors
    /// [`NameFault`]; with [`Scope::Name`], only for the last component.
    pub fn render(
        &self,
        subject: Subject<'_>,
        scope: Scope,
        extensions: &dyn Extensions,
        out: &mut Vec<u8>,
    ) -> Result<(), NameFault> {
        out.clear();
        let template = self.template();
        let source = Source::new(self, subject, extensions);
        let name_only = scope == Scope::Name && template.has_fixed_depth();
        if !name_only && let Some((_, folders)) = template.components().split_last() {
            for parts in folders {
                source.component(parts, out.len(), out);
                out.push(b'/');
            }
        }
        source.component(template.stem(), out.len(), out);
        if scope == Scope::Name && !name_only {
            let name = out
                .iter()
                .rposition(|byte| *byte == b'/')
                .map_or(0, |at| at + 1);
            out.drain(..name);
        }
        check_lengths(out)
    }
}

pub(super) fn check_lengths(path: &[u8]) -> Result<(), NameFault> {
    // Nearly all paths.
    if path.len() <= NAME_MAX {
        return Ok(());
    }
    let mut depth = 0;
    for component in path.split(|byte| *byte == b'/') {
        depth += 1;
        if component.len() > NAME_MAX {
            return Err(NameFault::too_long(component));
        }
    }
    match depth <= MAX_DEPTH {
        true => Ok(()),
        false => Err(NameFault::TooDeep),
    }
}

/// What the parts of a template take their text from.
pub(super) struct Source<'a> {
    subject: Subject<'a>,
    /// Looked up when a part first needs it.
    row: OnceCell<Option<Row<'a>>>,
    columns: &'a [Option<usize>],
    extensions: &'a dyn Extensions,
}

impl<'a> Source<'a> {
    pub(super) fn new(
        view: &'a View,
        subject: Subject<'a>,
        extensions: &'a dyn Extensions,
    ) -> Self {
        Self {
            subject,
            row: OnceCell::new(),
            columns: view.binding(subject.cache).map_or(&[], |b| &b.columns),
            extensions,
        }
    }

    /// Appends the rest of a component that starts at `start` and has `parts` still to come.
    pub(super) fn component(&self, parts: &[Part], mut start: usize, out: &mut Vec<u8>) {
        self.parts(parts, &mut start, out);
        match out.get(start..) {
            Some([]) => out.push(b'%'),
            Some([b'.'] | [b'.', b'.']) => {
                let rest = out.split_off(start + 1);
                out.truncate(start);
                out.extend_from_slice(b"%2E");
                out.extend_from_slice(&rest);
            }
            _ => {}
        }
    }

    /// Appends `parts` to a component that starts at `start`, before and after.
    pub(super) fn parts(&self, parts: &[Part], start: &mut usize, out: &mut Vec<u8>) {
        for part in parts {
            match part {
                Part::Literal(text) => out.extend_from_slice(text.as_bytes()),
                Part::CacheId { width } => {
                    Decimal::push(self.subject.entry.cache_id, *width, out);
                }
                Part::SampleId { width } => Decimal::push(self.subject.sample, *width, out),
                Part::SourceName => {
                    let name = &self.subject.entry.cache.manifest().source_name;
                    push_escaped(out, name, out.len() == *start);
                }
                Part::Ext => {
                    let ext = self.extensions.extension(self.subject);
                    push_escaped(out, ".", out.len() == *start);
                    push_escaped(out, ext, false);
                }
                Part::Field(field) => self.field(field, start, out),
            }
        }
    }

    /// Appends a field's value; `start` is where the component starts, before and after.
    fn field(&self, field: &FieldPart, start: &mut usize, out: &mut Vec<u8>) {
        let column = self.columns.get(field.slot).copied().flatten();
        let row = || {
            let Subject { entry, sample, .. } = self.subject;
            *self.row.get_or_init(|| entry.cache.table().row(sample))
        };
        let value = column
            .and_then(|column| row()?.value(column).ok()?)
            .filter(|value| field.default.is_none() || *value != ValueRef::String(""));
        match value {
            Some(ValueRef::String(text)) => push_text(field, text, start, out),
            Some(ValueRef::Int(value)) => match u64::try_from(value) {
                Ok(value) => Decimal::push(value, field.width, out),
                Err(_) => {
                    let width = field.width;
                    let _ = write!(out, "{value:0width$}");
                }
            },
            Some(ValueRef::Bool(value)) => out.extend_from_slice(match value {
                true => b"true",
                false => b"false",
            }),
            Some(ValueRef::Float(value)) => {
                let _ = write!(out, "{value:?}");
            }
            None => match &field.default {
                Some(text) => push_text(field, text, start, out),
                None => out.extend_from_slice(NULL.as_bytes()),
            },
        }
    }
}

fn push_text(field: &FieldPart, text: &str, start: &mut usize, out: &mut Vec<u8>) {
    if !field.several {
        return push_escaped(out, text, out.len() == *start);
    }
    let value_at = out.len();
    let mut pieces = 0_usize;
    for piece in text.split('/') {
        match piece {
            "" | "." => {}
            ".." => {
                let value = out.get(value_at..).unwrap_or_default();
                let last = value.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                out.truncate(value_at + last);
                pieces = pieces.saturating_sub(1);
            }
            piece => {
                if pieces > 0 {
                    out.push(b'/');
                }
                let starts = pieces > 0 || out.len() == *start;
                push_escaped(out, piece, starts);
                pieces += 1;
            }
        }
    }
    let value = out.get(value_at..).unwrap_or_default();
    if let Some(last) = value.iter().rposition(|byte| *byte == b'/') {
        *start = value_at + last + 1;
    }
}
