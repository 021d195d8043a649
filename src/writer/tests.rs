use super::*;
use crate::format::manifest::FieldKind;

fn field(name: &str, kind: FieldKind) -> Field {
    Field {
        name: name.to_owned(),
        kind,
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    storage::list_dir(dir).unwrap()
}

#[test]
fn metadata_is_matched_by_name() {
    let fields = [field("a", FieldKind::Int), field("b", FieldKind::Bool)];
    let pair = |name: &str, value| (name.to_owned(), value);
    let (a, b) = (pair("a", Value::Int(1)), pair("b", Value::Bool(true)));
    assert_eq!(
        in_order(&fields, &[b.clone(), a.clone()]).unwrap(),
        [Value::Int(1), Value::Bool(true)]
    );
    let refused = |metadata: &[_]| in_order(&fields, metadata).unwrap_err().field.unwrap();
    assert_eq!(refused(std::slice::from_ref(&a)), "b");
    assert_eq!(refused(&[a.clone(), a.clone(), b.clone()]), "a");
    assert_eq!(refused(&[a, b, pair("c", Value::Int(1))]), "c");
}

#[test]
fn a_schema_is_sorted_by_bytes_and_has_no_name_twice() {
    let names = ["a", "\u{e9}", "Z", "", "\0", " "];
    let schema = names.iter().map(|n| field(n, FieldKind::Int)).collect();
    let sorted_names: Vec<_> = sorted(schema)
        .unwrap()
        .into_iter()
        .map(|f| f.name)
        .collect();
    assert_eq!(sorted_names, ["", "\0", " ", "Z", "a", "\u{e9}"]);
    assert!(
        sorted(vec![
            field("a", FieldKind::Int),
            field("a", FieldKind::Bool)
        ])
        .is_err()
    );
}

#[test]
fn what_cannot_be_a_cache_is_refused_before_anything_is_created() {
    let out = tempfile::tempdir().unwrap();
    let options = WriterOptions::default();
    let zero = WriterOptions {
        max_shard_bytes: 0,
        ..options
    };
    let twice = vec![field("a", FieldKind::Int), field("a", FieldKind::Int)];
    for result in [
        CacheWriter::create(out.path(), "tmp", vec![], options),
        CacheWriter::create(out.path(), "a/b", vec![], options),
        CacheWriter::create(out.path(), "x", twice, options),
        CacheWriter::create(out.path(), "x", vec![], zero),
    ] {
        assert!(matches!(result, Err(Error::Refused { .. })));
    }
    assert!(entries(out.path()).is_empty());
}

#[test]
fn a_writer_without_samples_leaves_nothing() {
    let out = tempfile::tempdir().unwrap();
    let writer = CacheWriter::create(out.path(), "x", vec![], WriterOptions::default()).unwrap();
    assert!(matches!(writer.finish(), Err(Error::Refused { .. })));
    assert!(entries(out.path()).is_empty());
}

#[test]
fn a_refused_sample_is_numbered_and_the_next_one_is_taken() {
    let out = tempfile::tempdir().unwrap();
    let schema = vec![field("score", FieldKind::Float)];
    let mut writer =
        CacheWriter::create(out.path(), "x", schema, WriterOptions::default()).unwrap();
    let score = |value| [("score".to_owned(), Value::Float(value))];
    writer.push(b"one", &score(0.5)).unwrap();
    let error = writer
        .push(b"two", &score(f64::NAN))
        .unwrap_err()
        .to_string();
    assert!(error.contains("sample 1: field \"score\": NaN"), "{error}");
    writer.push(b"three", &score(1.5)).unwrap();
    assert_eq!(writer.finish().unwrap().samples, 2);
}
