//! Reads the text of a template, character by character.

use super::{FieldPart, Part, SyntaxError};
use crate::view::escape::NAME_MAX;

/// A template may have this many components.
const MAX_COMPONENTS: usize = 64;
/// Widest zero padding.
const MAX_WIDTH: usize = 64;

/// The components of a template.
pub(super) fn components(text: &str) -> Result<Vec<Vec<Part>>, SyntaxError> {
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
    Ok(components)
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
