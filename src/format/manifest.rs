//! `manifest.json` (docs/format.md, "manifest.json"): formats 2 and 3 are read through separate
//! structures and become one checked [`Manifest`].

mod members;

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use members::{COUNT, Members, NUMBER, TEXT, shown, wrong};

use super::digest::Sha256Digest;
use super::record::Compression;
use crate::error::{Fault, FaultKind};

/// The longest manifest that is read, in bytes: some 250,000 shards.
pub const MAX_MANIFEST_LEN: u64 = 64 << 20;

/// A format version that this program reads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FormatVersion {
    /// Identity is the position in the supplied list.
    V2,
    /// Identity is stored.
    V3,
}

impl FormatVersion {
    /// The number in the manifest.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }
}

/// The type of a metadata field.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldKind {
    /// `true` or `false`.
    Bool,
    /// A signed 64-bit integer.
    Int,
    /// A 64-bit float.
    Float,
    /// UTF-8 text.
    String,
}

impl FieldKind {
    /// The name in the manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Float => "float",
            Self::String => "string",
        }
    }
}

/// One column of the metadata.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Field {
    /// Its name, any text.
    pub name: String,
    /// Its type.
    pub kind: FieldKind,
}

/// A shard's file name: one plain path segment of 1 to 255 bytes.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ShardName(String);

impl ShardName {
    /// Takes `name` if it names a file inside the shards folder and nothing else.
    ///
    /// # Errors
    /// [`FaultKind::ShardName`] otherwise.
    pub fn new(name: String) -> Result<Self, Fault> {
        let plain = !name.is_empty()
            && name.len() <= 255
            && name != "."
            && name != ".."
            && !name.contains(['/', '\0']);
        if plain {
            Ok(Self(name))
        } else {
            Err(Fault::new(
                FaultKind::ShardName,
                "one plain file name of 1 to 255 bytes",
                format!("{name:?}"),
            ))
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What the manifest says of one shard.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardEntry {
    /// File name in the shards folder.
    pub name: ShardName,
    /// Sum of the decoded lengths of all payloads, in bytes.
    pub decoded_len: u64,
    /// Length of the file, in bytes.
    pub byte_len: u64,
    /// How its payloads are stored.
    pub compression: Compression,
    /// What the user asked of the compressor; a number without meaning for reading.
    pub ratio: f64,
    /// SHA-256 of the file.
    pub sha256: Sha256Digest,
}

/// A manifest whose every field has been checked by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// Its format version.
    pub version: FormatVersion,
    /// The stored identity: always there in format 3, never in format 2.
    pub cache_id: Option<u64>,
    /// The name that the cache was made under.
    pub source_name: String,
    /// Number of samples.
    pub sample_count: u64,
    /// The metadata fields, in order, with distinct names.
    pub schema: Vec<Field>,
    /// SHA-256 of `metadata.arrow`.
    pub metadata_sha256: Sha256Digest,
    /// SHA-256 of `index.bin`.
    pub index_sha256: Sha256Digest,
    /// The shards, in the order in which the index counts them.
    pub shards: Vec<ShardEntry>,
}

/// Why a manifest was not taken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ManifestFault {
    /// A version that this program does not read, as spelled.
    Version(String),
    /// Anything else.
    Fault(Fault),
}

impl From<Fault> for ManifestFault {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Manifest {
    /// Reads a manifest. Unknown keys are allowed; a key that occurs twice at the top is not.
    ///
    /// # Errors
    /// [`ManifestFault::Version`] for another version; [`ManifestFault::Fault`] for everything that
    /// is not the JSON object of that version.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestFault> {
        let text = std::str::from_utf8(bytes)
            .map_err(|error| wrong("UTF-8 text", "", error.to_string()))?;
        let members = Members::of_manifest(text)?;
        members.refuse_twins()?;
        match members.spelled("format_version") {
            Some("2") => Ok(read_v2(&members)?),
            Some("3") => Ok(read_v3(&members)?),
            Some(other) => Err(ManifestFault::Version(shown(other))),
            None => Err(Fault::new(FaultKind::Manifest, "a key format_version", "none").into()),
        }
    }

    /// Sum of the decoded lengths of all payloads, in bytes, as the manifest states it.
    #[must_use]
    pub fn decoded_len(&self) -> u64 {
        self.shards
            .iter()
            .fold(0, |sum, shard| sum.saturating_add(shard.decoded_len))
    }

