//! A tar archive in which members that stand together and share a key are one sample.
//!
//! The key is the path up to the first dot of the file name; what follows is the extension. A
//! group gives one sample for each of its members with a payload extension. Its other members are
//! their metadata: the fields of `.json`, the text of `.txt` as field `txt`, the text of `.cls` as
//! field `cls`. Anything else is left out and reported.

use std::path::Path;
use std::sync::Arc;

use super::archive::{Member, Met, Tar, Want};
use super::table::{object, text_of, value_of};
use super::{Cells, Found, Item, Payload, Place, Source, refuse};
use crate::error::Result;
use crate::format::metadata::Cell;

/// An archive of groups.
#[derive(Debug)]
pub struct WebDataset {
    tar: Tar,
    /// Extensions of payloads, in lower case and without the dot.
    payloads: Vec<String>,
    lossy: bool,
}

/// What a member is to its group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Role {
    Payload,
    Json,
    Text,
    Class,
    Unknown,
}

impl WebDataset {
    /// The groups of `tar`, whose payloads have the extensions `payloads` (without the first dot).
    #[must_use]
    pub fn new(tar: Tar, payloads: &[String], lossy: bool) -> Self {
        let payloads = payloads.iter();
        Self {
            tar,
            payloads: payloads
                .map(|extension| extension.trim_start_matches('.').to_lowercase())
                .collect(),
            lossy,
        }
    }

    fn role(&self, extension: &str) -> Role {
        if self.payloads.iter().any(|payload| payload == extension) {
            return Role::Payload;
        }
        match extension {
            "json" => Role::Json,
            "txt" => Role::Text,
            "cls" => Role::Class,
            _ => Role::Unknown,
        }
    }

    fn finish(&self, group: &mut Group, each: &mut dyn FnMut(Found) -> Result<()>) -> Result<()> {
        let group = std::mem::take(group);
        if group.members.is_empty() {
            return Ok(());
        }
        let mut payloads = Vec::new();
        let mut cells = Cells::new();
        for (extension, member) in group.members {
            match self.role(&extension) {
                Role::Payload => payloads.push((extension, member)),
                role => {
                    let place = Place::Member(member.name.clone());
                    let more = self.metadata(role, member.payload);
                    let more = more.map_err(|reason| refuse(self.path(), &place, reason))?;
                    cells.extend(more);
                }
            }
        }
        if payloads.is_empty() {
            let place = Place::Member(group.key);
            let reason = format!(
                "this group has no member with the extension .{}",
                self.payloads.join(" or .")
            );
            return Err(refuse(self.path(), &place, reason));
        }
        // In the order in which the extensions were given.
        payloads.sort_by_key(|(extension, _)| self.payloads.iter().position(|p| p == extension));
        for (_, member) in payloads {
            each(Found::Item(Item {
                place: Place::Member(member.name.clone()),
                name: member.name,
                payload: member.payload,
                len: Some(member.len),
                cells: cells.clone(),
            }))?;
        }
        Ok(())
    }

    fn metadata(&self, role: Role, payload: Payload) -> Result<Cells, String> {
        let bytes = match payload {
            Payload::Bytes(bytes) => bytes,
            _ => return Err("its bytes were not read".to_owned()),
        };
        let text = text_of(&bytes, self.lossy)?;
        let one = |name: &str, cell| Ok(vec![(Arc::from(name), cell)]);
        match role {
            Role::Json if text.trim_start().starts_with('{') => {
                object(&text, &mut Vec::new()).map_err(|reason| reason.to_string())
            }
            Role::Json => {
                let value: &serde_json::value::RawValue =
                    serde_json::from_str(&text).map_err(|error| format!("not JSON: {error}"))?;
                one("json", value_of(value.get())?)
            }
            Role::Class => one("cls", Cell::Untyped(text.trim().to_owned())),
            _ => one("txt", Cell::Text(text)),
        }
    }
}

/// Members with one key, by extension.
#[derive(Default)]
struct Group {
    key: Vec<u8>,
    members: Vec<(String, Member)>,
}

impl Source for WebDataset {
    fn path(&self) -> &Path {
        self.tar.path()
    }

