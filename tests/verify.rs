//! `datasetrt verify`: every damage is found, named, and hides no other.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "common/tiny.rs"]
mod tiny;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use datasetrt::format::index::IndexRow;
use datasetrt::format::metadata::Value;
use datasetrt::format::record::Compression;
use serde_json::Value as Json;
use tempfile::TempDir;
use tiny::*;

const KIB: usize = 1024;

/// Runs verify with `--json` and gives the exit code and the findings.
fn verify(cache: &Path, more: &[&str]) -> (Option<i32>, Vec<Json>) {
    let mut arguments = vec!["verify", "--json", cache.to_str().unwrap()];
    arguments.extend(more);
    let run = tool(&arguments);
    let report = run.json();
    let findings = report["findings"].as_array().unwrap().clone();
    let damage = findings
        .iter()
        .filter(|f| f["severity"] == "damage")
        .count();
    assert_eq!(report["damage"], damage);
    assert_eq!(report["warnings"], findings.len() - damage);
    assert_eq!(run.code, Some(i32::from(damage > 0)), "{}", run.err);
    (run.code, findings)
}

/// (kind, sample, end of the file's name) of each finding.
fn told(findings: &[Json]) -> Vec<(String, Option<u64>, String)> {
    let told = findings.iter().map(|finding| {
        let file = Path::new(finding["file"].as_str().unwrap());
        (
            finding["kind"].as_str().unwrap().to_owned(),
            finding["sample"].as_u64(),
            file.file_name().unwrap().to_str().unwrap().to_owned(),
        )
    });
    told.collect()
}

fn finding(
    kind: &str,
    sample: impl Into<Option<u64>>,
    file: &str,
) -> (String, Option<u64>, String) {
    (kind.to_owned(), sample.into(), file.to_owned())
}

fn fixture(compression: Compression) -> (TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let cache = three(compression, 300 * KIB).write(&dir.path().join("cache"));
    (dir, cache)
}

#[test]
fn good_caches_of_both_compressions_pass() {
    for compression in [Compression::None, Compression::Lz4] {
        let (_dir, cache) = fixture(compression);
        assert_eq!(verify(&cache, &[]), (Some(0), vec![]));
        assert_eq!(verify(&cache, &["--quick"]), (Some(0), vec![]));
    }
}

#[test]
fn caches_of_the_reference_pass() {
    for cache in golden() {
        assert_eq!(
            verify(&cache, &[]),
            (Some(0), vec![]),
            "{}",
            cache.display()
        );
    }
}

#[test]
fn a_changed_envelope_is_one_sample() {
    let (_dir, cache) = fixture(Compression::None);
    let at = usize::try_from(row(&cache, 1).offset).unwrap() + 8 + 12;
    edit_file(&first_shard(&cache), |bytes| bytes[at] ^= 1);
    reseal(&cache);
    let (_, findings) = verify(&cache, &[]);
    assert_eq!(told(&findings), [finding("envelope", 1, "000000.bin")]);
    assert_eq!(findings[0]["offset"], row(&cache, 1).offset + 8);
    assert_eq!(
        verify(&cache, &["--quick"]).0,
        Some(0),
        "the structure is good"
    );
}

#[test]
fn swapped_index_rows_are_two_samples() {
    let (_dir, cache) = fixture(Compression::None);
    edit_index(&cache, |rows| rows.swap(0, 2));
    reseal(&cache);
    let (_, findings) = verify(&cache, &[]);
    let expected = [
        finding("envelope", 0, "000000.bin"),
        finding("envelope", 2, "000000.bin"),
    ];
    assert_eq!(
        told(&findings),
        expected,
        "and no warning of bytes: all are used once"
    );
}

#[test]
fn a_changed_byte_is_a_checksum() {
    let (_dir, cache) = fixture(Compression::None);
    let at = usize::try_from(row(&cache, 1).offset).unwrap() + 100_000;
    edit_file(&first_shard(&cache), |bytes| bytes[at] ^= 1);
    let (_, findings) = verify(&cache, &[]);
    assert_eq!(told(&findings), [finding("checksum", None, "000000.bin")]);
    assert_eq!(verify(&cache, &["--quick"]).0, Some(0));
}