    /// The manifest's text as a writer of format 3 gives it: two-space indentation, keys in a fixed
    /// order, no final newline.
    #[must_use]
    pub fn to_text(&self) -> String {
        let text = ManifestText {
            format_version: self.version.number(),
            cache_id: self.cache_id,
            source_name: &self.source_name,
            sample_count: self.sample_count,
            metadata_schema: &self.schema,
            metadata_sha256: self.metadata_sha256.to_string(),
            index_sha256: self.index_sha256.to_string(),
            shards: self.shards.iter().map(ShardText::from).collect(),
        };
        // Strings, integers and finite floats always have a JSON spelling.
        serde_json::to_string_pretty(&text).unwrap_or_default()
    }
}

/// Format 2 as it stands in the file.
fn read_v2(members: &Members<'_>) -> Result<Manifest, Fault> {
    read(members, FormatVersion::V2, None)
}

/// Format 3 as it stands in the file.
fn read_v3(members: &Members<'_>) -> Result<Manifest, Fault> {
    let cache_id = members.value("cache_id", COUNT)?;
    read(members, FormatVersion::V3, Some(cache_id))
}

const SHARD_KEYS: [&str; 5] = [
    "name",
    "uncompressed_byte_len",
    "byte_len",
    "compression",
    "sha256",
];

/// What both have.
fn read(
    members: &Members<'_>,
    version: FormatVersion,
    cache_id: Option<u64>,
) -> Result<Manifest, Fault> {
    Ok(Manifest {
        version,
        cache_id,
        source_name: members.value("source_name", TEXT)?,
        sample_count: members.value("sample_count", COUNT)?,
        schema: read_schema(members)?,
        metadata_sha256: read_digest(members, "metadata_sha256")?,
        index_sha256: read_digest(members, "index_sha256")?,
        shards: members
            .objects("shards", &SHARD_KEYS)?
            .map(|shard| read_shard(&shard?))
            .collect::<Result<_, Fault>>()?,
    })
}

fn read_schema(members: &Members<'_>) -> Result<Vec<Field>, Fault> {
    let fields = members
        .objects("metadata_schema", &["name", "kind"])?
        .map(|field| {
            let field = field?;
            Ok(Field {
                name: field.value("name", TEXT)?,
                kind: field.value("kind", "\"bool\", \"int\", \"float\" or \"string\"")?,
            })
        });
    let schema: Vec<Field> = fields.collect::<Result<_, Fault>>()?;
    let mut names = HashSet::new();
    for field in &schema {
        if !names.insert(field.name.as_str()) {
            return Err(Fault::new(
                FaultKind::Manifest,
                "metadata fields with distinct names",
                format!("{:?} twice in metadata_schema", field.name),
            ));
        }
    }
    drop(names);
    Ok(schema)
}

fn read_digest(members: &Members<'_>, key: &str) -> Result<Sha256Digest, Fault> {
    const DIGEST: &str = "64 lower-case hexadecimal digits";
    let text: String = members.value(key, DIGEST)?;
    Sha256Digest::from_hex(&text)
        .ok_or_else(|| wrong(DIGEST, &members.path(key), format!("{:?}", shown(&text))))
}

fn read_shard(shard: &Members<'_>) -> Result<ShardEntry, Fault> {
    let name = ShardName::new(shard.value("name", TEXT)?).map_err(|mut fault| {
        fault.expected = format!("{} to be {}", shard.path("name"), fault.expected);
        fault
    })?;
    let compression = shard.object("compression", &["algo", "ratio"])?;
    Ok(ShardEntry {
        name,
        decoded_len: shard.value("uncompressed_byte_len", COUNT)?,
        byte_len: shard.value("byte_len", COUNT)?,
        compression: match compression.value("algo", "\"none\" or \"lz4\"")? {
            RawAlgo::None => Compression::None,
            RawAlgo::Lz4 => Compression::Lz4,
        },
        ratio: compression.value("ratio", NUMBER)?,
        sha256: read_digest(shard, "sha256")?,
    })
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawAlgo {
    None,
    Lz4,
}

#[derive(Serialize)]
struct ManifestText<'a> {
    format_version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_id: Option<u64>,
    source_name: &'a str,
    sample_count: u64,
    metadata_schema: &'a [Field],
    metadata_sha256: String,
    index_sha256: String,
    shards: Vec<ShardText<'a>>,
}

#[derive(Serialize)]
struct ShardText<'a> {
    name: &'a str,
    uncompressed_byte_len: u64,
    byte_len: u64,
    compression: CompressionText,
    sha256: String,
}

#[derive(Serialize)]
struct CompressionText {
    algo: &'static str,
    ratio: f64,
}

