//! A JSON object as its members in the order of the text, values as they are spelled.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of a JSON object: each name as `K`, each value as it is spelled.
pub(crate) struct JsonObject<'a, K>(pub(crate) Vec<(K, &'a RawValue)>);

impl<'de: 'a, 'a, K: Deserialize<'de>> Deserialize<'de> for JsonObject<'a, K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<K>(PhantomData<K>);
        impl<'de, K: Deserialize<'de>> Visitor<'de> for Members<K> {
            type Value = Vec<(K, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        deserializer
            .deserialize_map(Members(PhantomData))
            .map(JsonObject)
    }
}