#[test]
fn a_missing_shard_is_named_and_hides_nothing_else_of_the_structure() {
    let (_dir, cache) = fixture(Compression::None);
    fs::remove_file(first_shard(&cache)).unwrap();
    for more in [&[][..], &["--quick"]] {
        let (_, findings) = verify(&cache, more);
        assert_eq!(told(&findings), [finding("io", None, "000000.bin")]);
    }

    let dir = tempfile::tempdir().unwrap();
    let mut tiny = Tiny::new(Compression::None);
    for n in 0..4 {
        tiny.push(&payload(1000, n), "x");
        tiny.next_shard();
    }
    let cache = tiny.write(dir.path());
    fs::remove_file(cache.join("shards/000000.bin")).unwrap();
    edit_file(&cache.join("shards/000001.bin"), |bytes| bytes.truncate(9));
    edit_file(&cache.join("shards/000003.bin"), |bytes| bytes[500] ^= 1);
    edit_index(&cache, |rows| {
        rows[2].offset = 1;
        rows[3].shard = 99;
    });
    fs::write(cache.join("metadata.arrow"), "no table").unwrap();
    let structure = [
        finding("io", None, "000000.bin"),
        finding("length", None, "000001.bin"),
        finding("index_row", 2, "index.bin"),
        finding("index_row", 3, "index.bin"),
        finding("table", None, "metadata.arrow"),
    ];
    assert_eq!(told(&verify(&cache, &["--quick"]).1), structure);
    let (_, findings) = verify(&cache, &[]);
    let sums = [
        finding("checksum", None, "index.bin"),
        finding("checksum", None, "metadata.arrow"),
        finding("checksum", None, "000003.bin"),
    ];
    assert_eq!(told(&findings), [&structure[..], &sums].concat());
    assert!(findings.iter().all(|finding| finding["cache_id"].is_u64()));
    let run = tool(&["verify", cache.to_str().unwrap()]);
    assert!(run.text().contains("refused as a whole"), "{}", run.text());
}

#[test]
fn a_missing_index_row_is_a_row_count() {
    let (_dir, cache) = fixture(Compression::None);
    edit_index(&cache, |rows| rows.truncate(2));
    edit_manifest(&cache, |manifest| manifest["sample_count"] = 2.into());
    reseal(&cache);
    let (_, findings) = verify(&cache, &[]);
    assert!(told(&findings).contains(&finding("row_count", None, "metadata.arrow")));
}

#[test]
fn unused_bytes_are_a_warning_the_same_each_time() {
    let (_dir, cache) = fixture(Compression::None);
    let end = fs::metadata(first_shard(&cache)).unwrap().len();
    edit_file(&first_shard(&cache), |bytes| bytes.extend([0; 100]));
    reseal(&cache);
    for more in [&[][..], &["--quick"], &["--jobs", "7"]] {
        let (code, findings) = verify(&cache, more);
        assert_eq!(code, Some(0));
        assert_eq!(
            told(&findings),
            [finding("unused_bytes", None, "000000.bin")]
        );
        assert_eq!(findings[0]["offset"], end);
        assert_eq!(findings[0]["found"], "100 bytes unused at the end");
    }
}

#[test]
fn gaps_overlaps_and_strangers_are_warnings_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut tiny = Tiny::new(Compression::None);
    for n in 0..6 {
        tiny.push(&payload(50, n), "x");
    }
    tiny.next_shard();
    // Sample 3 leaves its record, which is a gap then; sample 1 lies where sample 0 does, with the
    // metadata of sample 0.
    let cache = tiny.write(&dir.path().join("cache"));
    let (gap, length) = (row(&cache, 3).offset, row(&cache, 3).length);
    edit_index(&cache, |rows| {
        rows[1] = rows[0];
        rows[3] = rows[4];
        rows.reverse();
    });
    fs::write(cache.join("shards/leftover.tmp"), "x").unwrap();
    reseal(&cache);
    let (_, findings) = verify(&cache, &["--quick"]);
    let expected = [
        finding("overlap", None, "000000.bin"),
        finding("unused_bytes", None, "000000.bin"),
        finding("unreferenced_shard", None, "000001.bin"),
        finding("unlisted_file", None, "leftover.tmp"),
    ];
    assert_eq!(told(&findings), expected);
    assert!(
        findings[0]["found"]
            .as_str()
            .unwrap()
            .starts_with("2 that start inside another")
    );
    assert_eq!(
        findings[1]["found"],
        format!("{} bytes unused in 2 gaps", 2 * length)
    );
    assert_eq!(
        findings[1]["offset"],
        gap - 2 * length,
        "sample 1's record is the first gap"
    );
}

