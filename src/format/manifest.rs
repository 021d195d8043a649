//! `manifest.json` (docs/format.md, "manifest.json"): formats 2 and 3 are read through separate
//! structures and become one checked [`Manifest`].

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

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
        let probe: VersionProbe = serde_json::from_slice(bytes).map_err(|e| syntax(&e))?;
        match probe.version.as_deref() {
            Some("2") => ManifestV2::deserialize_from(bytes)?.check(),
            Some("3") => ManifestV3::deserialize_from(bytes)?.check(),
            Some(other) => Err(ManifestFault::Version(other.to_owned())),
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

fn syntax(error: &serde_json::Error) -> Fault {
    Fault::new(
        FaultKind::Manifest,
        "a JSON object with the keys of its format version",
        error.to_string(),
    )
}

/// The top level of a manifest of any version: the spelling of its version, and that no key occurs
/// twice.
struct VersionProbe {
    version: Option<String>,
}

impl<'de> Deserialize<'de> for VersionProbe {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = VersionProbe;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<VersionProbe, A::Error> {
                let mut version = None;
                let mut seen = HashSet::new();
                while let Some(key) = map.next_key::<String>()? {
                    if key == "format_version" {
                        let text: &serde_json::value::RawValue = map.next_value()?;
                        version = Some(text.get().to_owned());
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                    if !seen.insert(key.clone()) {
                        let twice = format!("duplicate key {key:?}");
                        return Err(serde::de::Error::custom(twice));
                    }
                }
                Ok(VersionProbe { version })
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

/// Format 2 as it stands in the file.
#[derive(Deserialize)]
struct ManifestV2 {
    source_name: String,
    sample_count: u64,
    metadata_schema: Vec<Field>,
    metadata_sha256: String,
    index_sha256: String,
    shards: Vec<RawShard>,
}

/// Format 3 as it stands in the file.
#[derive(Deserialize)]
struct ManifestV3 {
    cache_id: u64,
    source_name: String,
    sample_count: u64,
    metadata_schema: Vec<Field>,
    metadata_sha256: String,
    index_sha256: String,
    shards: Vec<RawShard>,
}

#[derive(Deserialize)]
struct RawShard {
    name: String,
    uncompressed_byte_len: u64,
    byte_len: u64,
    compression: RawCompression,
    sha256: String,
}

#[derive(Deserialize)]
struct RawCompression {
    algo: RawAlgo,
    ratio: f64,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawAlgo {
    None,
    Lz4,
}

trait Parsed: Sized + for<'de> Deserialize<'de> {
    fn deserialize_from(bytes: &[u8]) -> Result<Self, Fault> {
        serde_json::from_slice(bytes).map_err(|error| syntax(&error))
    }
}

impl Parsed for ManifestV2 {}
impl Parsed for ManifestV3 {}

impl ManifestV2 {
    fn check(self) -> Result<Manifest, ManifestFault> {
        Ok(Manifest {
            version: FormatVersion::V2,
            cache_id: None,
            source_name: self.source_name,
            sample_count: self.sample_count,
            schema: check_schema(self.metadata_schema)?,
            metadata_sha256: check_digest("metadata_sha256", &self.metadata_sha256)?,
            index_sha256: check_digest("index_sha256", &self.index_sha256)?,
            shards: check_shards(self.shards)?,
        })
    }
}

impl ManifestV3 {
    fn check(self) -> Result<Manifest, ManifestFault> {
        Ok(Manifest {
            version: FormatVersion::V3,
            cache_id: Some(self.cache_id),
            source_name: self.source_name,
            sample_count: self.sample_count,
            schema: check_schema(self.metadata_schema)?,
            metadata_sha256: check_digest("metadata_sha256", &self.metadata_sha256)?,
            index_sha256: check_digest("index_sha256", &self.index_sha256)?,
            shards: check_shards(self.shards)?,
        })
    }
}

fn check_schema(schema: Vec<Field>) -> Result<Vec<Field>, Fault> {
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

fn check_digest(key: &str, text: &str) -> Result<Sha256Digest, Fault> {
    Sha256Digest::from_hex(text).ok_or_else(|| {
        Fault::new(
            FaultKind::Manifest,
            format!("64 lower-case hexadecimal digits in {key}"),
            format!("{text:?}"),
        )
    })
}

fn check_shards(shards: Vec<RawShard>) -> Result<Vec<ShardEntry>, Fault> {
    shards
        .into_iter()
        .enumerate()
        .map(|(n, shard)| {
            let name = ShardName::new(shard.name).map_err(|mut fault| {
                fault.expected = format!("shards[{n}].name to be {}", fault.expected);
                fault
            })?;
            Ok(ShardEntry {
                sha256: check_digest(&format!("shards[{n}].sha256"), &shard.sha256)?,
                name,
                decoded_len: shard.uncompressed_byte_len,
                byte_len: shard.byte_len,
                compression: match shard.compression.algo {
                    RawAlgo::None => Compression::None,
                    RawAlgo::Lz4 => Compression::Lz4,
                },
                ratio: shard.compression.ratio,
            })
        })
        .collect()
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
