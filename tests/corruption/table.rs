//! File by file, damage by damage: the exact error.

use std::fs;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::common::fixture::{Fixture, TestCache, record_of};
use crate::common::json::Json;
use crate::outcome;

type Damage = fn(&TestCache);

/// Three samples in two shards.
fn two_shards(fixture: Fixture) -> TestCache {
    fixture.max_shard_bytes(240).build()
}

fn assert_outcomes(rows: &[(&str, Damage, &str)]) {
    let mut wrong = Vec::new();
    for (what, damage, expected) in rows {
        let cache = two_shards(Fixture::tiny().lz4());
        assert_eq!(outcome(&cache), "right");
        damage(&cache);
        let found = outcome(&cache);
        if found != *expected {
            wrong.push(format!("{what}: expected {expected:?}, found {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_damaged_manifest_is_refused_before_anything_else_is_opened() {
    let bad = "open: Manifest manifest.json";
    assert_outcomes(&[
        ("missing", |c| c.remove("manifest.json"), "open: Incomplete"),
        ("empty", |c| c.put("manifest.json", ""), bad),
        ("cut", |c| c.truncate("manifest.json", -1), bad),
        ("trailing text", |c| c.append("manifest.json", b"x"), bad),
        ("a second object", |c| c.append("manifest.json", b"{}"), bad),
        (
            "not UTF-8",
            |c| c.edit("manifest.json", |b| b[3] = 0xFF),
            bad,
        ),
        ("an array", |c| c.put("manifest.json", "[]"), bad),
        (
            "byte order mark",
            |c| {
                c.edit("manifest.json", |b| {
                    b.splice(0..0, *b"\xef\xbb\xbf");
                })
            },
            bad,
        ),
        (
            "version 1",
            |c| c.set_manifest("format_version", 1),
            "open: Version 1",
        ),
        (
            "version 4",
            |c| c.set_manifest("format_version", 4),
            "open: Version 4",
        ),
        (
            "no version",
            |c| c.edit_manifest(|m| m.remove("format_version")),
            bad,
        ),
        (
            "version as text",
            |c| c.set_manifest("format_version", "3"),
            "open: Version \"3\"",
        ),
        (
            "no cache_id",
            |c| c.edit_manifest(|m| m.remove("cache_id")),
            bad,
        ),
        (
            "no source_name",
            |c| c.edit_manifest(|m| m.remove("source_name")),
            bad,
        ),
        (
            "no sample_count",
            |c| c.edit_manifest(|m| m.remove("sample_count")),
            bad,
        ),
        (
            "no shards",
            |c| c.edit_manifest(|m| m.remove("shards")),
            bad,
        ),
        (
            "no shard length",
            |c| c.edit_manifest(|m| m.remove("shards/0/byte_len")),
            bad,
        ),
        (
            "negative id",
            |c| c.set_manifest("cache_id", Json::Scalar("-1".into())),
            bad,
        ),
        (
            "id of 2^64",
            |c| c.set_manifest("cache_id", Json::Scalar("18446744073709551616".into())),
            bad,
        ),
        (
            "fractional count",
            |c| c.set_manifest("sample_count", Json::Scalar("3.0".into())),
            bad,
        ),
        (
            "unknown kind",
            |c| c.set_manifest("metadata_schema/0/kind", "bytes"),
            bad,
        ),
        (
            "field twice",
            |c| c.set_manifest("metadata_schema/0/name", "name"),
            bad,
        ),
        ("short sum", |c| c.set_manifest("index_sha256", "abcd"), bad),
        (
            "unknown codec",
            |c| c.set_manifest("shards/0/compression/algo", "zstd"),
            bad,
        ),
        (
            "shard name",
            |c| c.set_manifest("shards/1/name", "../x"),
            "open: ShardName manifest.json",
        ),
    ]);
}

#[test]
fn damage_to_the_other_files_is_refused_naming_the_file() {
    assert_outcomes(&[
        (
            "no table",
            |c| c.remove("metadata.arrow"),
            "open: NotFound metadata.arrow",
        ),
        (
            "empty table",
            |c| c.put("metadata.arrow", ""),
            "open: Table metadata.arrow",
        ),
        (
            "cut table",
            |c| c.truncate("metadata.arrow", -1),
            "open: Table metadata.arrow",
        ),
        (
            "table of another cache",
            |c| {
                let other = Fixture::new().payloads(["x"; 3]).build();
                c.put("metadata.arrow", other.read("metadata.arrow"));
            },
            "open: Table metadata.arrow",
        ),
        (
            "table with a row less",
            |c| {
                let other = two_shards(Fixture::tiny());
                let table = crate::common::arrow_rewrite::rewrite(
                    &other.read("metadata.arrow"),
                    "drop_last_row",
                );
                c.put("metadata.arrow", table);
            },
            "open: RowCount metadata.arrow",
        ),
        (
            "no index",
            |c| c.remove("index.bin"),
            "open: NotFound index.bin",
        ),
        (
            "empty index",
            |c| c.put("index.bin", ""),
            "open: RowCount index.bin",
        ),
        (
            "index cut in a row",
            |c| c.truncate("index.bin", -1),
            "open: RowCount index.bin",
        ),
        (
            "row less",
            |c| c.truncate("index.bin", -24),
            "open: RowCount index.bin",
        ),
        (
            "row more",
            |c| c.append("index.bin", &[0; 24]),
            "open: RowCount index.bin",
        ),
        (
            "shard number",
            |c| c.edit("index.bin", |b| b[24] = 9),
            "open: IndexRow index.bin (1)",
        ),
        (
            "record length",
            |c| c.edit("index.bin", |b| b[71] = 1),
            "open: IndexRow index.bin (2)",
        ),
        (
            "count",
            |c| c.set_manifest("sample_count", 4),
            "open: RowCount index.bin",
        ),
        (
            "no shard",
            |c| c.remove("shards/000001.bin"),
            "open: NotFound shards/000001.bin",
        ),
        (
            "no shards",
            |c| fs::remove_dir_all(c.path("shards")).unwrap(),
            "open: NotFound shards/000000.bin",
        ),
        (
            "cut shard",
            |c| c.truncate("shards/000000.bin", -1),
            "open: Length shards/000000.bin",
        ),
        (
            "longer shard",
            |c| c.append("shards/000001.bin", b"x"),
            "open: Length shards/000001.bin",
        ),
        (
            "length of a shard",
            |c| c.set_manifest("shards/0/byte_len", 1),
            "open: Length shards/000000.bin",
        ),
    ]);
}

#[test]
fn things_that_are_not_files_are_refused_and_a_pipe_is_not_waited_for() {
    fn folder(cache: &TestCache, file: &str) {
        cache.remove(file);
        fs::create_dir(cache.path(file)).unwrap();
    }
    fn pipe(cache: &TestCache, file: &str) {
        cache.remove(file);
        mknodat(CWD, cache.path(file), FileType::Fifo, Mode::RUSR, 0).unwrap();
    }
    assert_outcomes(&[
        (
            "folder",
            |c| folder(c, "manifest.json"),
            "open: Refused manifest.json",
        ),
        (
            "folder",
            |c| folder(c, "index.bin"),
            "open: Refused index.bin",
        ),
        (
            "folder",
            |c| folder(c, "metadata.arrow"),
            "open: Refused metadata.arrow",
        ),
        (
            "folder",
            |c| folder(c, "shards/000000.bin"),
            "open: Refused shards/000000.bin",
        ),
        (
            "pipe",
            |c| pipe(c, "manifest.json"),
            "open: Refused manifest.json",
        ),
        ("pipe", |c| pipe(c, "index.bin"), "open: Refused index.bin"),
        (
            "pipe",
            |c| pipe(c, "metadata.arrow"),
            "open: Refused metadata.arrow",
        ),
        (
            "pipe",
            |c| {
                pipe(c, "shards/000000.bin");
                c.set_manifest("shards/0/byte_len", 0);
            },
            "open: Refused shards/000000.bin",
        ),
    ]);
}

#[test]
fn checksums_and_sums_are_compared_when_asked_for() {
    assert_outcomes(&[
        (
            "table bytes",
            |c| c.flip("metadata.arrow", 20, 1),
            "validate: Checksum metadata.arrow",
        ),
        (
            "shard bytes",
            |c| c.flip("shards/000001.bin", -1, 1),
            "validate: Checksum shards/000001.bin",
        ),
        (
            "sum of the index",
            |c| c.set_manifest("index_sha256", "0".repeat(64).as_str()),
            "validate: Checksum index.bin",
        ),
        (
            "sum of a shard",
            |c| c.set_manifest("shards/0/sha256", "0".repeat(64).as_str()),
            "validate: Checksum shards/000000.bin",
        ),
        (
            "decoded length",
            |c| c.set_manifest("shards/0/uncompressed_byte_len", 1000),
            "validate: DecodedSum shards/000000.bin",
        ),
        (
            "compression",
            |c| c.set_manifest("shards/1/compression/algo", "none"),
            "validate: DecodedSum shards/000001.bin",
        ),
        (
            "two files",
            |c| {
                c.flip("metadata.arrow", 20, 1);
                c.flip("shards/000001.bin", -1, 1);
            },
            "validate: Checksum shards/000001.bin, Checksum metadata.arrow",
        ),
    ]);
}

#[test]
fn a_damaged_record_is_refused_alone_and_with_its_sample() {
    let shard = "shards/000000.bin";
    assert_eq!(two_shards(Fixture::tiny().lz4()).row(1).shard, 0, "{shard}");
    assert_outcomes(&[
        (
            "header",
            |c| {
                c.edit("shards/000000.bin", |b| b[7] = 1);
                c.reseal();
            },
            "read: RecordHeader shards/000000.bin (0)",
        ),
        (
            "metadata",
            |c| {
                c.set_json(1, "{}");
                c.reseal();
            },
            "read: Envelope shards/000000.bin (1)",
        ),
        (
            "payload",
            |c| {
                c.set_stored(1, b"\x03\0\0\0\x30ab");
                c.reseal();
            },
            "read: Payload shards/000000.bin (1)",
        ),
        (
            "no payload",
            |c| {
                c.set_stored(2, b"");
                c.reseal();
            },
            "read: Payload shards/000001.bin (2)",
        ),
    ]);
}

#[test]
fn an_error_says_where_in_the_shard_the_damage_starts() {
    for what in ["header", "json", "payload"] {
        let cache = Fixture::tiny().lz4().build();
        let row = cache.row(1);
        let (json, stored) = cache.record(1);
        let expected = match what {
            "header" => {
                let mut record = record_of(&json, &stored);
                record[7] = 1;
                cache.set_record(1, &record);
                row.offset
            }
            "json" => {
                cache.set_json(1, vec![b'x'; json.len()]);
                row.offset + 8
            }
            _ => {
                cache.set_stored(1, b"\x01\0\0\0\0");
                row.offset + 8 + json.len() as u64
            }
        };
        cache.reseal_sums();
        let error = crate::common::payload(&cache.open().unwrap(), 1).unwrap_err();
        assert_eq!(error.fault().unwrap().offset, Some(expected), "{what}");
    }
}