#[test]
fn every_damaged_sample_is_listed_in_order_whatever_the_threads() {
    for compression in [Compression::None, Compression::Lz4] {
        let dir = tempfile::tempdir().unwrap();
        let mut tiny = Tiny::new(compression);
        for n in 0..9000_u32 {
            if n % 1000 == 0 && n > 0 {
                tiny.next_shard();
            }
            tiny.push(format!("payload {n}").repeat(3).as_bytes(), "some label");
        }
        let cache = tiny.write(&dir.path().join("cache"));
        let damaged: Vec<u64> = (0..9000).filter(|n| n % 7 == 0).collect();
        for &sample in &damaged {
            let row = tiny.index[usize::try_from(sample).unwrap()];
            let shard = cache.join(format!("shards/{:06}.bin", row.shard));
            let shard = fs::File::options().write(true).open(shard).unwrap();
            shard.write_all_at(b"#", row.offset + 12).unwrap();
        }
        let first = verify(&cache, &["--jobs", "1"]).1;
        let samples: Vec<u64> = first.iter().filter_map(|f| f["sample"].as_u64()).collect();
        assert_eq!(samples, damaged);
        let checksums = first.iter().filter(|f| f["kind"] == "checksum").count();
        assert_eq!(checksums, 9, "and each shard once");
        for jobs in ["2", "3", "16"] {
            assert!(verify(&cache, &["--jobs", jobs]).1 == first, "{jobs} jobs");
        }
    }
}

#[test]
fn an_index_that_jumps_between_shards_is_checked_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut tiny = Tiny::new(Compression::Lz4);
    for n in 0..6000_u32 {
        if n == 3000 {
            tiny.next_shard();
        }
        tiny.push(&n.to_le_bytes(), "x");
    }
    let cache = tiny.write(&dir.path().join("cache"));
    // Every second sample comes from the other shard: its metadata is another one's.
    edit_index(&cache, |rows| {
        for n in (0..3000).step_by(2) {
            rows.swap(n, n + 3000);
        }
    });
    reseal(&cache);
    let (_, findings) = verify(&cache, &[]);
    assert_eq!(findings.len(), 3000);
    assert!(told(&findings).iter().all(|(kind, ..)| kind == "envelope"));
    assert_eq!(
        verify(&cache, &["--quick"]),
        (Some(0), vec![]),
        "every byte is used once"
    );
}

#[test]
fn a_wrong_sum_of_decoded_lengths_is_the_shards() {
    for compression in [Compression::None, Compression::Lz4] {
        let (_dir, cache) = fixture(compression);
        edit_manifest(&cache, |manifest| {
            let len = &mut manifest["shards"][0]["uncompressed_byte_len"];
            *len = (len.as_u64().unwrap() + 1).into();
        });
        let (_, findings) = verify(&cache, &[]);
        assert_eq!(
            told(&findings),
            [finding("decoded_sum", None, "000000.bin")]
        );
    }
}

#[test]
fn a_payload_that_does_not_decode_is_its_sample_alone() {
    let (_dir, cache) = fixture(Compression::Lz4);
    let end = usize::try_from(row(&cache, 1).offset + row(&cache, 1).length).unwrap();
    // The literals of the last sequence are said to go on beyond the block.
    edit_file(&first_shard(&cache), |bytes| {
        bytes[end - 300 * KIB..end - 299 * KIB].fill(0xFF);
        bytes[end - 300 * KIB - 30..end - 300 * KIB].fill(0xFF);
    });
    reseal(&cache);
    let (_, findings) = verify(&cache, &[]);
    assert_eq!(told(&findings), [finding("payload", 1, "000000.bin")]);
    let run = tool(&["cat", cache.to_str().unwrap(), "1"]);
    assert_eq!((run.code, run.out.len()), (Some(1), 0));
}

