//! Identities of caches in JSON: jq 1.6 and JavaScript round numbers above 2^53, so a string stands
//! beside the number.

use serde::ser::{SerializeMap, Serializer};

/// Writes `cache_id` and the string `id`; for a flattened field.
pub(crate) fn id_twice<S: Serializer>(
    cache_id: &(impl Copy + Into<Option<u64>>),
    to: S,
) -> Result<S::Ok, S::Error> {
    twice("id", (*cache_id).into(), to)
}

/// As [`id_twice`], with the name that `.control/status` has for the string: `cache`.
pub(crate) fn cache_twice<S: Serializer>(cache_id: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    twice("cache", *cache_id, to)
}

fn twice<S: Serializer>(name: &str, cache_id: Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(2))?;
    map.serialize_entry("cache_id", &cache_id)?;
    map.serialize_entry(name, &cache_id.map(|id| id.to_string()))?;
    map.end()
}
