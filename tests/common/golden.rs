//! The golden data: caches written by the reference, and what it made of them. They lie outside
//! the repository; `DATASETRT_GOLDEN` names their folder.

use std::path::{Path, PathBuf};

use datasetrt::format::metadata::{Field, FieldKind, Value};
use serde_json::Value as JsonValue;

/// The folder of the golden data. Without it the caller has nothing to test and says so aloud.
#[must_use]
pub fn dir() -> Option<PathBuf> {
    let dir = std::env::var_os("DATASETRT_GOLDEN").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/golden"),
        PathBuf::from,
    );
    if dir.join("expected").is_dir() {
        return Some(dir);
    }
    eprintln!(
        "GOLDEN DATA ABSENT: {} has no folder \"expected\"; this test passes without having \
         tested anything (set DATASETRT_GOLDEN)",
        dir.display()
    );
    None
}

/// A file of `expected`, whole.
#[must_use]
pub fn expected_text(dir: &Path, name: &str) -> String {
    let path = dir.join("expected").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// What the reference was given for one sample.
#[derive(Clone, Debug)]
pub struct ExpectedSample {
    /// Length of the payload.
    pub size: u64,
    /// SHA-256 of the payload, hexadecimal.
    pub sha256: String,
    /// Metadata in schema order.
    pub metadata: Vec<Value>,
    /// Whether the reference itself does not deliver it right.
    pub reference_fails: bool,
}

/// What is expected of one golden cache.
#[derive(Debug)]
pub struct Expected {
    /// Name of its folder.
    pub name: String,
    /// Everything that is not a sample.
    pub facts: JsonValue,
    /// The fields of its metadata.
    pub schema: Vec<Field>,
    /// Its samples.
    pub samples: Vec<ExpectedSample>,
}

/// The names of all golden caches, in order.
#[must_use]
pub fn cache_names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("manifest.json").exists())
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// Reads `expected/<name>.json`.
#[must_use]
pub fn expected(dir: &Path, name: &str) -> Expected {
    let facts: JsonValue =
        serde_json::from_str(&expected_text(dir, &format!("{name}.json"))).unwrap();
    let schema: Vec<Field> = facts["metadata_schema"]
        .as_array()
        .unwrap()
        .iter()
        .map(|field| Field {
            name: field[0].as_str().unwrap().to_owned(),
            kind: kind(field[1].as_str().unwrap()),
        })
        .collect();
    let samples = match facts["samples"].as_array() {
        Some(samples) => samples
            .iter()
            .map(|sample| ExpectedSample {
                size: sample["size"].as_u64().unwrap(),
                sha256: sample["sha256"].as_str().unwrap().to_owned(),
                metadata: schema
                    .iter()
                    .map(|field| value(field, &sample["metadata"][&field.name]))
                    .collect(),
                reference_fails: sample.get("reference").is_some(),
            })
            .collect(),
        None => columns(&facts["samples_columns"], &schema),
    };
    Expected {
        name: name.to_owned(),
        facts,
        schema,
        samples,
    }
}

/// Large caches list each attribute as one array over all samples.
fn columns(columns: &JsonValue, schema: &[Field]) -> Vec<ExpectedSample> {
    let sizes = columns["size"].as_array().unwrap();
    (0..sizes.len())
        .map(|n| ExpectedSample {
            size: sizes[n].as_u64().unwrap(),
            sha256: columns["sha256"][n].as_str().unwrap().to_owned(),
            metadata: schema
                .iter()
                .map(|field| value(field, &columns["metadata"][&field.name][n]))
                .collect(),
            reference_fails: false,
        })
        .collect()
}

fn kind(name: &str) -> FieldKind {
    match name {
        "bool" => FieldKind::Bool,
        "int" => FieldKind::Int,
        "float" => FieldKind::Float,
        "string" => FieldKind::String,
        other => panic!("kind {other:?}"),
    }
}

/// Floats are spelled by their bits, so that no parser stands between the file and the comparison.
fn value(field: &Field, value: &JsonValue) -> Value {
    match field.kind {
        FieldKind::Bool => Value::Bool(value.as_bool().unwrap()),
        FieldKind::Int => Value::Int(value.as_i64().unwrap()),
        FieldKind::String => Value::String(value.as_str().unwrap().to_owned()),
        FieldKind::Float => {
            let bits = u64::from_str_radix(value["f64"].as_str().unwrap(), 16).unwrap();
            Value::Float(f64::from_bits(bits))
        }
    }
}

/// Copies a cache so that every file of the copy may be written.
pub fn copy_cache(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_cache(&path, &target);
        } else {
            std::fs::write(&target, std::fs::read(&path).unwrap()).unwrap();
        }
    }
}