#[test]
fn several_caches_each_have_their_findings_and_a_refused_one_stops_none() {
    let dir = tempfile::tempdir().unwrap();
    for (name, compression) in [
        ("a", Compression::None),
        ("b", Compression::Lz4),
        ("c", Compression::None),
    ] {
        let mut tiny = three(compression, 1000);
        tiny.name = name.to_owned();
        tiny.write(&dir.path().join(name));
    }
    fs::write(dir.path().join("a/manifest.json"), "{}").unwrap();
    edit_file(&dir.path().join("c/shards/000000.bin"), |bytes| {
        bytes[700] ^= 1
    });
    let (_, findings) = verify(dir.path(), &[]);
    assert_eq!(
        told(&findings),
        [
            finding("manifest", None, "manifest.json"),
            finding("checksum", None, "000000.bin")
        ]
    );
    assert!(findings[1]["cache"].as_str().unwrap().ends_with("/c"));

    let run = tool(&["verify", dir.path().to_str().unwrap()]);
    let lines: Vec<&str> = run.text().lines().collect();
    assert_eq!(lines.len(), 5, "{}", run.text());
    assert!(lines[0].starts_with("damage: ") && lines[0].contains("/a: manifest.json"));
    assert!(lines[1].contains("/a: DAMAGED: 1 finding"));
    assert!(lines[2].contains("/b: good"));
    assert!(lines[4].contains("/c: DAMAGED: 1 finding"));
}

#[test]
fn equal_ids_are_damage_of_the_list_and_both_caches_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        three(Compression::None, 100).write(&dir.path().join(name));
    }
    edit_file(&dir.path().join("b/shards/000000.bin"), |bytes| {
        bytes[20] ^= 1
    });
    let (_, findings) = verify(dir.path(), &[]);
    let kinds: Vec<String> = told(&findings).into_iter().map(|(kind, ..)| kind).collect();
    assert_eq!(kinds, ["duplicate_id", "checksum", "envelope"]);
}

#[test]
fn wrong_usage_is_2_and_a_path_that_is_no_cache_is_1() {
    assert_eq!(tool(&["verify"]).code, Some(2));
    assert_eq!(tool(&["verify", "--jobs", "0", "/x"]).code, Some(2));
    assert_eq!(tool(&["verify", "--nonsense", "/x"]).code, Some(2));
    let run = tool(&["verify", "/nowhere/at all"]);
    assert_eq!(run.code, Some(1));
    assert!(run.err.contains("/nowhere/at all"), "{}", run.err);
}

/// C30: a length that an lz4 payload states is believed only within bounds.
#[test]
fn stated_lengths_of_lz4_payloads_cost_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut tiny = Tiny::new(Compression::Lz4);
    tiny.push(b"good", "x");
    let mut random = vec![0xFF, 0xFF, 0xFF, 0x7F];
    random.extend(payload(KIB, 9));
    let bad: [&[u8]; 6] = [
        &[0xFF, 0xFF, 0xFF, 0xFF, 0x10, 0x41],
        &random,
        &[],
        &[0],
        &[0; 3],
        &[0; 4],
    ];
    for stored in bad {
        let n = tiny.index.len();
        let json = format!(r#"{{"label":"x","n":{n}}}"#);
        let mut record = (json.len() as u64).to_le_bytes().to_vec();
        record.extend_from_slice(json.as_bytes());
        record.extend_from_slice(stored);
        let row = vec![
            Value::String("x".to_owned()),
            Value::Int(i64::try_from(n).unwrap()),
        ];
        tiny.push_record(&record, 0, row);
    }
    tiny.push(&vec![0; 64 << 20], "x");
    tiny.push(b"", "x");
    let cache = tiny.write(&dir.path().join("cache"));
    let run = tool_within(2 << 20, &["verify", "--json", cache.to_str().unwrap()]);
    assert_eq!(run.code, Some(1), "{}", run.err);
    let report = run.json();
    let expected: Vec<_> = (1..=6)
        .map(|n| finding("payload", n, "000000.bin"))
        .collect();
    assert_eq!(told(report["findings"].as_array().unwrap()), expected);
}