    fn visit(&self, load: bool, each: &mut dyn FnMut(Found) -> Result<()>) -> Result<()> {
        let want = |name: &[u8]| match split(name).map(|(_, extension)| self.role(&extension)) {
            Some(Role::Payload) if load => Want::Payload,
            Some(Role::Json | Role::Text | Role::Class) => Want::Bytes,
            _ => Want::Nothing,
        };
        let mut group = Group::default();
        self.tar.members(&want, &mut |met| {
            let member = match met {
                Met::Member(member) => member,
                Met::Other(place, what) => return each(Found::Skipped(place, what)),
            };
            let Some((key, extension)) = split(&member.name) else {
                let what = "a member whose name has no key and extension".to_owned();
                return each(Found::Skipped(Place::Member(member.name), what));
            };
            if group.key != key {
                self.finish(&mut group, each)?;
                group.key = key.to_vec();
            }
            if self.role(&extension) == Role::Unknown {
                let what = format!("a member with the extension .{extension}");
                return each(Found::Skipped(Place::Member(member.name), what));
            }
            if group.members.iter().any(|(known, _)| *known == extension) {
                let place = Place::Member(member.name);
                return Err(refuse(
                    self.path(),
                    &place,
                    "this member is in the archive twice",
                ));
            }
            group.members.push((extension, member));
            Ok(())
        })?;
        self.finish(&mut group, each)
    }

    fn names_are_unique(&self) -> bool {
        true
    }
}

/// Key and extension (in lower case) of a member: parted at the first dot of the file name, which
/// must not be its first character.
fn split(name: &[u8]) -> Option<(&[u8], String)> {
    let file = name
        .iter()
        .rposition(|&byte| byte == b'/')
        .map_or(0, |n| n + 1);
    let dot = name.get(file..)?.iter().position(|&byte| byte == b'.')?;
    if dot == 0 {
        return None;
    }
    let key = name.get(..file + dot)?;
    let extension = name.get(file + dot + 1..)?;
    Some((key, String::from_utf8_lossy(extension).to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    #[test]
    fn the_key_ends_at_the_first_dot_of_the_file_name() {
        for (name, key, extension) in [
            ("a.jpg", "a", "jpg"),
            ("sub.v1/a.seg.PNG", "sub.v1/a", "seg.png"),
            ("d/.hidden/x.cls", "d/.hidden/x", "cls"),
        ] {
            let expected = Some((key.as_bytes(), extension.to_owned()));
            assert_eq!(split(name.as_bytes()), expected);
        }
        for name in ["README", "d.v/README", ".hidden", "d/.hidden"] {
            assert_eq!(split(name.as_bytes()), None, "{name}");
        }
    }

    fn visit(members: &[(&str, &str)], payloads: &[&str]) -> Result<Vec<(String, Cells)>> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, text) in members {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            builder
                .append_data(&mut header, name, text.as_bytes())
                .unwrap();
        }
        let file = file(".tar", &builder.into_inner().unwrap());
        let path = file.path().to_path_buf();
        let payloads: Vec<_> = payloads.iter().map(|p| (*p).to_owned()).collect();
        let source = WebDataset::new(Tar::by_name(path).unwrap(), &payloads, false);
        let mut seen = Vec::new();
        source.visit(false, &mut |found| {
            if let Found::Item(item) = found {
                seen.push((String::from_utf8(item.name).unwrap(), item.cells));
            }
            Ok(())
        })?;
        Ok(seen)
    }

    #[test]
    fn groups_become_samples_with_their_metadata() {
        let members = [
            ("d.x/a.json", "{\"n\": 1}"),
            ("d.x/a.jpg", "payload"),
            ("d.x/a.cls", "3\n"),
            ("d.x/a.npy", "left out"),
            ("d.x/b.PNG", "payload"),
            ("d.x/b.jpg", "payload"),
            ("d.x/b.txt", "a caption\n"),
        ];
        let seen = visit(&members, &["jpg", ".png"]).unwrap();
        let names: Vec<_> = seen.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["d.x/a.jpg", "d.x/b.jpg", "d.x/b.PNG"]);
        let expected = vec![
            (Arc::from("n"), Cell::Int(1)),
            (Arc::from("cls"), Cell::Untyped("3".to_owned())),
        ];
        assert_eq!(seen[0].1, expected);
        let caption = vec![(Arc::from("txt"), Cell::Text("a caption\n".to_owned()))];
        assert_eq!((&seen[1].1, &seen[2].1), (&caption, &caption));
        assert!(
            visit(&members, &["gif"]).is_err(),
            "a group without payload"
        );
        assert!(
            visit(&[("a.jpg", ""), ("a.jpg", "")], &["jpg"]).is_err(),
            "twice"
        );
        assert_eq!(visit(&[("a.txt", "x")], &["txt"]).unwrap()[0].1, vec![]);
    }
}
