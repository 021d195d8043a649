//! Files over all samples: `/metadata.arrow`, `metadata.jsonl`; and extended attributes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Cursor;

use arrow_array::{Array, Int64Array, RecordBatch, StringArray, UInt64Array};
use datasetrt::dataset::Dataset;
use datasetrt::format::metadata::{FieldKind, Value};
use datasetrt::vfs::{FileKind, Ino, Ttl, VfsError, VfsOptions, ViewMetadata};
use serde_json::{Value as Json, json};

use super::tiny_views::{Tiny, open, text};
use super::walk::{at, list, options, read, try_vfs, vfs, walk};

/// Two caches that share one field, disagree on another, and have one each.
fn dataset(dir: &std::path::Path) -> Dataset {
    let first = Tiny::new(
        30,
        &[
            ("label", FieldKind::String),
            ("x", FieldKind::Int),
            ("size", FieldKind::Float),
            ("x_int", FieldKind::Bool),
        ],
    )
    .with(
        vec![
            text("cat"),
            Value::Int(1),
            Value::Float(0.5),
            Value::Bool(true),
        ],
        b"abc",
    )
    .with(
        vec![
            text("d\"g"),
            Value::Int(-2),
            Value::Float(f64::NAN),
            Value::Bool(false),
        ],
        b"",
    );
    let second = Tiny::new(4, &[("x", FieldKind::String), ("label", FieldKind::String)])
        .with(vec![text("one"), text("é")], &[7; 1000]);
    open(dir, &[first, second])
}

fn batches(bytes: Vec<u8>) -> Vec<RecordBatch> {
    let reader = arrow_ipc::reader::FileReader::try_new(Cursor::new(bytes), None).unwrap();
    reader.map(Result::unwrap).collect()
}

#[test]
fn one_table_has_all_samples_of_all_caches() {
    let dir = tempfile::tempdir().unwrap();
    let vfs = vfs(&dataset(dir.path()), options(&[]));
    let listed = list(&vfs, Ino::ROOT, 2, 99);
    let listed = listed
        .iter()
        .find(|entry| entry.2 == b"metadata.arrow")
        .unwrap();
    assert_eq!(listed.1, FileKind::File);
    assert_eq!(vfs.entry_attr(listed.0), None, "a listing makes no table");
    let attr = at(&vfs, "metadata.arrow").unwrap();
    assert_eq!((attr.ino, attr.ttl), (listed.0, Ttl::Forever));
    assert_eq!(vfs.entry_attr(listed.0), Some(attr));

    let batches = batches(read(&vfs, attr.ino));
    assert_eq!(batches.len(), 1);
    let batch = &batches[0];
    let schema = batch.schema();
    let columns: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    assert_eq!(
        columns,
        [
            "cache_id",
            "sample_id",
            "path",
            "size",
            "label",
            "x_int_",
            "size_meta",
            "x_int",
            "x_string"
        ]
    );
    let numbers = |column: &str| -> Vec<u64> {
        let column = batch.column_by_name(column).unwrap().as_any();
        column
            .downcast_ref::<UInt64Array>()
            .unwrap()
            .values()
            .to_vec()
    };
    let texts = |column: &str| -> Vec<Option<&str>> {
        let column = batch.column_by_name(column).unwrap().as_any();
        column
            .downcast_ref::<StringArray>()
            .unwrap()
            .iter()
            .collect()
    };
    assert_eq!(numbers("cache_id"), [30, 30, 4]);
    assert_eq!(numbers("sample_id"), [0, 1, 0]);
    assert_eq!(numbers("size"), [3, 0, 1000]);
    assert_eq!(texts("label"), [Some("cat"), Some("d\"g"), Some("é")]);
    assert_eq!(texts("x_string"), [None, None, Some("one")]);
    let ints = batch.column_by_name("x_int_").unwrap().as_any();
    let ints: Vec<_> = ints.downcast_ref::<Int64Array>().unwrap().iter().collect();
    assert_eq!(ints, [Some(1), Some(-2), None]);
    assert_eq!(batch.column_by_name("size_meta").unwrap().null_count(), 1);
    for path in texts("path") {
        assert!(
            at(&vfs, path.unwrap()).is_ok(),
            "{path:?} is under the mount"
        );
    }
}

#[test]
fn the_table_is_there_without_samples_and_fields_and_in_many_batches() {
    let dir = tempfile::tempdir().unwrap();
    let empty = open(&dir.path().join("empty"), &[Tiny::new(1, &[])]);
    let tree = vfs(&empty, VfsOptions::default());
    let rows: usize = batches(read(&tree, at(&tree, "metadata.arrow").unwrap().ino))
        .iter()
        .map(RecordBatch::num_rows)
        .sum();
    assert_eq!(rows, 0);
    let mut many = Tiny::new(1, &[]);
    for _ in 0..70_000 {
        many = many.with(vec![], b"x");
    }
    let many = open(&dir.path().join("many"), &[many]);
    let tree = vfs(&many, options(&[]));
    let batches = batches(read(&tree, at(&tree, "metadata.arrow").unwrap().ino));
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    assert_eq!((batches.len(), rows), (2, 70_000));
}