/// C33: lengths inside metadata.arrow are believed only within bounds.
#[test]
fn lengths_inside_the_table_cost_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let good = fs::read(
        three(Compression::None, 10)
            .write(dir.path())
            .join("metadata.arrow"),
    )
    .unwrap();
    let len = good.len();
    let footer_len = |value: i32| {
        let mut bytes = good.clone();
        bytes[len - 10..len - 6].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    let block = block_of(&good);
    let in_block = |at: usize, value: &[u8]| {
        let mut bytes = good.clone();
        bytes[block + at..block + at + value.len()].copy_from_slice(value);
        bytes
    };
    let mut tables = vec![
        in_block(16, &0x2_8000_0000_0240_u64.to_le_bytes()),
        in_block(8, &(-1_i32).to_le_bytes()),
        footer_len(0x7FFF_FFFF),
        footer_len(-1),
    ];
    tables.extend([0, 5, 8, 12].map(|cut| good[..cut].to_vec()));
    for (n, table) in tables.iter().enumerate() {
        fs::write(dir.path().join("metadata.arrow"), table).unwrap();
        reseal(dir.path());
        let run = tool_within(2 << 20, &["verify", "--json", dir.path().to_str().unwrap()]);
        assert_eq!(run.code, Some(1), "table {n}: {}", run.err);
        let report = run.json();
        let told = told(report["findings"].as_array().unwrap());
        assert!(
            told.contains(&finding("table", None, "metadata.arrow")),
            "table {n}: {told:?}"
        );
    }
}

/// Where the footer's first (and only) record batch block lies: offset i64, metadata length i32,
/// padding, body length i64. The message itself starts with 0xFFFFFFFF and its length.
fn block_of(table: &[u8]) -> usize {
    let footer_end = table.len() - 10;
    let footer_len = table[footer_end..].first_chunk::<4>().unwrap();
    let footer_len = usize::try_from(i32::from_le_bytes(*footer_len)).unwrap();
    let fits = |at: &usize| {
        let field = |from: usize| u64::from_le_bytes(*table[at + from..].first_chunk().unwrap());
        let (offset, metadata, body) = (field(0), field(8) & 0xFFFF_FFFF, field(16));
        offset > 8
            && offset % 8 == 0
            && metadata > 8
            && body > 0
            && (offset + metadata + body) <= (footer_end - footer_len) as u64
            && table[usize::try_from(offset).unwrap()..].starts_with(&[0xFF; 4])
    };
    let candidates = footer_end - footer_len..footer_end - 24;
    candidates
        .step_by(4)
        .find(fits)
        .expect("a block in the footer")
}

/// C42: rows that point outside their shard, with the row's number.
#[test]
fn index_rows_outside_their_shard_are_named() {
    let (_dir, cache) = fixture(Compression::None);
    let good = row(&cache, 1);
    let len = fs::metadata(first_shard(&cache)).unwrap().len();
    let bad = [
        (0, u64::MAX - 7, 16),
        (0, len - 4, 8),
        (4_294_967_296, 0, good.length),
        (1, 0, good.length),
        (0, good.offset, 0),
        (0, good.offset, 7),
        (0, good.offset, 1 << 63),
    ];
    for (shard, offset, length) in bad {
        let bad = IndexRow {
            shard,
            offset,
            length,
        };
        edit_index(&cache, |rows| rows[1] = bad);
        reseal(&cache);
        let run = tool_within(2 << 20, &["verify", "--json", cache.to_str().unwrap()]);
        let report = run.json();
        let findings = report["findings"].as_array().unwrap();
        assert!(
            told(findings).contains(&finding("index_row", 1, "index.bin")),
            "{bad:?}"
        );
        assert_eq!(findings[0]["offset"], 24);
        assert_eq!(run.code, Some(1));
    }
}

#[test]
fn impossible_lengths_and_counts_are_refused() {
    let (_dir, cache) = fixture(Compression::None);
    let record = row(&cache, 1);
    let shard = fs::read(first_shard(&cache)).unwrap();
    for len in [u64::MAX, record.length - 7] {
        edit_file(&first_shard(&cache), |bytes| {
            let at = usize::try_from(record.offset).unwrap();
            bytes[at..at + 8].copy_from_slice(&len.to_le_bytes());
        });
        reseal(&cache);
        let found = told(&verify(&cache, &[]).1);
        assert_eq!(found, [finding("record_header", 1, "000000.bin")], "{len}");
    }
    fs::write(first_shard(&cache), shard).unwrap();
    reseal(&cache);
    edit_file(&cache.join("index.bin"), |bytes| bytes.truncate(25));
    reseal(&cache);
    assert!(told(&verify(&cache, &[]).1).contains(&finding("row_count", None, "index.bin")));
    edit_manifest(&cache, |manifest| {
        manifest["sample_count"] = (1_u64 << 63).into()
    });
    assert!(told(&verify(&cache, &[]).1).contains(&finding("row_count", None, "index.bin")));
}

