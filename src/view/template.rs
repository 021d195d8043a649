//! Path templates: `{label}/{cache_id}-{sample_id:08}{ext}`.
//!
//! ```text
//! template    = component { "/" component }
//! component   = { text | "{{" | "}}" | placeholder }
//! placeholder = "{" name [ "..." ] [ ":0" width ] [ "|" default ] "}"
//! name        = characters but { } | : `      or any characters between ` (`` stands for one `)
//! ```

mod parser;

use std::fmt;

use super::escape::NAME_MAX;
use super::sniff::MAX_EXTENSION_LEN;

/// Longest spelling of an unsigned number without padding, in bytes.
const NUMBER_LEN: usize = 20;
/// Longest spelling of a bool, int or float without padding, in bytes.
const VALUE_LEN: usize = 32;

/// What is wrong with the text of a template or a filter.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("at character {}: expected {expected}, found {found}", at + 1)]
pub struct SyntaxError {
    /// Where in the text, in characters from 0.
    pub at: usize,
    /// What may stand there.
    pub expected: String,
    /// What stands there instead.
    pub found: String,
}

impl SyntaxError {
    pub(super) fn new(at: usize, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            at,
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// The same error in a text that starts `characters` earlier.
    pub(super) fn moved(mut self, characters: usize) -> Self {
        self.at += characters;
        self
    }
}

/// One piece of a path component.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Part {
    Literal(String),
    CacheId { width: usize },
    SampleId { width: usize },
    SourceName,
    Ext,
    Field(FieldPart),
}

/// The value of a metadata field.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct FieldPart {
    pub(super) name: String,
    /// Zero padding of integers; 0 for none.
    pub(super) width: usize,
    /// What stands for a missing, null or empty value.
    pub(super) default: Option<String>,
    /// Whether the value may be several components.
    pub(super) several: bool,
    /// Number of this field among those of the template.
    pub(super) slot: usize,
}

/// A parsed template.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Template {
    text: String,
    components: Vec<Vec<Part>>,
    ends_in_ext: bool,
    has_fixed_depth: bool,
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// [`SyntaxError`] for a text that is none, or that has an empty, `.` or `..` component.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        let components = parser::components(text)?;
        Ok(Self::new(text.to_owned(), components))
    }

    fn new(text: String, components: Vec<Vec<Part>>) -> Self {
        let last = components.last().map(Vec::as_slice);
        let several = |part: &Part| matches!(part, Part::Field(field) if field.several);
        Self {
            ends_in_ext: matches!(last, Some([_, .., Part::Ext])),
            has_fixed_depth: !components.iter().flatten().any(several),
            text,
            components,
        }
    }

    /// `{field}/{cache_id}-{sample_id}{ext}`
    #[must_use]
    pub fn by_field(field: &str) -> Self {
        let file = vec![
            Part::CacheId { width: 0 },
            Part::Literal("-".to_owned()),
            Part::SampleId { width: 0 },
            Part::Ext,
        ];
        let text = format!("{{{}}}/{{cache_id}}-{{sample_id}}{{ext}}", quoted(field));
        let folder = vec![Part::Field(FieldPart::plain(field, false))];
        Self::new(text, vec![folder, file])
    }

    /// `{field...}`
    #[must_use]
    pub fn stored_path(field: &str) -> Self {
        let text = format!("{{{}...}}", quoted(field));
        let path = vec![Part::Field(FieldPart::plain(field, true))];
        Self::new(text, vec![path])
    }

    /// The text that it was read from.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn components(&self) -> &[Vec<Part>] {
        &self.components
    }

    /// What the last component is spelled of, without an `{ext}` at its end.
    pub(super) fn stem(&self) -> &[Part] {
        let last = self.components.last().map_or(&[][..], Vec::as_slice);
        match last.split_last() {
            Some((_, stem)) if self.ends_in_ext => stem,
            _ => last,
        }
    }

    /// The metadata fields, by slot.
    pub(super) fn fields(&self) -> impl Iterator<Item = &FieldPart> {
        self.components
            .iter()
            .flatten()
            .filter_map(|part| match part {
                Part::Field(field) => Some(field),
                _ => None,
            })
    }

    /// Whether the name ends in `{ext}` after something else, so that it can be found by what
    /// stands before the extension.
    #[must_use]
    pub fn ends_in_ext(&self) -> bool {
        self.ends_in_ext
    }

    /// Whether all paths have the same number of components.
    #[must_use]
    pub fn has_fixed_depth(&self) -> bool {
        self.has_fixed_depth
    }

    /// How many folders each path leads through, where all paths have the same number.
    #[must_use]
    pub fn folder_depth(&self) -> Option<usize> {
        let folders = self.components.len().saturating_sub(1);
        self.has_fixed_depth.then_some(folders)
    }

    /// Whether every path starts with the component `name`.
    #[must_use]
    pub fn starts_with(&self, name: &str) -> bool {
        matches!(
            self.components.first().map(Vec::as_slice),
            Some([Part::Literal(text)]) if text == name
        )
    }

    /// Whether no name can be too long unless metadata makes it so.
    pub(super) fn is_bounded(&self) -> bool {
        self.components.iter().all(|component| {
            let lens = component.iter().map(|part| match part {
                Part::Literal(text) => text.len(),
                Part::CacheId { width } | Part::SampleId { width } => NUMBER_LEN.max(*width),
                Part::Field(field) => {
                    let default = field.default.as_ref().map_or(0, |text| text.len() * 3);
                    VALUE_LEN.max(field.width).max(default)
                }
                Part::Ext => MAX_EXTENSION_LEN + 1,
                Part::SourceName => NAME_MAX + 1,
            });
            lens.sum::<usize>() <= NAME_MAX
        })
    }

    /// Whether it is certain, whatever the metadata, that no two samples get one path: the depth is
    /// fixed and some component spells the sample's ids and nothing of its metadata.
    #[must_use]
    pub fn is_unique(&self, caches: usize) -> bool {
        let spells_ids = |component: &Vec<Part>| {
            let mut ids = (caches <= 1, false);
            // A number that follows another one, or a digit, could be part of it.
            let mut after_digit = false;
            for (n, part) in component.iter().enumerate() {
                match part {
                    Part::Literal(text) => {
                        let ends = text.ends_with(|last: char| last.is_ascii_digit());
                        let starts = text.starts_with(|first: char| first.is_ascii_digit());
                        if n > 0 && starts {
                            return false;
                        }
                        after_digit = ends;
                    }
                    Part::CacheId { .. } | Part::SampleId { .. } if after_digit => return false,
                    Part::CacheId { .. } => (ids.0, after_digit) = (true, true),
                    Part::SampleId { .. } => (ids.1, after_digit) = (true, true),
                    Part::Ext => return ids == (true, true) && n + 1 == component.len(),
                    Part::SourceName | Part::Field(_) => return false,
                }
            }
            ids == (true, true)
        };
        self.has_fixed_depth() && self.components.iter().any(spells_ids)
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FieldPart {
    fn plain(name: &str, several: bool) -> Self {
        Self {
            name: name.to_owned(),
            width: 0,
            default: None,
            several,
            slot: 0,
        }
    }
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

#[cfg(test)]
mod tests;
