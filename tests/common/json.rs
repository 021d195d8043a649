//! JSON that keeps what serde_json's own value would lose: the order of keys, keys that occur
//! twice, and the spelling of every number.

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON value; a scalar is its text as spelled.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// Keys and values in order.
    Object(Vec<(String, Json)>),
    /// Items in order.
    Array(Vec<Json>),
    /// A string (quoted), number, `true`, `false` or `null`.
    Scalar(String),
}

impl Json {
    /// Parses one value.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut parser = serde_json::Deserializer::from_str(text);
        let value = Seed.deserialize(&mut parser).expect("JSON");
        parser.end().expect("one JSON value");
        value
    }

    /// A string value.
    #[must_use]
    pub fn string(text: &str) -> Self {
        Self::Scalar(quoted(text))
    }

    /// The value with two-space indentation and no final newline, as cache writers lay it out.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, 0);
        out
    }

    fn write(&self, out: &mut String, depth: usize) {
        let line = |out: &mut String, depth: usize| {
            out.push('\n');
            out.push_str(&"  ".repeat(depth));
        };
        match self {
            Self::Scalar(text) => out.push_str(text),
            Self::Array(items) if items.is_empty() => out.push_str("[]"),
            Self::Object(items) if items.is_empty() => out.push_str("{}"),
            Self::Array(items) => {
                for (n, item) in items.iter().enumerate() {
                    out.push(if n == 0 { '[' } else { ',' });
                    line(out, depth + 1);
                    item.write(out, depth + 1);
                }
                line(out, depth);
                out.push(']');
            }
            Self::Object(items) => {
                for (n, (key, item)) in items.iter().enumerate() {
                    out.push(if n == 0 { '{' } else { ',' });
                    line(out, depth + 1);
                    out.push_str(&quoted(key));
                    out.push_str(": ");
                    item.write(out, depth + 1);
                }
                line(out, depth);
                out.push('}');
            }
        }
    }

    /// The value at `path`, steps separated by `/` ("shards/0/sha256").
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Self> {
        path.split('/').try_fold(self, |value, step| match value {
            Self::Object(items) => items.iter().find(|(key, _)| key == step).map(|(_, v)| v),
            Self::Array(items) => items.get(step.parse::<usize>().ok()?),
            Self::Scalar(_) => None,
        })
    }

    fn get_mut(&mut self, path: &str) -> Option<&mut Self> {
        path.split('/').try_fold(self, |value, step| match value {
            Self::Object(items) => items
                .iter_mut()
                .find(|(key, _)| key == step)
                .map(|(_, v)| v),
            Self::Array(items) => items.get_mut(step.parse::<usize>().ok()?),
            Self::Scalar(_) => None,
        })
    }

    /// Replaces the value at `path`; a key that is not there is added at the end.
    pub fn set(&mut self, path: &str, value: Self) {
        if let Some(place) = self.get_mut(path) {
            *place = value;
            return;
        }
        let (parent, key) = self.parent_of(path);
        match parent {
            Self::Object(items) => items.push((key, value)),
            other => panic!("{path}: no place in {other:?}"),
        }
    }

    /// Removes the key at `path`.
    pub fn remove(&mut self, path: &str) {
        let (parent, key) = self.parent_of(path);
        match parent {
            Self::Object(items) => items.retain(|(name, _)| *name != key),
            other => panic!("{path}: no key in {other:?}"),
        }
    }

    fn parent_of(&mut self, path: &str) -> (&mut Self, String) {
        match path.rsplit_once('/') {
            Some((parent, key)) => (self.get_mut(parent).expect("a parent"), key.to_owned()),
            None => (self, path.to_owned()),
        }
    }

    /// The items of an array.
    #[must_use]
    pub fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) => items,
            other => panic!("not an array: {other:?}"),
        }
    }

    /// The text as spelled, of a scalar.
    #[must_use]
    pub fn raw(&self) -> &str {
        match self {
            Self::Scalar(text) => text,
            other => panic!("not a scalar: {other:?}"),
        }
    }

    /// The text of a string.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::from_str(self.raw()).expect("a string")
    }

    /// The text of the string at `path`.
    #[must_use]
    pub fn text_at(&self, path: &str) -> String {
        self.get(path)
            .unwrap_or_else(|| panic!("{path}: missing"))
            .text()
    }

    /// The number at `path`.
    #[must_use]
    pub fn number_at<T: std::str::FromStr>(&self, path: &str) -> T {
        let value = self
            .get(path)
            .unwrap_or_else(|| panic!("{path}: missing"))
            .raw();
        value
            .parse()
            .unwrap_or_else(|_| panic!("{path}: {value} does not fit"))
    }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

impl From<u64> for Json {
    fn from(number: u64) -> Self {
        Self::Scalar(number.to_string())
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::string(text)
    }
}

struct Seed;

impl<'de> DeserializeSeed<'de> for Seed {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        let raw: &RawValue = serde::Deserialize::deserialize(deserializer)?;
        let text = raw.get();
        let mut parser = serde_json::Deserializer::from_str(text);
        Ok(match text.as_bytes()[0] {
            b'{' => parser.deserialize_map(Items).unwrap(),
            b'[' => parser.deserialize_seq(Items).unwrap(),
            _ => Json::Scalar(text.to_owned()),
        })
    }
}

struct Items;

impl<'de> Visitor<'de> for Items {
    type Value = Json;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            items.push((key, map.next_value_seed(Seed)?));
        }
        Ok(Json::Object(items))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Seed)? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }
}
