//! `datasetrt info`, `cat` and `ls`.

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
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bytes::Bytes;
use datasetrt::format::manifest::FormatVersion;
use datasetrt::format::metadata::{Field, FieldKind, Table, Value, ValueRef};
use datasetrt::format::record::Compression;
use tempfile::TempDir;
use tiny::*;

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

/// Samples with all kinds of fields, odd texts and floats that are not finite among them.
fn all_kinds(dir: &Path) -> PathBuf {
    let mut tiny = Tiny::with_schema(
        Compression::Lz4,
        &[
            ("good", FieldKind::Bool),
            ("label", FieldKind::String),
            ("n", FieldKind::Int),
            ("score", FieldKind::Float),
        ],
    );
    let rows = [
        (true, "cat", 5, 0.5, 0),
        (false, "<b>&\"dog\"", -7, 1.5, 1),
        (true, "cat", i64::MAX, f64::NAN, 100),
        (true, "two\nlines", i64::MIN, f64::INFINITY, 5000),
    ];
    for (good, label, n, score, len) in rows {
        let row = vec![
            Value::Bool(good),
            text(label),
            Value::Int(n),
            Value::Float(score),
        ];
        tiny.push_row(&payload(len, 1), row);
    }
    tiny.write(&dir.join("kinds"))
}

fn three_with_a_damaged_one(compression: Compression) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let cache = three(compression, 5000).write(&dir.path().join("cache"));
    let at = usize::try_from(row(&cache, 1).offset).unwrap() + 8 + 12;
    edit_file(&first_shard(&cache), |bytes| bytes[at] ^= 1);
    reseal(&cache);
    (dir, cache)
}

fn arguments<'a>(command: &'a str, cache: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec![command, cache.to_str().unwrap()];
    arguments.extend(more);
    arguments
}

#[test]
fn cat_gives_the_payload_and_nothing_else() {
    for compression in [Compression::None, Compression::Lz4] {
        let dir = tempfile::tempdir().unwrap();
        let mut tiny = Tiny::new(compression);
        let payloads = [
            payload(3 << 20, 1),
            Vec::new(),
            payload(20_000, 2),
            vec![7; 1 << 20],
        ];
        for payload in &payloads {
            tiny.push(payload, "x");
        }
        let cache = tiny.write(&dir.path().join("cache"));
        for (n, payload) in payloads.iter().enumerate() {
            let run = tool(&arguments("cat", &cache, &[&n.to_string()]));
            assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
            assert!(run.out == *payload, "sample {n}");
        }
    }
}

#[test]
fn cat_of_a_damaged_sample_gives_no_byte() {
    for compression in [Compression::None, Compression::Lz4] {
        let (_dir, cache) = three_with_a_damaged_one(compression);
        for more in [&["1"][..], &["1", "--metadata"]] {
            for _ in 0..2 {
                let run = tool(&arguments("cat", &cache, more));
                assert_eq!((run.code, run.out.len()), (Some(1), 0));
                assert!(run.err.contains("sample 1"), "{}", run.err);
            }
        }
        for good in ["0", "2"] {
            let run = tool(&arguments("cat", &cache, &[good]));
            assert_eq!((run.code, run.out.len()), (Some(0), 5000));
        }
    }
}

#[test]
fn cat_refuses_what_is_no_sample() {
    let (_dir, cache) = three_with_a_damaged_one(Compression::None);
    assert_eq!(tool(&arguments("cat", &cache, &["3"])).code, Some(1));
    for wrong in ["-1", "x", "1.0", ""] {
        assert_eq!(
            tool(&arguments("cat", &cache, &[wrong])).code,
            Some(2),
            "{wrong}"
        );
    }
    let nowhere = tool(&["cat", "/nowhere", "0"]);
    assert_eq!((nowhere.code, nowhere.out.len()), (Some(1), 0));
}

