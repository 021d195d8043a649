//! Folders, archives, tables: what becomes a sample, in which order.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
};
use datasetrt::format::metadata::Value;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

use super::support::{Desk, Sample, files, gzip, read, tar, tool, zst};

fn paths(samples: &[Sample]) -> Vec<&str> {
    samples.iter().map(|sample| sample.text("path")).collect()
}

/// The four files of a source with a dotted folder, a double extension and an empty file.
fn four(desk: &Desk) {
    desk.file("in/a.bin", "aaa");
    desk.file("in/sub.v1/a.bin", "other");
    desk.file("in/b.tar.gz", "no archive");
    desk.file("in/empty", "");
}

#[test]
fn a_folder_is_packed_in_the_bytewise_order_of_its_paths() {
    let desk = Desk::new();
    four(&desk);
    desk.file("in/sub/z", "under sub");
    desk.file("in/.hidden", "hidden");
    let samples = desk.packed("x", &["in"]);
    assert_eq!(
        paths(&samples),
        [
            ".hidden",
            "a.bin",
            "b.tar.gz",
            "empty",
            "sub.v1/a.bin",
            "sub/z"
        ]
    );
    assert_eq!(samples[3].payload, b"");
    assert_eq!(samples[4].payload, b"other");
    assert_eq!(
        samples[0].metadata.len(),
        1,
        "no label: the files lie at different depths"
    );
}

#[test]
fn links_to_files_are_followed_and_everything_else_is_named() {
    let desk = Desk::new();
    desk.file("in/a", "aaa");
    symlink("a", desk.path("in/link")).unwrap();
    symlink(".", desk.path("in/loop")).unwrap();
    let run = desk.pack("x", &["in"]);
    assert_eq!(run.code(), 0);
    assert!(
        run.err().contains("a symbolic link to a folder"),
        "{}",
        run.err()
    );
    assert!(run.err().contains("\"loop\""), "{}", run.err());
    let samples = read(&desk.out().join("x"));
    assert_eq!(paths(&samples), ["a", "link"]);
    assert_eq!(samples[1].payload, b"aaa");
}

#[test]
fn a_folder_and_its_archives_give_the_same_samples() {
    let desk = Desk::new();
    four(&desk);
    let members: [(&[u8], &[u8]); 4] = [
        (b"a.bin", b"aaa"),
        (b"b.tar.gz", b"no archive"),
        (b"empty", b""),
        (b"sub.v1/a.bin", b"other"),
    ];
    let below = |prefix: &str| -> Vec<(Vec<u8>, &[u8])> {
        let folders = [(format!("{prefix}/").into_bytes(), &b""[..])];
        let files = members.map(|(name, bytes)| ([prefix.as_bytes(), b"/", name].concat(), bytes));
        folders.into_iter().chain(files).collect()
    };
    let archive = |members: &[(Vec<u8>, &[u8])]| tar(members.iter().map(|(n, b)| (&n[..], *b)));
    let dot = archive(&below("."));
    desk.file("dot.tar", &dot);
    desk.file("dot.tar.gz", gzip(&dot));
    desk.file("dot.TGZ", gzip(&dot));
    desk.file("dot.tar.zst", zst(&dot));
    desk.file("named.tar", archive(&below("in")));
    let mut reverse = below(".");
    reverse.reverse();
    desk.file("reverse.tar", archive(&reverse));

    let folder = desk.packed("folder", &["in"]);
    for name in ["dot.tar", "dot.tar.gz", "dot.TGZ", "dot.tar.zst"] {
        assert_eq!(desk.packed(name, &[name]), folder, "{name}");
    }
    let payloads = |samples: &[Sample]| -> Vec<Vec<u8>> {
        samples
            .iter()
            .map(|sample| sample.payload.clone())
            .collect()
    };
    let named = desk.packed("named", &["named.tar"]);
    assert_eq!(payloads(&named), payloads(&folder));
    assert_eq!(named[3].text("path"), "in/sub.v1/a.bin");
    let mut reversed = desk.packed("reverse", &["reverse.tar"]);
    reversed.reverse();
    assert_eq!(reversed, folder);
}

#[test]
fn archives_made_by_tar_itself_are_read() {
    let desk = Desk::new();
    four(&desk);
    let long = format!("in/{}/{}", "d".repeat(90), "f".repeat(90));
    desk.file(&long, "long");
    for format in ["gnu", "pax", "ustar"] {
        let archive = format!("{format}.tar");
        let done = std::process::Command::new("tar")
            .args([
                "--sort=name",
                &format!("--format={format}"),
                "-C",
                "in",
                "-cf",
                &archive,
                ".",
            ])
            .current_dir(desk.root.path())
            .status()
            .unwrap();
        assert!(done.success());
        let samples = desk.packed(format, &[&archive]);
        assert_eq!(samples.len(), 5, "{format}");
        assert!(
            samples
                .iter()
                .any(|sample| sample.text("path") == &long[3..])
        );
    }
}

