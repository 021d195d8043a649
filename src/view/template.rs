//! Path templates: `{label}/{cache_id}-{sample_id:08}{ext}`.
//!
//! ```text
//! template    = component { "/" component }
//! component   = { text | "{{" | "}}" | placeholder }
//! placeholder = "{" name [ "..." ] [ ":0" width ] [ "|" default ] "}"
//! name        = characters but { } | : `      or any characters between ` (`` stands for one `)
//! ```

use std::fmt;

use super::escape::NAME_MAX;
use super::sniff::MAX_EXTENSION_LEN;

/// Widest zero padding.
const MAX_WIDTH: usize = 64;
/// Longest spelling of an unsigned number without padding, in bytes.
const NUMBER_LEN: usize = 20;
/// Longest spelling of a bool, int or float without padding, in bytes.
const VALUE_LEN: usize = 32;
/// A template may have this many components.
const MAX_COMPONENTS: usize = 64;

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
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// [`SyntaxError`] for a text that is none, or that has an empty, `.` or `..` component.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        let mut parser = Parser {
            characters: text.chars().collect(),
            at: 0,
            slots: 0,
        };
        let mut components = Vec::new();
        loop {
            components.push(parser.component()?);
            if parser.peek().is_none() {
                break;
            }
            if components.len() >= MAX_COMPONENTS {
                let most = format!("at most {MAX_COMPONENTS} components");
                return Err(parser.fault(most));
            }
            parser.at += 1;
        }
        Ok(Self {
            text: text.to_owned(),
            components,
        })
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
        Self {
            text: format!("{{{}}}/{{cache_id}}-{{sample_id}}{{ext}}", quoted(field)),
            components: vec![vec![Part::Field(FieldPart::plain(field, false))], file],
        }
    }

    /// `{field...}`
    #[must_use]
    pub fn stored_path(field: &str) -> Self {
        Self {
            text: format!("{{{}...}}", quoted(field)),
            components: vec![vec![Part::Field(FieldPart::plain(field, true))]],
        }
    }

    /// The text that it was read from.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn components(&self) -> &[Vec<Part>] {
        &self.components
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
        matches!(
            self.components.last().map(Vec::as_slice),
            Some([_, .., Part::Ext])
        )
    }

    /// Whether all paths have the same number of components.
    #[must_use]
    pub fn has_fixed_depth(&self) -> bool {
        !self.fields().any(|field| field.several)
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

struct Parser {
    characters: Vec<char>,
    at: usize,
    slots: usize,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn take_all(&mut self, wanted: &str) -> bool {
        let start = self.at;
        let found = wanted.chars().all(|character| self.take(character));
        if !found {
            self.at = start;
        }
        found
    }

    fn fault(&self, expected: impl Into<String>) -> SyntaxError {
        let found = match self.peek() {
            None => "the end".to_owned(),
            Some(character) => format!("{character:?}"),
        };
        SyntaxError::new(self.at, expected, found)
    }

    /// The parts up to the next `/` or the end.
    fn component(&mut self) -> Result<Vec<Part>, SyntaxError> {
        let start = self.at;
        let mut parts = Vec::new();
        let mut text = String::new();
        while let Some(character) = self.peek() {
            match character {
                '/' => break,
                '{' if self.take_all("{{") => text.push('{'),
                '}' if self.take_all("}}") => text.push('}'),
                '}' => return Err(self.fault("}} for a brace")),
                '{' => {
                    if !text.is_empty() {
                        parts.push(Part::Literal(std::mem::take(&mut text)));
                    }
                    parts.push(self.placeholder()?);
                }
                character if character.is_ascii_control() => {
                    return Err(self.fault("a printable character"));
                }
                character => {
                    text.push(character);
                    self.at += 1;
                }
            }
        }
        if !text.is_empty() {
            parts.push(Part::Literal(text));
        }
        match parts.as_slice() {
            [] => Err(self.fault("a name or a placeholder such as {sample_id}")),
            [Part::Literal(text)] if text == "." || text == ".." => Err(SyntaxError::new(
                start,
                "a name other than . and ..",
                format!("{text:?}"),
            )),
            [Part::Literal(text)] if text.len() > NAME_MAX => Err(SyntaxError::new(
                start,
                format!("a name of at most {NAME_MAX} bytes"),
                format!("{} bytes", text.len()),
            )),
            _ => Ok(parts),
        }
    }

    fn placeholder(&mut self) -> Result<Part, SyntaxError> {
        self.at += 1;
        let start = self.at;
        let (name, quoted, mut several) = self.name()?;
        several |= quoted && self.take_all("...");
        let padded_at = self.at;
        let width = self.width()?;
        let default_at = self.at;
        let default = self.default()?;
        if !self.take('}') {
            return Err(self.fault("} after the placeholder"));
        }
        let builtin = match name.as_str() {
            _ if quoted => None,
            "cache_id" => Some(Part::CacheId { width }),
            "sample_id" => Some(Part::SampleId { width }),
            "source_name" => Some(Part::SourceName),
            "ext" => Some(Part::Ext),
            _ => None,
        };
        let Some(builtin) = builtin else {
            self.slots += 1;
            return Ok(Part::Field(FieldPart {
                name,
                width,
                default,
                several,
                slot: self.slots - 1,
            }));
        };
        if several {
            let expected = format!("{{{name}}} (only metadata fields can be several components)");
            return Err(SyntaxError::new(start, expected, format!("{name}...")));
        }
        if width > 0 && matches!(builtin, Part::SourceName | Part::Ext) {
            let expected = format!("}} ({name} is no number to be padded)");
            return Err(SyntaxError::new(padded_at, expected, "zero padding"));
        }
        if default.is_some() {
            let expected = format!("}} (every sample has {name})");
            return Err(SyntaxError::new(default_at, expected, "a default"));
        }
        Ok(builtin)
    }

    /// The name, whether it was quoted, and whether `...` follows.
    fn name(&mut self) -> Result<(String, bool, bool), SyntaxError> {
        if self.take('`') {
            return self.quoted_name().map(|name| (name, true, false));
        }
        let start = self.at;
        let mut name = String::new();
        while let Some(character) = self.peek()
            && !matches!(character, '{' | '}' | '|' | ':' | '`')
        {
            name.push(character);
            self.at += 1;
        }
        let several = name.ends_with("...");
        if several {
            name.truncate(name.len() - 3);
        }
        if name.is_empty() {
            self.at = start;
            return Err(self.fault("the name of a metadata field"));
        }
        Ok((name, false, several))
    }

    fn quoted_name(&mut self) -> Result<String, SyntaxError> {
        let mut name = String::new();
        loop {
            match self.peek() {
                Some('`') if self.take_all("``") => name.push('`'),
                Some('`') => {
                    self.at += 1;
                    return Ok(name);
                }
                Some(character) => {
                    name.push(character);
                    self.at += 1;
                }
                None => return Err(self.fault("` after the name")),
            }
        }
    }

    fn width(&mut self) -> Result<usize, SyntaxError> {
        if !self.take(':') {
            return Ok(0);
        }
        let start = self.at;
        let mut digits = String::new();
        while let Some(digit) = self.peek().filter(char::is_ascii_digit) {
            digits.push(digit);
            self.at += 1;
        }
        let width = digits
            .strip_prefix('0')
            .and_then(|width| width.parse().ok());
        width
            .filter(|width| (1..=MAX_WIDTH).contains(width))
            .ok_or_else(|| {
                self.at = start;
                self.fault(format!(
                    "zero padding such as 08 (0 and a width of 1 to {MAX_WIDTH})"
                ))
            })
    }

    fn default(&mut self) -> Result<Option<String>, SyntaxError> {
        if !self.take('|') {
            return Ok(None);
        }
        let mut default = String::new();
        while let Some(character) = self.peek().filter(|character| *character != '}') {
            if character == '{' {
                return Err(self.fault("} after the default (which has no braces)"));
            }
            default.push(character);
            self.at += 1;
        }
        if default.is_empty() {
            return Err(self.fault("a default"));
        }
        Ok(Some(default))
    }
}

#[cfg(test)]
mod tests;
