//! JSON lines: one object a line. Numbers are looked at as they are spelled, so that no integer is
//! rounded on the way.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Row, Rows, Span, shared, text_of};
use crate::error::{Error, Result};
use crate::format::json_object::JsonObject;
use crate::format::metadata::Cell;
use crate::storage::{FileReader, StoredFile};
use crate::writer::source::{Cells, Place, refuse};

/// The longest line that is read, in bytes.
const MAX_LINE: usize = 16 << 20;

/// A file of JSON lines.
pub(super) struct Jsonl {
    path: PathBuf,
    reader: BufReader<FileReader>,
    offset: u64,
    line: Vec<u8>,
    number: u64,
    names: Vec<Arc<str>>,
    lossy: bool,
}

impl Jsonl {
    pub(super) fn open(path: &Path, lossy: bool) -> Result<Self> {
        let file = Arc::new(StoredFile::open(path)?);
        Ok(Self {
            path: path.to_path_buf(),
            reader: BufReader::with_capacity(64 << 10, FileReader::new(file)),
            offset: 0,
            line: Vec::new(),
            number: 0,
            names: Vec::new(),
            lossy,
        })
    }
}

impl Rows for Jsonl {
    fn next_row(&mut self) -> Result<Option<Row>> {
        loop {
            self.line.clear();
            let read = (&mut self.reader)
                .take(MAX_LINE as u64 + 1)
                .read_until(b'\n', &mut self.line)
                .map_err(|source| Error::io(&self.path, "read", source))?;
            if read == 0 {
                return Ok(None);
            }
            let offset = self.offset;
            self.offset += read as u64;
            if self.line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            self.number += 1;
            if read > MAX_LINE {
                let reason = format!("a line of more than {MAX_LINE} bytes");
                return Err(refuse(&self.path, &Place::Row(self.number), reason));
            }
            let line = std::mem::take(&mut self.line);
            let cells = self.parse(&line, self.number)?;
            self.line = line;
            let span = Span { offset, len: read };
            return Ok(Some(Row {
                number: self.number,
                span: Some(span),
                cells,
            }));
        }
    }

    fn parse(&mut self, bytes: &[u8], number: u64) -> Result<Cells> {
        let refused = |reason: String| refuse(&self.path, &Place::Row(number), reason);
        // A byte order mark may stand before the first line.
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let text = text_of(bytes, self.lossy).map_err(|reason| refused(reason.to_owned()))?;
        let cells = object(&text, &mut self.names);
        cells.map_err(refused)
    }
}

/// The members of the JSON object `text`; `names` keeps the names of the fields.
///
/// # Errors
/// The reason, for a message.
pub(crate) fn object(text: &str, names: &mut Vec<Arc<str>>) -> Result<Cells, String> {
    let object: JsonObject<'_, String> = match serde_json::from_str(text) {
        Ok(object) => object,
        Err(error) => {
            // Many writers spell floats that are not finite in a way that JSON does not have. The
            // field can be named when they are replaced by a number that is not finite either.
            let Some(mended) = replace_words(text) else {
                return Err(format!("not a JSON object: {error}"));
            };
            return match serde_json::from_str::<JsonObject<'_, String>>(&mended) {
                Ok(object) => cells(&object, names),
                Err(_) => Err(format!("not a JSON object: {error}")),
            };
        }
    };
    cells(&object, names)
}

fn cells(object: &JsonObject<'_, String>, names: &mut Vec<Arc<str>>) -> Result<Cells, String> {
    let members = object.0.iter().enumerate();
    members
        .map(|(n, (name, value))| Ok((shared(names, n, name), value_of(value.get())?)))
        .collect()
}

/// The value that is spelled as `text`, which is valid JSON.
pub(crate) fn value_of(text: &str) -> Result<Cell, String> {
    let other = |what| Cell::Other {
        what,
        text: text.to_owned(),
    };
    Ok(match text.as_bytes().first() {
        Some(b'"') => Cell::Text(serde_json::from_str(text).map_err(|error| error.to_string())?),
        Some(b't') => Cell::Bool(true),
        Some(b'f') => Cell::Bool(false),
        Some(b'n') => Cell::Null,
        Some(b'[') => other("a list"),
        Some(b'{') => other("an object"),
        _ if text.contains(['.', 'e', 'E']) || text == "-0" => match text.parse() {
            Ok(value) => Cell::Float(value),
            Err(_) => other("a number of unknown spelling"),
        },
        _ => match text.parse() {
            Ok(value) => Cell::Int(value),
            Err(_) => Cell::BigInt(text.to_owned()),
        },
    })
}

/// `text` with the words NaN, Infinity and -Infinity outside of strings replaced by a number above
/// all floats; `None` when there are none.
fn replace_words(text: &str) -> Option<String> {
    let mut mended = String::with_capacity(text.len() + 16);
    let (mut in_string, mut escaped, mut found) = (false, false, false);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let word = ["NaN", "Infinity", "-Infinity"]
            .into_iter()
            .find(|word| !in_string && rest.starts_with(word));
        if let Some(word) = word {
            found = true;
            mended.push_str(if word.starts_with('-') {
                "-1e999"
            } else {
                "1e999"
            });
            rest = rest.get(word.len()..)?;
            continue;
        }
        in_string ^= c == '"' && !escaped;
        escaped = in_string && c == '\\' && !escaped;
        mended.push(c);
        rest = rest.get(c.len_utf8()..)?;
    }
    found.then_some(mended)
}