#[test]
fn several_sources_follow_one_another() {
    let desk = Desk::new();
    desk.file("in/b", "1");
    desk.file("in2/a", "2");
    desk.file("t.tar", tar([(&b"c"[..], &b"3"[..])]));
    let samples = desk.packed("x", &["in", "t.tar", "in2"]);
    assert_eq!(paths(&samples), ["b", "c", "a"]);
}

#[test]
fn webdataset_groups_become_samples() {
    let desk = Desk::new();
    let members: [(&[u8], &[u8]); 7] = [
        (b"set.v1/000.jpg", b"first"),
        (b"set.v1/000.cls", b"7\n"),
        (b"set.v1/000.json", b"{\"w\": 3, \"score\": 1}"),
        (b"set.v1/001.json", b"{\"score\": 0.5, \"w\": 4}"),
        (b"set.v1/001.JPG", b"second"),
        (b"set.v1/001.cls", b"8"),
        (b"set.v1/001.npy", b"left out"),
    ];
    desk.file("t.tar", tar(members));
    desk.file("t.tar.gz", gzip(&tar(members)));
    let args = ["--group", "webdataset", "--payload", "jpg", "t.tar"];
    let run = desk.pack("x", &args);
    assert_eq!(run.code(), 0, "{}", run.err());
    assert!(run.err().contains(".npy"), "{}", run.err());
    let samples = read(&desk.out().join("x"));
    assert_eq!(paths(&samples), ["set.v1/000.jpg", "set.v1/001.JPG"]);
    assert_eq!(samples[0].payload, b"first");
    assert_eq!(samples[0].metadata["cls"], Value::Int(7));
    assert_eq!(
        samples[0].metadata["score"],
        Value::Float(1.0),
        "a float in the other group"
    );
    assert_eq!(samples[1].metadata["w"], Value::Int(4));
    let packed = desk.packed(
        "gz",
        &["--group", "webdataset", "--payload", "jpg", "t.tar.gz"],
    );
    assert_eq!(packed, samples);
    let both = [
        "--group",
        "webdataset",
        "--payload",
        "jpg",
        "--payload",
        "npy",
        "t.tar",
    ];
    assert_eq!(desk.packed("both", &both).len(), 3);
}

/// Three rows: file, n, ok, score, text.
const ROWS: [(&str, i64, bool, f64, &str); 3] = [
    ("p/1.bin", 1, true, 0.5, "plain"),
    (
        "p/2.bin",
        -9_007_199_254_740_993,
        false,
        123456789.12345679,
        "comma, \"quote\"\nline",
    ),
    ("p/1.bin", 3, true, -0.0, ""),
];

fn parquet_rows() -> Vec<u8> {
    let schema =
        "message rows { required binary file (UTF8); required int64 n; required boolean ok;
        required double score; required binary text (UTF8); }";
    let schema = Arc::new(parquet::schema::parser::parse_message_type(schema).unwrap());
    let properties = WriterProperties::builder()
        .set_compression(parquet::basic::Compression::SNAPPY)
        .build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let texts = |pick: fn(&(&str, i64, bool, f64, &str)) -> String| -> Vec<ByteArray> {
        ROWS.iter()
            .map(|row| ByteArray::from(pick(row).into_bytes()))
            .collect()
    };
    let mut n = 0;
    while let Some(mut column) = group.next_column().unwrap() {
        match n {
            0 => column.typed::<ByteArrayType>().write_batch(
                &texts(|row| row.0.to_owned()),
                None,
                None,
            ),
            1 => column
                .typed::<Int64Type>()
                .write_batch(&ROWS.map(|row| row.1), None, None),
            2 => column
                .typed::<BoolType>()
                .write_batch(&ROWS.map(|row| row.2), None, None),
            3 => column
                .typed::<DoubleType>()
                .write_batch(&ROWS.map(|row| row.3), None, None),
            _ => column.typed::<ByteArrayType>().write_batch(
                &texts(|row| row.4.to_owned()),
                None,
                None,
            ),
        }
        .unwrap();
        column.close().unwrap();
        n += 1;
    }
    group.close().unwrap();
    writer.into_inner().unwrap()
}

fn arrow_batch() -> RecordBatch {
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "file",
            Arc::new(StringArray::from_iter_values(ROWS.map(|row| row.0))),
        ),
        (
            "n",
            Arc::new(Int64Array::from_iter_values(ROWS.map(|row| row.1))),
        ),
        (
            "ok",
            Arc::new(BooleanArray::from_iter(ROWS.map(|row| Some(row.2)))),
        ),
        (
            "score",
            Arc::new(Float64Array::from_iter_values(ROWS.map(|row| row.3))),
        ),
        (
            "text",
            Arc::new(StringArray::from_iter_values(ROWS.map(|row| row.4))),
        ),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

