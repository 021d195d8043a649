//! Edits of a manifest's text that leave every other byte of it as it is.
//!
//! A manifest may hold keys, number spellings and white space that this program knows nothing of.
//! Parsing and writing it again would lose some of that, so the places of the two members that
//! change are found in the text, and only they are replaced.

use std::fmt;
use std::ops::Range;

use serde_json::value::RawValue;

use super::json_object::JsonObject;
use super::manifest::MAX_MANIFEST_LEN;
use crate::error::{Fault, FaultKind};

/// The text of format 3 for the format-2 manifest `manifest`, with the identity `cache_id`.
///
/// The new text has `3` for `2` and a member `cache_id` right after `format_version`, laid out as
/// that member is. A member `cache_id`, which means nothing in format 2, keeps its place and gets
/// the new value instead. Members other than these two are not looked at.
///
/// # Errors
/// [`FaultKind::Manifest`] when the text is not a JSON object with one `format_version`, whose
/// value is `2`, and at most one `cache_id`; [`FaultKind::Length`] when the new text would be longer
/// than readers take.
pub fn to_v3(manifest: &[u8], cache_id: u64) -> Result<Vec<u8>, Fault> {
    let text = std::str::from_utf8(manifest).map_err(|error| bad("UTF-8 text", error))?;
    let members = members(text)?;
    let version =
        position(&members, "format_version")?.ok_or_else(|| bad("a key format_version", "none"))?;
    let version_value = slice(text, &version.member.value);
    if version_value != "2" {
        return Err(bad("format_version 2", version_value));
    }
    let mut edits = vec![(version.member.value.clone(), "3".to_owned())];
    match position(&members, "cache_id")? {
        Some(old) => edits.push((old.member.value.clone(), cache_id.to_string())),
        None => {
            let end = version.member.value.end;
            let colon = slice(text, &(version.member.key.end..version.member.value.start));
            let separator = separator(text, &members, &version);
            edits.push((
                end..end,
                format!("{separator}\"cache_id\"{colon}{cache_id}"),
            ));
        }
    }
    edits.sort_by_key(|(place, _)| place.start);

    let mut new = String::with_capacity(text.len() + 64);
    let mut kept = 0;
    for (place, replacement) in edits {
        new.push_str(slice(text, &(kept..place.start)));
        new.push_str(&replacement);
        kept = place.end;
    }
    new.push_str(slice(text, &(kept..text.len())));
    if new.len() as u64 > MAX_MANIFEST_LEN {
        return Err(Fault::new(
            FaultKind::Length,
            format!("a new manifest of at most {MAX_MANIFEST_LEN} bytes"),
            format!("{} bytes", new.len()),
        ));
    }
    Ok(new.into_bytes())
}

/// Where one member of the top level stands in the text.
struct Member {
    name: String,
    /// The key with its quotes.
    key: Range<usize>,
    value: Range<usize>,
}

struct Position<'a> {
    index: usize,
    member: &'a Member,
}

/// The one member called `name`.
fn position<'a>(members: &'a [Member], name: &str) -> Result<Option<Position<'a>>, Fault> {
    let mut found = members
        .iter()
        .enumerate()
        .filter(|(_, member)| member.name == name)
        .map(|(index, member)| Position { index, member });
    let first = found.next();
    match found.next() {
        Some(_) => Err(bad("distinct keys", format!("duplicate key {name:?}"))),
        None => Ok(first),
    }
}

/// What stands between the version and its neighbour: a comma with its white space.
fn separator(text: &str, members: &[Member], version: &Position<'_>) -> String {
    let before = version.index.checked_sub(1).and_then(|n| members.get(n));
    match (before, members.get(version.index + 1)) {
        (_, Some(next)) => slice(text, &(version.member.value.end..next.key.start)).to_owned(),
        (Some(last), None) => slice(text, &(last.value.end..version.member.key.start)).to_owned(),
        (None, None) => {
            let inside = text.find('{').map_or(0, |brace| brace + 1);
            format!(",{}", slice(text, &(inside..version.member.key.start)))
        }
    }
}

/// All spans come from the text itself, so that none is out of its bounds.
fn slice<'a>(text: &'a str, place: &Range<usize>) -> &'a str {
    text.get(place.clone()).unwrap_or_default()
}

fn bad(expected: &str, found: impl fmt::Display) -> Fault {
    Fault::new(FaultKind::Manifest, expected, found.to_string())
}

/// The members of the top level, in order. serde_json decides what is JSON.
fn members(text: &str) -> Result<Vec<Member>, Fault> {
    let object: JsonObject<'_, &RawValue> =
        serde_json::from_str(text).map_err(|error| bad("a JSON object", error))?;
    object
        .0
        .into_iter()
        .map(|(key, value)| {
            Ok(Member {
                name: serde_json::from_str(key.get()).map_err(|error| bad("a JSON key", error))?,
                key: place(text, key),
                value: place(text, value),
            })
        })
        .collect()
}

/// Where `part`, which borrows from `text`, stands in it.
fn place(text: &str, part: &RawValue) -> Range<usize> {
    let start = part.get().as_ptr().addr() - text.as_ptr().addr();
    start..start + part.get().len()
}

#[cfg(test)]
mod tests;
