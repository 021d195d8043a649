//! The damage of `mutations.json`, done to a copy of a golden cache.

use std::os::unix::fs::symlink;
use std::path::Path;

use datasetrt::format::index::IndexRow;

use super::arrow_rewrite::rewrite;
use super::fixture::{TestCache, record_of};
use super::json::Json;
use super::unhex;

/// Does `ops` to the cache in `dir`, one after another.
pub fn apply(dir: &Path, ops: &Json) {
    let cache = TestCache::at(dir);
    for op in ops.items() {
        apply_one(&cache, op);
    }
}

fn apply_one(cache: &TestCache, op: &Json) {
    let file = || op.text_at("file");
    match op.text_at("op").as_str() {
        "json_set" => {
            let value = op.get("value").unwrap().clone();
            cache.edit_manifest(|manifest| manifest.set(&path(op), value));
        }
        "json_delete" => cache.edit_manifest(|manifest| manifest.remove(&path(op))),
        "text_replace" => {
            let text = String::from_utf8(cache.read(&file())).unwrap();
            let old = op.text_at("old");
            assert!(text.contains(&old), "{old:?} is not in {}", file());
            cache.put(&file(), text.replacen(&old, &op.text_at("new"), 1));
        }
        "prepend" => {
            let mut bytes = unhex(&op.text_at("hex"));
            bytes.extend_from_slice(&cache.read(&file()));
            cache.put(&file(), bytes);
        }
        "append" => cache.append(&file(), &unhex(&op.text_at("hex"))),
        "truncate" => cache.truncate(&file(), op.number_at("len")),
        "delete" => cache.remove(&file()),
        "xor" => cache.flip(&file(), op.number_at("offset"), op.number_at("mask")),
        "index_set" => {
            let sample = op.number_at("row");
            let mut row = cache.row(sample);
            let field = match op.text_at("field").as_str() {
                "shard_id" => &mut row.shard,
                "offset" => &mut row.offset,
                "byte_len" => &mut row.length,
                other => panic!("index field {other:?}"),
            };
            *field = op.number_at("value");
            cache.set_row(sample, row);
        }
        "index_swap" => {
            let (a, b) = (op.number_at("rows/0"), op.number_at("rows/1"));
            let (first, second) = (cache.row(a), cache.row(b));
            cache.set_row(a, second);
            cache.set_row(b, first);
        }
        "append_record" => append_record(cache, op),
        "fix_checksums" => cache.reseal_sums(),
        "rename" => {
            let to = cache.path(&op.text_at("to"));
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::rename(cache.path(&file()), to).unwrap();
        }
        "symlink" => symlink(op.text_at("target"), cache.path(&file())).unwrap(),
        "arrow_rewrite" => {
            let table = rewrite(&cache.read("metadata.arrow"), &op.text_at("how"));
            cache.put("metadata.arrow", table);
        }
        other => panic!("operation {other:?}"),
    }
}

/// `["shards", 0, "name"]` as `shards/0/name`.
fn path(op: &Json) -> String {
    let steps = op.get("path").unwrap().items().iter();
    let steps: Vec<String> = steps
        .map(|step| match step.raw().starts_with('"') {
            true => step.text(),
            false => step.raw().to_owned(),
        })
        .collect();
    steps.join("/")
}

fn append_record(cache: &TestCache, op: &Json) {
    let shard = op.number_at("shard");
    let mut record = record_of(&metadata_json(op), &stored_payload(op));
    if op.get("metadata_len").is_some() {
        let len: u64 = op.number_at("metadata_len");
        record[..8].copy_from_slice(&len.to_le_bytes());
    }
    let file = cache.shard_file(shard);
    let row = IndexRow {
        shard,
        offset: cache.read(&file).len() as u64,
        length: record.len() as u64,
    };
    cache.append(&file, &record);
    cache.set_row(op.number_at("row"), row);
}

/// The JSON of an appended record.
#[must_use]
pub fn metadata_json(op: &Json) -> Vec<u8> {
    match op.get("metadata_hex") {
        Some(hex) => unhex(&hex.text()),
        None => op.text_at("metadata_json").into_bytes(),
    }
}

/// The stored payload of an appended record.
#[must_use]
pub fn stored_payload(op: &Json) -> Vec<u8> {
    unhex(&op.text_at("stored_payload_hex"))
}