/// C42: offsets are 64 bits wide.
#[test]
fn a_record_beyond_4_gib_is_read_right() {
    let dir = tempfile::tempdir().unwrap();
    let mut tiny = Tiny::new(Compression::None);
    tiny.push(b"at the start", "x");
    tiny.push(b"far away", "y");
    let cache = tiny.write(&dir.path().join("cache"));
    let (first, second) = (row(&cache, 0), row(&cache, 1));
    let bytes = fs::read(first_shard(&cache)).unwrap();
    let far = (4_u64 << 30) + 17;
    let shard = fs::File::options()
        .write(true)
        .open(first_shard(&cache))
        .unwrap();
    shard.set_len(5 << 30).unwrap();
    let record = &bytes[usize::try_from(second.offset).unwrap()..];
    shard
        .write_all_at(&vec![0; record.len()], second.offset)
        .unwrap();
    shard.write_all_at(record, far).unwrap();
    edit_index(&cache, |rows| rows[1].offset = far);
    edit_manifest(&cache, |manifest| {
        manifest["shards"][0]["byte_len"] = (5_u64 << 30).into()
    });

    let run = tool(&["cat", cache.to_str().unwrap(), "1"]);
    assert_eq!((run.code, run.out.as_slice()), (Some(0), &b"far away"[..]));
    let (code, findings) = verify(&cache, &["--quick"]);
    assert_eq!(code, Some(0));
    assert_eq!(findings[0]["offset"], first.length);
    assert_eq!(findings[1]["offset"], far + second.length);
}

#[test]
fn a_reader_that_goes_away_does_not_change_the_verdict() {
    let (_dir, cache) = fixture(Compression::None);
    let run = |cache: &Path| {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_datasetrt"))
            .args(["verify", cache.to_str().unwrap()])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        child.wait().unwrap().code()
    };
    assert_eq!(run(&cache), Some(0));
    edit_file(&first_shard(&cache), |bytes| bytes[9] ^= 1);
    assert_eq!(run(&cache), Some(1));
}

#[test]
fn files_of_a_terabyte_are_refused_by_their_length() {
    for (file, kind) in [
        ("index.bin", "row_count"),
        ("metadata.arrow", "length"),
        ("shards/000000.bin", "length"),
    ] {
        let (_dir, cache) = fixture(Compression::None);
        let long = fs::OpenOptions::new().write(true).open(cache.join(file));
        long.unwrap().set_len(1 << 40).unwrap();
        let run = tool(&["verify", "--json", cache.to_str().unwrap()]);
        let report = run.json();
        let name = file.rsplit('/').next().unwrap();
        let findings = report["findings"].as_array().unwrap();
        assert_eq!(told(findings), [finding(kind, None, name)]);
        let hashed = report["caches"][0]["bytes"].as_u64().unwrap();
        assert!(hashed < 1 << 20, "{hashed} bytes of {file} were hashed");
    }
}

#[test]
fn an_index_of_a_terabyte_is_given_up_at_its_first_bad_rows() {
    let (_dir, cache) = fixture(Compression::None);
    let rows = (1_u64 << 40) / 24;
    let index = fs::OpenOptions::new()
        .write(true)
        .open(cache.join("index.bin"));
    index.unwrap().set_len(rows * 24).unwrap();
    let text = fs::read_to_string(cache.join("manifest.json")).unwrap();
    let mut manifest: Json = serde_json::from_str(&text).unwrap();
    manifest["sample_count"] = rows.into();
    fs::write(cache.join("manifest.json"), manifest.to_string()).unwrap();
    let (_, findings) = verify(&cache, &["--quick"]);
    let bad = findings.iter().filter(|found| found["kind"] == "index_row");
    let bad: Vec<&Json> = bad.collect();
    assert_eq!(bad.len(), 1001);
    assert_eq!(bad[0]["sample"], 3);
    assert_eq!(bad[1000]["sample"], Json::Null);
}
