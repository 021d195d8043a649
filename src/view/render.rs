//! The path that a view gives a sample.

use std::cell::{Cell, OnceCell};
use std::io::Write as _;

use super::bound::{Subject, View};
use super::component::{MARK, end_component, push_text};
use super::decimal::Decimal;
use super::escape::NAME_MAX;
use super::sniff::MAX_EXTENSION_LEN;
use super::template::{FieldPart, Part, Template};
use crate::cache::TableRef;
use crate::error::Error;
use crate::format::metadata::{Row, ValueRef};

/// Most components of a path: paths of more cannot be opened.
pub const MAX_DEPTH: usize = 2048;
/// What stands for a null.
const NULL: &str = "%null";

/// Where extensions come from.
pub trait Extensions {
    /// The extension of the sample's payload, without the dot.
    fn extension<'a>(&'a self, subject: Subject<'a>) -> &'a str;
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
    /// The metadata that it is made of was found wrong.
    #[error("expected metadata.arrow as it was written, found another")]
    Table,
    /// The path has too many components.
    #[error("expected a path of at most {MAX_DEPTH} components, found more")]
    TooDeep,
}

impl NameFault {
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
    /// `..` component, and none of more than 255 bytes.
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
        let rendered = self.render_marked(subject, scope, extensions, out);
        out.retain(|byte| *byte != MARK);
        rendered
    }

    /// As [`View::render`], with a [`MARK`] in front of each component that is not as it was stored,
    /// so that it differs from one that was stored like that.
    ///
    /// # Errors
    /// As [`View::render`].
    pub fn render_marked(
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
                source.component(parts, NAME_MAX, out.len(), out);
                out.push(b'/');
            }
        }
        source.name(template, out);
        if scope == Scope::Name && !name_only {
            let name = out
                .iter()
                .rposition(|byte| *byte == b'/')
                .map_or(0, |at| at + 1);
            out.drain(..name);
        }
        source.check()?;
        check_depth(out)
    }
}

pub(super) fn check_depth(path: &[u8]) -> Result<(), NameFault> {
    // Nearly all paths.
    if path.len() < MAX_DEPTH {
        return Ok(());
    }
    let slashes = path.iter().filter(|byte| **byte == b'/').count();
    match slashes < MAX_DEPTH {
        true => Ok(()),
        false => Err(NameFault::TooDeep),
    }
}

/// What the parts of a template take their text from.
pub(super) struct Source<'a> {
    subject: Subject<'a>,
    /// Looked up when a part first needs it.
    row: OnceCell<Result<(TableRef<'a>, Option<Row<'a>>), NameFault>>,
    columns: &'a [Option<usize>],
    extensions: &'a dyn Extensions,
    /// Whether the component that is being spelled is not as it was stored.
    pub(super) is_escaped: Cell<bool>,
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
            is_escaped: Cell::new(false),
        }
    }

    /// Whether the values that were taken can be believed.
    pub(super) fn check(&self) -> Result<(), NameFault> {
        match self.row.get() {
            None => Ok(()),
            Some(Ok((table, _))) if table.check().is_ok() => Ok(()),
            Some(_) => Err(NameFault::Table),
        }
    }

    /// Appends a component, or its rest: it starts at `start`, has `parts` still to come and at most
    /// `most` bytes.
    fn component(&self, parts: &[Part], most: usize, mut start: usize, out: &mut Vec<u8>) {
        self.parts(parts, &mut start, out);
        end_component(out, start, most, self.is_escaped.take());
    }

    /// Appends the last component, without an `{ext}` at its end.
    fn name(&self, template: &Template, out: &mut Vec<u8>) {
        self.name_from(template, template.stem(), out.len(), out);
    }

    /// Appends the rest of the last component, which starts at `start` and has `parts` still to come.
    pub(super) fn name_from(
        &self,
        template: &Template,
        parts: &[Part],
        mut start: usize,
        out: &mut Vec<u8>,
    ) {
        self.parts(parts, &mut start, out);
        let mut most = NAME_MAX;
        if template.ends_in_ext() {
            most -= 1 + MAX_EXTENSION_LEN;
            if out.len() - start > most {
                most = NAME_MAX - 1 - self.extensions.extension(self.subject).len();
            }
        }
        end_component(out, start, most, self.is_escaped.take());
    }

    /// Appends `parts` to a component that starts at `start`, before and after; those of several
    /// components that end in between are ended.
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
                    self.text(name, out);
                }
                Part::Ext => {
                    let ext = self.extensions.extension(self.subject);
                    out.push(b'.');
                    out.extend_from_slice(ext.as_bytes());
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
            let row = self.row.get_or_init(|| {
                let table = entry.cache.table().map_err(|_| NameFault::Table)?;
                Ok((table, table.row(sample)))
            });
            row.as_ref().ok().and_then(|(_, row)| *row)
        };
        let value = column
            .and_then(|column| row()?.value(column).ok()?)
            .filter(|value| field.default.is_none() || *value != ValueRef::String(""));
        match value {
            Some(ValueRef::String(text)) => self.texts(field, text, start, out),
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
                Some(text) => self.texts(field, text, start, out),
                None => {
                    out.extend_from_slice(NULL.as_bytes());
                    self.is_escaped.set(true);
                }
            },
        }
    }

    fn text(&self, text: &str, out: &mut Vec<u8>) {
        if push_text(out, text) {
            self.is_escaped.set(true);
        }
    }

    /// Appends a text that may be several components: all but the last are ended.
    fn texts(&self, field: &FieldPart, text: &str, start: &mut usize, out: &mut Vec<u8>) {
        if !field.several {
            return self.text(text, out);
        }
        if !text
            .split('/')
            .any(|piece| matches!(piece, "" | "." | ".."))
        {
            return self.pieces(text.split('/'), start, out);
        }
        let mut pieces = Vec::new();
        for piece in text.split('/') {
            match piece {
                "" | "." => {}
                ".." => drop(pieces.pop()),
                piece => pieces.push(piece),
            }
        }
        self.pieces(pieces.into_iter(), start, out);
    }

    fn pieces<'t>(
        &self,
        pieces: impl Iterator<Item = &'t str>,
        start: &mut usize,
        out: &mut Vec<u8>,
    ) {
        for (n, piece) in pieces.enumerate() {
            if n > 0 {
                end_component(out, *start, NAME_MAX, self.is_escaped.take());
                out.push(b'/');
                *start = out.len();
            }
            self.text(piece, out);
        }
    }
}