impl<'a> From<&'a ShardEntry> for ShardText<'a> {
    fn from(shard: &'a ShardEntry) -> Self {
        Self {
            name: shard.name.as_str(),
            uncompressed_byte_len: shard.decoded_len,
            byte_len: shard.byte_len,
            compression: CompressionText {
                algo: shard.compression.name(),
                ratio: shard.ratio,
            },
            sha256: shard.sha256.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn text(version: &str, extra: &str) -> String {
        format!(
            r#"{{"format_version": {version}, {extra} "source_name": "s", "sample_count": 1,
            "metadata_schema": [{{"name": "x", "kind": "int"}}], "metadata_sha256": "{HEX}",
            "index_sha256": "{HEX}", "shards": [{{"name": "000000.bin", "uncompressed_byte_len": 1,
            "byte_len": 11, "compression": {{"algo": "none", "ratio": 1}}, "sha256": "{HEX}"}}]}}"#
        )
    }

    #[test]
    fn each_version_has_its_own_identity_rule() {
        let v2 = Manifest::parse(text("2", r#""cache_id": "ignored","#).as_bytes()).unwrap();
        assert_eq!((v2.version, v2.cache_id), (FormatVersion::V2, None));
        let v3 =
            Manifest::parse(text("3", r#""cache_id": 18446744073709551615,"#).as_bytes()).unwrap();
        assert_eq!(
            (v3.version, v3.cache_id),
            (FormatVersion::V3, Some(u64::MAX))
        );
        for id in [
            "",
            r#""cache_id": -1,"#,
            r#""cache_id": 5.0,"#,
            r#""cache_id": null,"#,
        ] {
            assert!(Manifest::parse(text("3", id).as_bytes()).is_err(), "{id}");
        }
    }

    #[test]
    fn other_versions_are_refused_as_spelled() {
        for version in ["1", "4", "2.0", "\"2\"", "null", "3e0"] {
            assert_eq!(
                Manifest::parse(text(version, r#""cache_id": 1,"#).as_bytes()),
                Err(ManifestFault::Version(version.to_owned()))
            );
        }
    }

    #[test]
    fn keys_occur_once_at_the_top() {
        for twice in [r#""format_version": 2,"#, r#""zz": 1, "zz": 2,"#] {
            assert!(Manifest::parse(text("2", twice).as_bytes()).is_err());
        }
        assert!(Manifest::parse(text("2", r#""zz": {"a": 1, "a": 2},"#).as_bytes()).is_ok());
    }

    #[test]
    fn a_value_of_a_wrong_type_or_range_is_told_with_its_key_and_what_is_there() {
        let good: serde_json::Value =
            serde_json::from_str(&text("3", r#""cache_id": 7,"#)).unwrap();
        let keys = [
            "/cache_id",
            "/source_name",
            "/sample_count",
            "/metadata_schema",
            "/metadata_schema/0",
            "/metadata_schema/0/name",
            "/metadata_schema/0/kind",
            "/metadata_sha256",
            "/index_sha256",
            "/shards",
            "/shards/0",
            "/shards/0/name",
            "/shards/0/uncompressed_byte_len",
            "/shards/0/byte_len",
            "/shards/0/compression",
            "/shards/0/compression/algo",
            "/shards/0/compression/ratio",
            "/shards/0/sha256",
        ];
        for pointer in keys {
            let value = good.pointer(pointer).unwrap();
            // As messages call it.
            let key = pointer[1..].replace("/0", "[0]").replace('/', ".");
            for bad in [
                "-1",
                "1.5",
                "18446744073709551616",
                "null",
                "\"\\u00e9\"",
                "[1]",
                "{}",
                "true",
            ] {
                if (value.is_string() && bad.starts_with('"') && !key.contains("sha256"))
                    || (key.ends_with("ratio") && bad.parse::<f64>().is_ok())
                {
                    continue;
                }
                let mut wrong = good.clone();
                *wrong.pointer_mut(pointer).unwrap() = serde_json::Value::from("HERE");
                let wrong = wrong.to_string().replace("\"HERE\"", bad);
                let Err(ManifestFault::Fault(fault)) = Manifest::parse(wrong.as_bytes()) else {
                    panic!("{key}: {bad}");
                };
                assert_eq!(fault.kind, FaultKind::Manifest);
                assert!(fault.expected.contains(&key), "{key}, {bad}: {fault}");
                assert!(!fault.found.contains("line"), "{key}, {bad}: {fault}");
            }
            if pointer.ends_with('0') {
                continue;
            }
            let mut without = good.clone();
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            let parent = without.pointer_mut(parent).unwrap();
            parent.as_object_mut().unwrap().remove(name).unwrap();
            let Err(ManifestFault::Fault(fault)) = Manifest::parse(without.to_string().as_bytes())
            else {
                panic!("without {key}");
            };
            assert!(fault.expected.ends_with(&key), "{fault}");
            assert_eq!(fault.found, "no such key");
        }
    }

    #[test]
    fn shard_names_are_plain() {
        for good in ["000000.bin", "any name.dat", "...", "é"] {
            assert!(ShardName::new(good.to_owned()).is_ok());
        }
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "/etc/passwd",
            "../x",
            "a\0",
            &"x".repeat(256),
        ] {
            let fault = ShardName::new(bad.to_owned()).unwrap_err();
            assert_eq!(fault.kind, FaultKind::ShardName);
        }
    }

    #[test]
    fn text_is_what_parse_reads() {
        let manifest = Manifest::parse(text("3", r#""cache_id": 7,"#).as_bytes()).unwrap();
        let text = manifest.to_text();
        assert!(text.starts_with("{\n  \"format_version\": 3,\n  \"cache_id\": 7,\n"));
        assert!(text.contains("\"ratio\": 1.0") && text.ends_with("]\n}"));
        assert_eq!(Manifest::parse(text.as_bytes()).unwrap(), manifest);
    }
}
