//! The facts of caches as JSON.

use serde_json::{Map, Value, json};

use super::CacheInfo;
use super::stats::{Distinct, FieldStats, Sizes, Stats};
use crate::error::json_pretty;
use crate::format::metadata::{Field, FieldKind};

/// Most frequent values of each field that are told.
const TOP: usize = 10;

/// One object with the list `caches`.
pub(super) fn of(infos: &[CacheInfo]) -> String {
    let caches: Vec<Value> = infos.iter().map(cache).collect();
    json_pretty(&json!({ "caches": caches })) + "\n"
}

fn cache(info: &CacheInfo) -> Value {
    let manifest = info.cache.manifest();
    let mut value = json!({
        "cache": info.cache.dir().to_string_lossy(),
        "cache_id": info.cache_id,
        "id": info.cache_id.to_string(),
        "cache_id_source": info.id_source(),
        "source_name": manifest.source_name,
        "format_version": manifest.version.number(),
        "samples": manifest.sample_count,
        "decoded_bytes": manifest.decoded_len(),
        "stored_bytes": info.stored_len,
        "ratio": info.ratio(),
        "shards": manifest.shards.len(),
        "compression": info.compressions(),
        "schema": manifest.schema,
    });
    if let (Some(stats), Some(object)) = (&info.stats, value.as_object_mut()) {
        object.insert("sizes".to_owned(), sizes(&stats.sizes));
        object.insert("fields".to_owned(), fields(&manifest.schema, stats));
    }
    value
}

fn sizes(sizes: &Sizes) -> Value {
    let bins = sizes.bins.iter().enumerate();
    let histogram: Vec<Value> = bins
        .filter(|(_, count)| **count > 0)
        .map(|(n, &count)| {
            let (from, to) = super::text::bin_range(n);
            json!({ "from": from, "to": to, "count": count })
        })
        .collect();
    json!({
        "smallest": sizes.smallest,
        "largest": sizes.largest,
        "mean": sizes.mean(),
        "damaged": sizes.damaged,
        "histogram": histogram,
    })
}

fn fields(schema: &[Field], stats: &Stats) -> Value {
    schema
        .iter()
        .zip(&stats.fields)
        .map(|(schema, stats)| field(schema, stats))
        .collect()
}

fn field(field: &Field, stats: &FieldStats) -> Value {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("name", json!(field.name));
    put("kind", json!(field.kind.name()));
    put("nulls", json!(stats.nulls));
    let numbers = &stats.numbers;
    match field.kind {
        FieldKind::Int => {
            put("min", json!(numbers.least_int));
            put("max", json!(numbers.most_int));
            put("mean", json!(numbers.mean()));
        }
        FieldKind::Float => {
            put("min", json!(numbers.least));
            put("max", json!(numbers.most));
            put("mean", json!(numbers.mean()));
            put("nan", json!(numbers.nan));
            put("infinite", json!(numbers.infinite));
        }
        FieldKind::Bool | FieldKind::String => {}
    }
    match stats.distinct {
        Distinct::Exactly(distinct) => {
            put("distinct", json!(distinct));
            let top = stats.top.iter().take(TOP);
            let top = top.map(|top| json!({ "value": top.value, "count": top.count }));
            put("top", top.collect());
        }
        // More than are counted.
        Distinct::TooMany => {
            put("distinct", Value::Null);
        }
        Distinct::NotCounted => {}
    }
    Value::Object(object)
}
