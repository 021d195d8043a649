//! Bytes to types and back, with no file access. docs/format.md draws every structure.
//!
//! ```text
//! cache/manifest.json    publication marker, JSON              format::manifest
//!       metadata.arrow   Arrow IPC file, one row per sample    format::metadata
//!       index.bin        24-byte rows                          format::index
//!       shards/*.bin     records                               format::record
//! ```

pub mod digest;
pub mod envelope;
pub mod index;
pub(crate) mod json_object;
pub mod lz4_join;
pub mod lz4_stream;
pub mod manifest;
pub mod manifest_edit;
pub mod metadata;
pub mod record;

/// The publication marker: a folder without it is not a cache.
pub const MANIFEST_FILE: &str = "manifest.json";
/// The metadata table.
pub const METADATA_FILE: &str = "metadata.arrow";
/// The index.
pub const INDEX_FILE: &str = "index.bin";
/// The folder of the shards.
pub const SHARDS_DIR: &str = "shards";

/// How the name of a folder ends in which a cache is still being written; it is never read as one.
pub const STAGING_SUFFIX: &str = ".datasetrt-partial";

/// Name of the shard with number `shard`, as writers give it: six digits or more, then `.bin`.
#[must_use]
pub fn shard_file_name(shard: u64) -> String {
    format!("{shard:06}.bin")
}