#[test]
fn the_same_rows_give_the_same_cache_whatever_kind_of_table_has_them() {
    let desk = Desk::new();
    desk.file("in/p/1.bin", "one");
    desk.file("in/p/2.bin", "two");
    let jsonl = ROWS.map(|(file, n, ok, score, text)| {
        let text = serde_json::to_string(text).unwrap();
        format!(
            "{{\"text\":{text},\"file\":\"{file}\",\"n\":{n},\"ok\":{ok},\"score\":{score:?}}}\n"
        )
    });
    desk.file("in/t.jsonl", jsonl.concat());
    let csv = ROWS.map(|(file, n, ok, score, text)| {
        let text = text.replace('"', "\"\"");
        format!("{file},{n},{ok},{score:?},\"{text}\"\r\n")
    });
    desk.file(
        "in/t.csv",
        format!("\u{feff}file,n,ok,score,text\r\n{}", csv.concat()),
    );
    let tsv = ROWS.map(|(file, n, ok, score, text)| {
        let text = text.replace('"', "\"\"");
        format!("{file}\t{n}\t{ok}\t{score:?}\t\"{text}\"\n")
    });
    desk.file(
        "in/t.tsv",
        format!("file\tn\tok\tscore\ttext\n{}", tsv.concat()),
    );
    desk.file("in/t.parquet", parquet_rows());
    let batch = arrow_batch();
    let mut file = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    file.write(&batch).unwrap();
    desk.file("in/t.arrow", file.into_inner().unwrap());
    let mut stream = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    stream.write(&batch).unwrap();
    desk.file("in/stream.arrow", stream.into_inner().unwrap());

    let mut seen = Vec::new();
    for table in [
        "t.jsonl",
        "t.csv",
        "t.tsv",
        "t.parquet",
        "t.arrow",
        "stream.arrow",
    ] {
        let table_path = format!("in/{table}");
        let samples = desk.packed(table, &["--table", &table_path, "--payload-column", "file"]);
        for (sample, row) in samples.iter().zip(ROWS) {
            let bytes = if row.0 == "p/1.bin" { "one" } else { "two" };
            assert_eq!(sample.payload_text(), bytes);
            assert_eq!(sample.text("path"), row.0);
            assert_eq!(sample.text("text"), row.4);
            assert_eq!(sample.metadata["n"], Value::Int(row.1));
            assert_eq!(sample.metadata["ok"], Value::Bool(row.2));
            assert_eq!(sample.metadata["score"], Value::Float(row.3));
            assert_eq!(sample.metadata.len(), 5);
        }
        seen.push(files(&desk.out().join(table)));
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
    // The payload files may lie elsewhere.
    fs::rename(desk.path("in/p"), desk.path("p")).unwrap();
    let args = ["--table", "in/t.csv", "--payload-column", "file", "."];
    assert_eq!(desk.packed("moved", &args).len(), 3);
}

#[test]
fn payloads_may_stand_in_the_table() {
    let desk = Desk::new();
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "bytes",
            Arc::new(BinaryArray::from(vec![&b"\xffone"[..], b""])),
        ),
        ("n", Arc::new(Int64Array::from(vec![1, 2]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut file = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    file.write(&batch).unwrap();
    desk.file("t.arrow", file.into_inner().unwrap());
    let samples = desk.packed("x", &["--table", "t.arrow", "--payload-column", "bytes"]);
    assert_eq!(samples[0].payload, b"\xffone");
    assert_eq!(samples[1].payload, b"");
    assert_eq!(
        samples[1].metadata.len(),
        1,
        "no path: {:?}",
        samples[1].metadata
    );
}

/// 500 files of 0 to some 40,000 bytes in 7 folders, and one of 3 MB.
fn many(desk: &Desk) {
    for n in 0..500_u32 {
        let len = (n.wrapping_mul(2_654_435_761) >> 16) & 0x9fff;
        let bytes: Vec<u8> = (0..len).map(|k| ((k * n) >> 7) as u8).collect();
        desk.file(format!("in/{}/{n:03}", n % 7), bytes);
    }
    desk.file("in/3/large", vec![b'x'; 3 << 20]);
}

#[test]
fn the_bytes_do_not_depend_on_the_number_of_threads() {
    let desk = Desk::new();
    many(&desk);
    for compression in ["lz4", "none"] {
        let mut seen = Vec::new();
        for jobs in ["1", "2", "5"] {
            let out = format!("{compression}-{jobs}");
            let status = tool()
                .current_dir(desk.root.path())
                .args([
                    "pack",
                    "--name",
                    "x",
                    "--compression",
                    compression,
                    "--jobs",
                    jobs,
                ])
                .args(["--max-shard-bytes", "300kB", "in", &out])
                .status();
            assert!(status.unwrap().success());
            let dir = desk.path(&out).join("x");
            let mut all = files(&dir);
            all.insert(
                "manifest".to_owned(),
                fs::read(dir.join("manifest.json")).unwrap(),
            );
            assert!(all.len() > 5);
            seen.push(all);
        }
        assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
        let samples = read(&desk.path(&format!("{compression}-2")).join("x"));
        assert_eq!(samples.len(), 501);
        for sample in samples {
            let path = sample.text("path");
            assert_eq!(
                sample.payload,
                fs::read(desk.path("in").join(path)).unwrap()
            );
            assert_eq!(sample.text("label"), &path[..1]);
        }
    }
    let dry = desk.pack("x", &["--dry-run", "in"]);
    assert!(dry.out().contains("501 samples"), "{}", dry.out());
    assert!(!desk.out().exists());
}
