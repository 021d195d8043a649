//! The values of a JSON object one by one, so that each fault names the key.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::json_object::JsonObject;
use crate::error::{Fault, FaultKind};

/// Characters of a value that a message quotes.
const SHOWN: usize = 60;

/// What a key has to hold.
pub(super) const COUNT: &str = "a whole number from 0 to 18446744073709551615";
pub(super) const NUMBER: &str = "a number";
pub(super) const TEXT: &str = "a string";
pub(super) const LIST: &str = "a list";
const OBJECT: &str = "a JSON object";

/// An object of the manifest.
pub(super) struct Members<'a> {
    /// Where it stands, as `shards[3]`; empty for the manifest itself.
    place: String,
    members: Vec<(String, &'a RawValue)>,
}

impl<'a> Members<'a> {
    /// Those of the manifest itself.
    pub(super) fn of_manifest(text: &'a str) -> Result<Self, Fault> {
        Self::parse(text, String::new())
    }

    fn parse(text: &'a str, place: String) -> Result<Self, Fault> {
        match serde_json::from_str(text) {
            Ok(JsonObject(members)) => Ok(Self { place, members }),
            // Well-formed, but something else.
            Err(error) if error.is_data() => Err(wrong(OBJECT, &place, shown(text))),
            Err(error) => Err(wrong(OBJECT, &place, error.to_string())),
        }
    }

    /// Refuses a key that is there twice, whatever it means.
    pub(super) fn refuse_twins(&self) -> Result<(), Fault> {
        let mut seen = HashSet::new();
        match self.members.iter().find(|(key, _)| !seen.insert(key)) {
            Some((key, _)) => {
                let found = format!("duplicate key {:?}", shown(key));
                Err(wrong("each key once", "", found))
            }
            None => Ok(()),
        }
    }

    /// The value of `key` as it is spelled, if it is there.
    pub(super) fn spelled(&self, key: &str) -> Option<&'a str> {
        let found = self.members.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.get())
    }

    /// How `key` is called in messages.
    pub(super) fn path(&self, key: &str) -> String {
        match self.place.is_empty() {
            true => key.to_owned(),
            false => format!("{}.{key}", self.place),
        }
    }

    /// The spelling of the value of `key`, which must not be there twice.
    fn raw(&self, key: &str, expected: &str) -> Result<&'a RawValue, Fault> {
        let mut found = self.members.iter().filter(|(name, _)| name == key);
        match (found.next(), found.next()) {
            (Some((_, value)), None) => Ok(value),
            (None, _) => {
                let found = "no such key".to_owned();
                Err(wrong(expected, &self.path(key), found))
            }
            (Some(_), Some(_)) => {
                let found = format!("duplicate key {key:?}");
                Err(wrong(expected, &self.path(key), found))
            }
        }
    }

    /// The value of `key`, which is `expected`.
    pub(super) fn value<T: Deserialize<'a>>(&self, key: &str, expected: &str) -> Result<T, Fault> {
        let raw = self.raw(key, expected)?.get();
        serde_json::from_str(raw).map_err(|_| wrong(expected, &self.path(key), shown(raw)))
    }

    /// The object that is the value of `key` and has `keys`, or a list of their values.
    pub(super) fn object(&self, key: &str, keys: &[&str]) -> Result<Self, Fault> {
        Self::parse_either(self.raw(key, OBJECT)?.get(), self.path(key), keys)
    }

    /// The objects of the list that is the value of `key`, each as [`Members::object`].
    pub(super) fn objects(
        &self,
        key: &str,
        keys: &[&str],
    ) -> Result<impl Iterator<Item = Result<Self, Fault>>, Fault> {
        let list: Vec<&'a RawValue> = self.value(key, LIST)?;
        let path = self.path(key);
        let objects = list.into_iter().enumerate();
        Ok(
            objects
                .map(move |(n, raw)| Self::parse_either(raw.get(), format!("{path}[{n}]"), keys)),
        )
    }

    /// The reference takes a list for an object as well.
    fn parse_either(text: &'a str, place: String, keys: &[&str]) -> Result<Self, Fault> {
        match serde_json::from_str::<Vec<&'a RawValue>>(text) {
            Ok(values) if values.len() == keys.len() => {
                let keys = keys.iter().map(|key| (*key).to_owned());
                let members = keys.zip(values).collect();
                Ok(Self { place, members })
            }
            _ => Self::parse(text, place),
        }
    }
}

/// That `place` does not hold what is `expected`.
pub(super) fn wrong(expected: &str, place: &str, found: String) -> Fault {
    let expected = match place.is_empty() {
        true => expected.to_owned(),
        false => format!("{expected} in {place}"),
    };
    Fault::new(FaultKind::Manifest, expected, found)
}

/// The start of a value as it is spelled.
pub(super) fn shown(raw: &str) -> String {
    let mut start: String = raw.chars().take(SHOWN).collect();
    if start.len() < raw.len() {
        start.push_str("...");
    }
    start
}