#[test]
fn cat_to_a_reader_that_goes_away_is_success() {
    let dir = tempfile::tempdir().unwrap();
    let mut tiny = Tiny::new(Compression::None);
    tiny.push(&payload(4 << 20, 1), "x");
    let cache = tiny.write(&dir.path().join("cache"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_datasetrt"))
        .args(arguments("cat", &cache, &["0"]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

#[test]
fn cat_of_metadata_is_the_usual_spelling() {
    let dir = tempfile::tempdir().unwrap();
    let cache = all_kinds(dir.path());
    let line = |sample| {
        let run = tool(&arguments("cat", &cache, &[sample, "--metadata"]));
        assert_eq!(run.code, Some(0), "{}", run.err);
        run.text().to_owned()
    };
    assert_eq!(
        line("0"),
        "{\"good\":true,\"label\":\"cat\",\"n\":5,\"score\":0.5}\n"
    );
    let expected = format!(
        "{{\"good\":true,\"label\":\"two\\nlines\",\"n\":{},\"score\":null}}\n",
        i64::MIN
    );
    assert_eq!(line("3"), expected);
}

#[test]
fn ls_is_an_aligned_table() {
    let dir = tempfile::tempdir().unwrap();
    let run = tool(&arguments("ls", &all_kinds(dir.path()), &[]));
    let expected = "\
sample_id  size  good   label                          n  score
        0     0  true   cat                            5    0.5
        1     1  false  <b>&\"dog\"                     -7    1.5
        2   100  true   cat          9223372036854775807    NaN
        3  5000  true   two\\nlines  -9223372036854775808    inf
";
    assert_eq!(run.text(), expected);
    assert_eq!(run.code, Some(0));
    let head = tool(&arguments(
        "ls",
        &dir.path().join("kinds"),
        &["--head", "1"],
    ));
    assert_eq!(head.text().lines().count(), 2);
}

#[test]
fn ls_as_json_has_a_line_for_each_sample_and_shows_damage() {
    let (_dir, cache) = three_with_a_damaged_one(Compression::Lz4);
    let run = tool(&arguments("ls", &cache, &["--json"]));
    assert_eq!(run.code, Some(1));
    let lines: Vec<serde_json::Value> = run
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[2]["sample_id"], 2);
    assert_eq!(lines[2]["size"], 5000);
    assert_eq!(lines[2]["metadata"]["label"], "label 2");
    assert!(lines[1]["damaged"].as_str().unwrap().contains("sample 1"));
    assert!(lines[1].get("size").is_none());

    let table = tool(&arguments("ls", &cache, &[]));
    assert_eq!(table.code, Some(1));
    let line = table.text().lines().nth(2).unwrap();
    assert!(line.trim_start().starts_with("1  DAMAGED  "), "{line}");
}

#[test]
fn ls_as_arrow_can_be_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let cache = all_kinds(dir.path());
    let file = dir.path().join("list.arrow");
    let run = tool(&arguments(
        "ls",
        &cache,
        &["--arrow", file.to_str().unwrap()],
    ));
    assert_eq!((run.code, run.out.len()), (Some(0), 0), "{}", run.err);
    let to_stdout = tool(&arguments("ls", &cache, &["--arrow", "-"]));
    assert_eq!(fs::read(&file).unwrap(), to_stdout.out);

    let field = |name: &str, kind| Field {
        name: name.to_owned(),
        kind,
    };
    let schema = [
        field("sample_id", FieldKind::Int),
        field("size", FieldKind::Int),
        field("good", FieldKind::Bool),
        field("label", FieldKind::String),
    ];
    let table = Table::open(Bytes::from(to_stdout.out), &schema).unwrap();
    assert_eq!(table.rows(), Some(4));
    let row = table.row(3).unwrap();
    let values: Vec<_> = (0..4).map(|n| row.value(n).unwrap().unwrap()).collect();
    let expected = [
        ValueRef::Int(3),
        ValueRef::Int(5000),
        ValueRef::Bool(true),
        ValueRef::String("two\nlines"),
    ];
    assert_eq!(values, expected);
}

#[test]
fn ls_as_arrow_leaves_out_damaged_samples_and_says_so() {
    let (_dir, cache) = three_with_a_damaged_one(Compression::None);
    let run = tool(&arguments("ls", &cache, &["--arrow", "-"]));
    assert_eq!(run.code, Some(1));
    assert!(run.err.contains("sample 1"), "{}", run.err);
    let schema = [Field {
        name: "sample_id".to_owned(),
        kind: FieldKind::Int,
    }];
    let table = Table::open(Bytes::from(run.out), &schema).unwrap();
    let ids: Vec<_> = (0..2)
        .map(|n| table.row(n).unwrap().value(0).unwrap())
        .collect();
    assert_eq!(ids, [Some(ValueRef::Int(0)), Some(ValueRef::Int(2))]);
    assert_eq!(table.rows(), Some(2));
}

#[test]
fn info_tells_sizes_and_values() {
    let dir = tempfile::tempdir().unwrap();
    let cache = all_kinds(dir.path());
    let run = tool(&arguments("info", &cache, &["--json"]));
    assert_eq!(run.code, Some(0), "{}", run.err);
    let info = &run.json()["caches"][0];
    assert_eq!(info["cache_id_source"], "stored");
    assert_eq!(info["source_name"], "tiny");
    assert_eq!(info["samples"], 4);
    assert_eq!(info["decoded_bytes"], 5101);
    assert_eq!(info["compression"], serde_json::json!(["lz4"]));
    assert_eq!(info["sizes"]["largest"], 5000);
    assert_eq!(info["sizes"]["mean"], 5101.0 / 4.0);
    let bins: Vec<_> = info["sizes"]["histogram"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bin| {
            (
                bin["from"].as_u64().unwrap(),
                bin["count"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(bins, [(0, 1), (1, 1), (64, 1), (4096, 1)]);
    let fields = &info["fields"];
    assert_eq!(
        fields[0]["top"][0],
        serde_json::json!({"value": "true", "count": 3})
    );
    assert_eq!(fields[1]["distinct"], 3);
    assert_eq!(
        fields[1]["top"][0],
        serde_json::json!({"value": "cat", "count": 2})
    );
    assert_eq!(
        (&fields[2]["min"], &fields[2]["max"]),
        (&i64::MIN.into(), &i64::MAX.into())
    );
    assert_eq!(
        (&fields[3]["min"], &fields[3]["max"]),
        (&0.5.into(), &1.5.into())
    );
    assert_eq!(fields[3]["mean"], 1.0);
    assert_eq!(
        (&fields[3]["nan"], &fields[3]["infinite"]),
        (&1.into(), &1.into())
    );

    let run = tool(&arguments("info", &cache, &[]));
    for part in [
        "4742122821122130104",
        "4 to 8 KiB",
        "3 distinct: cat 2, ",
        "two\\nlines 1",
        "min 0.5, mean 1, max 1.5; 1 NaN; 1 infinite",
        "true 3, false 1",
    ] {
        let part = part.replace(
            "4742122821122130104",
            &datasetrt::format::digest::cache_id_of("tiny").to_string(),
        );
        assert!(run.text().contains(&part), "{part} in\n{}", run.text());
    }
}

#[test]
fn info_says_how_an_id_came_about() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        let mut tiny = three(Compression::None, 100);
        tiny.version = FormatVersion::V2;
        tiny.write(&dir.path().join(name));
    }
    let run = tool(&["info", "--quick", "--json", dir.path().to_str().unwrap()]);
    let caches = &run.json()["caches"];
    assert_eq!(caches[1]["cache_id"], 1);
    assert_eq!(caches[1]["cache_id_source"], "position");
    assert_eq!(caches[1]["format_version"], 2);
    assert!(caches[1].get("sizes").is_none(), "quick");
    let run = tool(&["info", "--quick", dir.path().to_str().unwrap()]);
    assert!(
        run.text().contains("1 (its position in this list)"),
        "{}",
        run.text()
    );
}

/// Counts the objects of `json` with a number `cache_id`. Each has the same as a string beside it.
fn ids_with_strings(json: &serde_json::Value) -> usize {
    let parts: Vec<_> = match json {
        serde_json::Value::Array(items) => items.iter().collect(),
        serde_json::Value::Object(members) => members.values().collect(),
        _ => Vec::new(),
    };
    let inside: usize = parts.into_iter().map(ids_with_strings).sum();
    let Some(id) = json["cache_id"].as_u64() else {
        return inside;
    };
    assert!(id > 1 << 53, "{json}");
    assert_eq!(json["id"], id.to_string(), "{json}");
    inside + 1
}

#[test]
fn each_id_in_json_has_the_same_as_a_string_beside_it() {
    let (dir, cache) = three_with_a_damaged_one(Compression::None);
    let cache = cache.to_str().unwrap();
    let files = dir.path().join("files");
    fs::create_dir(&files).unwrap();
    fs::write(files.join("a.txt"), "a").unwrap();
    let (files, packed) = (files.to_str().unwrap(), dir.path().join("packed"));
    let packed = packed.to_str().unwrap();
    let commands: [(&[&str], usize); 6] = [
        (&["info", "--json", cache], 1),
        (&["info", "--json", "--quick", cache], 1),
        (&["migrate", "--json", "--to", "3", cache], 1),
        (&["pack", "--json", "--name", "ids", files, packed], 1),
        // A finding or more, and the summary.
        (&["verify", "--json", cache], 2),
        (&["verify", "--json", "--quick", cache], 1),
    ];
    for (command, least) in commands {
        let found = ids_with_strings(&tool(command).json());
        assert!(found >= least, "{command:?}: {found}");
    }
}

#[test]
fn info_shows_the_good_caches_beside_a_refused_one() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        let mut tiny = three(Compression::None, 100);
        tiny.name = name.to_owned();
        tiny.write(&dir.path().join(name));
    }
    fs::remove_file(dir.path().join("a/index.bin")).unwrap();
    let run = tool(&["info", "--json", dir.path().to_str().unwrap()]);
    assert_eq!(run.code, Some(1));
    assert!(run.err.contains("a/index.bin"), "{}", run.err);
    let report = run.json();
    assert_eq!(report["caches"].as_array().unwrap().len(), 1);
    assert_eq!(report["caches"][0]["source_name"], "b");
}

#[test]
fn info_counts_values_the_same_on_many_samples() {
    let dir = tempfile::tempdir().unwrap();
    let mut tiny = Tiny::new(Compression::None);
    for n in 0..70_000_u32 {
        tiny.push(b"", &format!("label {}", n % 7));
    }
    let cache = tiny.write(&dir.path().join("cache"));
    let run = tool(&arguments("info", &cache, &["--json"]));
    let info = run.json();
    let fields = &info["caches"][0]["fields"];
    assert_eq!(fields[0]["distinct"], 7);
    let top: Vec<_> = fields[0]["top"].as_array().unwrap().iter().collect();
    assert!(top.iter().all(|top| top["count"] == 10_000));
    assert_eq!(
        top[0]["value"], "label 0",
        "equally frequent values come in order"
    );
    assert_eq!(
        fields[1]["distinct"],
        serde_json::Value::Null,
        "too many to count"
    );
    assert_eq!(fields[1]["mean"], 34999.5);
    assert!(fields[1].get("top").is_none());
}

#[test]
fn the_plot_is_well_formed_and_escapes_texts() {
    let dir = tempfile::tempdir().unwrap();
    let cache = all_kinds(dir.path());
    let plot = dir.path().join("plot.svg");
    let run = tool(&arguments(
        "info",
        &cache,
        &["--plot", plot.to_str().unwrap()],
    ));
    assert_eq!(run.code, Some(0), "{}", run.err);
    let svg = fs::read_to_string(&plot).unwrap();
    assert!(svg.contains("&lt;b&gt;&amp;&quot;dog&quot;"), "{svg}");
    assert!(svg.contains("<title>cat: 2 samples (50.0 %)</title>"));
    assert!(svg.contains("<title>4 to 8 KiB: 1 sample</title>"));
    assert!(
        !svg.contains("href") && !svg.contains("<script"),
        "nothing from outside"
    );
    assert_well_formed(&svg);
    let quick = tool(&arguments("info", &cache, &["--quick", "--plot", "x.svg"]));
    assert_eq!(quick.code, Some(2));
}

/// Every element is closed in order and no text has a bare `&`.
fn assert_well_formed(xml: &str) {
    let mut open = Vec::new();
    let mut rest = xml.split_once("?>").expect("a declaration").1;
    while let Some((text, after)) = rest.split_once('<') {
        assert!(!text.contains('>'), "{text}");
        for entity in text.split('&').skip(1) {
            let name = entity.split(';').next().unwrap();
            assert!(
                ["amp", "lt", "gt", "quot", "#39"].contains(&name),
                "{entity}"
            );
        }
        let (tag, after) = after.split_once('>').expect("a closed tag");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split_whitespace().next().unwrap()),
        }
        rest = after;
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn caches_of_the_reference_are_shown_and_listed() {
    for cache in golden() {
        let info = tool(&arguments("info", &cache, &["--json"]));
        assert_eq!(info.code, Some(0), "{}", info.err);
        let info = info.json();
        let samples = info["caches"][0]["samples"].as_u64().unwrap();
        let list = tool(&arguments("ls", &cache, &["--json"]));
        assert_eq!(list.code, Some(0), "{}", list.err);
        assert_eq!(list.text().lines().count() as u64, samples);
    }
}

#[test]
fn what_cannot_be_printed_is_no_panic() {
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("missing");
    let missing = missing.to_str().unwrap();
    let made = folder.path().join("made");
    let made = made.to_str().unwrap();
    // With what they give where their messages are heard.
    let commands: [(&[&str], i32); 8] = [
        (&["demo", made], 1),
        (&["demo", "/proc/no/such/place"], 1),
        (&["umount", folder.path().to_str().unwrap()], 1),
        (&["pack", "--name", "x", missing], 2),
        (&["pack", "--name", "x", missing, made], 1),
        (&["info", missing], 1),
        (&["verify", missing], 1),
        (&["doctor", missing], 1),
    ];
    let full = || {
        fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    for (words, expected) in commands {
        let _ = fs::remove_dir_all(made);
        let mut command = Command::new(env!("CARGO_BIN_EXE_datasetrt"));
        let status = command.args(words).stdout(full()).stderr(full()).status();
        let code = status.unwrap().code().unwrap();
        assert_eq!(code, expected, "{words:?}");
    }
    // A reader that has seen enough is no failure.
    let _ = fs::remove_dir_all(made);
    let mut demo = Command::new(env!("CARGO_BIN_EXE_datasetrt"));
    let mut demo = demo
        .args(["demo", made])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(demo.stdout.take());
    assert_eq!(demo.wait().unwrap().code(), Some(0));
    let mut mount = Command::new(env!("CARGO_BIN_EXE_datasetrt-mount"));
    let mount = mount.args([missing, missing]).stdout(full()).stderr(full());
    assert_eq!(mount.status().unwrap().code(), Some(1));
}