#[test]
fn a_damaged_sample_has_a_row_without_a_size() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = dataset(dir.path());
    let shard = dir
        .path()
        .join("cache-00000000000000000030/shards/000000.bin");
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes[..8].fill(0xFF);
    std::fs::write(&shard, bytes).unwrap();
    let vfs = vfs(&dataset, options(&[]));
    let batches = batches(read(&vfs, at(&vfs, "metadata.arrow").unwrap().ino));
    let sizes = batches[0].column_by_name("size").unwrap();
    assert_eq!((sizes.is_null(0), sizes.is_null(1)), (true, false));
}

#[test]
fn each_view_has_a_line_for_each_of_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let vfs = vfs(
        &dataset(dir.path()),
        options(&["v={label}/{cache_id}-{sample_id}{ext}"]),
    );
    let top = at(&vfs, "views/v").unwrap().ino;
    let listed = list(&vfs, top, 2, 1);
    assert_eq!(
        (&listed[0].2[..], listed[0].1),
        (&b"metadata.jsonl"[..], FileKind::File)
    );
    assert_eq!(vfs.entry_attr(listed[0].0), None, "a listing makes no file");
    let text = String::from_utf8(read(&vfs, listed[0].0)).unwrap();
    let lines: Vec<Json> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        lines,
        [
            json!({"file_name": "cat/30-0.bin", "label": "cat", "x_int_": 1, "size": 0.5,
                   "x_int": true}),
            json!({"file_name": "d\"g/30-1.bin", "label": "d\"g", "x_int_": -2, "size": null,
                   "x_int": false}),
            json!({"file_name": "é/4-0.bin", "label": "é", "x_string": "one"}),
        ]
    );
    assert!(text.starts_with("{\"file_name\":"));
    let mut files = walk(&vfs, top);
    files.remove("metadata.jsonl");
    let named: Vec<_> = lines
        .iter()
        .map(|line| line["file_name"].as_str().unwrap())
        .collect();
    assert_eq!(files.keys().collect::<Vec<_>>(), named);

    let mut hidden = options(&["v={cache_id}-{sample_id}"]);
    hidden.view_metadata = ViewMetadata::Off;
    let vfs = try_vfs(&dataset(dir.path()), hidden).unwrap();
    assert!(matches!(
        at(&vfs, "views/v/metadata.jsonl"),
        Err(VfsError::NotFound)
    ));
}

#[test]
fn samples_have_attributes_when_they_are_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let fields = [
        ("label", FieldKind::String),
        ("f", FieldKind::Float),
        ("nul\0", FieldKind::Int),
        ("odd name", FieldKind::Bool),
    ];
    let row = |label: &str| {
        vec![
            text(label),
            Value::Float(0.5),
            Value::Int(3),
            Value::Bool(true),
        ]
    };
    let cache = Tiny::new(9, &fields)
        .with(row("cat"), b"")
        .with(row(&"x".repeat(4096)), b"")
        .with(row(&"x".repeat(4097)), b"");
    let dataset = open(dir.path(), &[cache]);
    let shown = VfsOptions {
        xattrs: true,
        ..VfsOptions::default()
    };
    let tree = vfs(&dataset, shown);
    let attributes = |path: &str| -> BTreeMap<String, String> {
        let ino = at(&tree, path).unwrap().ino;
        let list = String::from_utf8(tree.listxattr(ino).unwrap()).unwrap();
        assert!(list.is_empty() || list.ends_with('\0'));
        let names = list.split_terminator('\0').map(|name| {
            let value = tree.getxattr(ino, OsStr::new(name)).unwrap();
            (name.to_owned(), String::from_utf8(value).unwrap())
        });
        names.collect()
    };
    let name = |name: &str| format!("user.datasetrt.{name}");
    let expected = [
        ("cache_id", "9"),
        ("sample_id", "0"),
        ("source_name", "source-9"),
        (
            "metadata",
            r#"{"label":"cat","f":0.5,"nul\u0000":3,"odd name":true}"#,
        ),
        ("meta.label", "cat"),
        ("meta.f", "0.5"),
        ("meta.odd name", "true"),
        ("verified", "envelope"),
    ];
    let expected: BTreeMap<_, _> = expected
        .into_iter()
        .map(|(key, value)| (name(key), value.to_owned()))
        .collect();
    assert_eq!(attributes("samples/9/0"), expected);
    assert_eq!(attributes("samples/9").len(), 0);
    let long = attributes("samples/9/1");
    assert_eq!(long[&name("meta.label")].len(), 4096);
    assert!(!long.contains_key(&name("metadata")));
    assert!(!attributes("samples/9/2").contains_key(&name("meta.label")));
    let ino = at(&tree, "samples/9/2").unwrap().ino;
    for absent in ["meta.label", "metadata", "meta.none", "meta.", "other", ""] {
        let value = tree.getxattr(ino, OsStr::new(&name(absent)));
        assert!(matches!(value, Err(VfsError::NoAttribute)), "{absent}");
    }
    let foreign = tree.getxattr(ino, OsStr::new("security.capability"));
    assert!(matches!(foreign, Err(VfsError::NoAttribute)));

    let tree = vfs(&dataset, VfsOptions::default());
    assert!(matches!(tree.listxattr(ino), Err(VfsError::Unsupported)));
    let value = tree.getxattr(ino, OsStr::new(&name("cache_id")));
    assert!(matches!(value, Err(VfsError::Unsupported)));
}
