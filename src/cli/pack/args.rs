//! The command line of `datasetrt pack`, and what it asks for.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::cli::parse_size;
use crate::error::{Error, Result};
use crate::format::manifest::FieldKind;
use crate::format::record::Compression;
use crate::storage;
use crate::writer::source::Source;
use crate::writer::source::archive::Tar;
use crate::writer::source::folder::Folder;
use crate::writer::source::infer::FieldChoices;
use crate::writer::source::join::JoinOptions;
use crate::writer::source::plan::{Labels, PlanOptions};
use crate::writer::source::table::{Table, TableKind};
use crate::writer::source::webdataset::WebDataset;
use crate::writer::{SourceName, WriterOptions};

/// The most threads that may be asked for.
const MOST_JOBS: i64 = 1024;

// One line a paragraph: clap breaks lines where the terminal ends.
const DETAILS: &str = "\
Sources, in the order given:
  a folder      each regular file below it, ordered bytewise by path; links to files are followed, \
links to folders are not
  an archive    .tar, .tar.gz, .tgz, .tar.zst, .tzst: each regular file in it, in its order
  a table       with --table: each row names its payload file

Metadata: `path` as in the source, and `label`, the name of the parent folder, when the files lie \
in sister folders. Tables, --metadata and webdataset groups add their own fields. A field's type is \
learnt from all of its values: bool, int, float or string. Missing values, integers beyond 64 bits \
and floats that are not finite are refused, with the field and the row.

Names that are not UTF-8 are spelled with \\xNN for each odd byte, and a backslash in a name with \
\\\\, so that every name can be got back; --lossy-path puts U+FFFD for odd bytes instead.

The cache appears as OUT/NAME, whole and synced to disk, or not at all. What exists there is never \
overwritten. The same sources always give the same bytes, whatever --jobs is.

Exit status: 0 written; 1 refused or failed, with the reason on stderr; 2 wrong usage; 130 or 143 \
stopped by Ctrl-C or SIGTERM, with nothing left behind.

Examples:
  datasetrt pack --name pets pictures/ caches/
  datasetrt pack --name cars --group webdataset --payload jpg train-0.tar train-1.tar caches/
  datasetrt pack --name birds --table birds.parquet --payload-column file caches/";

/// Write a new cache from folders, tar archives or a table
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub struct Args {
    /// Name of the cache: one plain folder name, from which its id is made
    #[arg(long, value_name = "NAME", value_parser = |text: &str| SourceName::new(text))]
    pub(super) name: SourceName,

    /// Folders and archives to pack, then the folder to write the cache into (created when it is
    /// missing). With --table: at most one folder that payload names start from (default: where
    /// the table is), then the folder to write into
    #[arg(value_name = "SOURCE... OUT", required = true)]
    paths: Vec<PathBuf>,

    /// Pack the rows of this table (.jsonl, .csv, .tsv, .parquet, .arrow)
    #[arg(long, value_name = "FILE", help_heading = SOURCES, requires = "payload_column", conflicts_with_all = ["group", "metadata"])]
    table: Option<PathBuf>,
    /// The table's column that names the payload files, or holds the payloads as binary values
    #[arg(long, value_name = "COLUMN", help_heading = SOURCES, requires = "table")]
    payload_column: Option<String>,
    /// Members of archives that belong together
    #[arg(long, value_name = "HOW", help_heading = SOURCES, requires = "payload")]
    group: Option<Grouping>,
    /// Extension of the members that are payloads; may be given several times
    #[arg(long, value_name = "EXT", help_heading = SOURCES, requires = "group")]
    payload: Vec<String>,

    /// Join the rows of this table (.jsonl, .csv, .tsv) to the samples by path
    #[arg(long, value_name = "FILE", help_heading = METADATA)]
    metadata: Option<PathBuf>,
    /// That table's column of paths
    #[arg(long, value_name = "COLUMN", help_heading = METADATA, default_value = "path")]
    metadata_key: String,
    /// Store no path
    #[arg(long, help_heading = METADATA)]
    no_path: bool,
    /// Store the parent folder's name as label, whatever the folders look like
    #[arg(long, help_heading = METADATA, conflicts_with = "no_label")]
    label: bool,
    /// Store no label
    #[arg(long, help_heading = METADATA)]
    no_label: bool,
    /// Type of a field (bool, int, float, string); may be given several times
    #[arg(long = "type", value_name = "FIELD=TYPE", help_heading = METADATA, value_parser = parse_type)]
    types: Vec<(String, FieldKind)>,
    /// Leave a field of the table or archive out; may be given several times
    #[arg(long, value_name = "FIELD", help_heading = METADATA)]
    drop: Vec<String>,
    /// Put U+FFFD for what is not UTF-8 in names and text
    #[arg(long, help_heading = METADATA)]
    lossy_path: bool,

    /// How payloads are stored
    #[arg(long, value_name = "HOW", help_heading = CACHE, default_value = "lz4")]
    compression: Algorithm,
    /// Most bytes of a shard; a larger sample gets one of its own
    #[arg(long, value_name = "SIZE", help_heading = CACHE, default_value = "64MiB", value_parser = parse_shard_bytes)]
    max_shard_bytes: u64,

    /// Threads that read and compress (default: one for each core)
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MOST_JOBS))]
    jobs: Option<u16>,
    /// Read all metadata and look at every payload file, but write nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Print the result as a JSON object
    #[arg(long)]
    pub(super) json: bool,
}

const SOURCES: &str = "Sources";
const METADATA: &str = "Metadata";
const CACHE: &str = "Cache";

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Grouping {
    /// Members that stand together and share the path up to the first dot of the file name are one
    /// sample; .json, .txt and .cls members are its metadata
    Webdataset,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Algorithm {
    /// As they are
    None,
    /// One LZ4 block each
    Lz4,
}

fn parse_shard_bytes(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("a shard must have room for some bytes".to_owned()),
        bytes => Ok(bytes),
    }
}

fn parse_type(text: &str) -> Result<(String, FieldKind), String> {
    // A field's name may contain any character, so the last sign parts them.
    let (field, kind) = text
        .rsplit_once('=')
        .ok_or_else(|| "expected FIELD=TYPE".to_owned())?;
    let kind = match kind {
        "bool" => FieldKind::Bool,
        "int" => FieldKind::Int,
        "float" => FieldKind::Float,
        "string" => FieldKind::String,
        other => return Err(format!("`{other}` is not bool, int, float or string")),
    };
    Ok((field.to_owned(), kind))
}

impl Args {
    /// The folder to write into.
    pub(super) fn out(&self) -> &Path {
        self.paths.last().map_or(Path::new(""), PathBuf::as_path)
    }

    fn given(&self) -> &[PathBuf] {
        self.paths.split_last().map_or(&[], |(_, given)| given)
    }

    /// What clap cannot say about the number of paths.
    pub(super) fn check_paths(&self) -> Result<(), String> {
        match (self.table.is_some(), self.given().len()) {
            (false, 0) => Err("expected SOURCE... OUT, found one path".to_owned()),
            (true, 2..) => Err("with --table, expected [ROOT] OUT, found more paths".to_owned()),
            _ => Ok(()),
        }
    }

    /// The sources, which must exist.
    pub(super) fn sources(&self) -> Result<Vec<Box<dyn Source>>> {
        if let Some(table) = &self.table {
            let kind = TableKind::by_name(table).ok_or_else(|| {
                let reason = "the name of a table ends in .jsonl, .csv, .tsv, .parquet or .arrow";
                Error::refused(table, reason)
            })?;
            let beside = || table.parent().unwrap_or(Path::new("")).to_path_buf();
            let root = self.given().first().cloned().unwrap_or_else(beside);
            return Ok(vec![Box::new(Table::new(
                table.clone(),
                kind,
                self.payload_column.clone().unwrap_or_default(),
                root,
                self.lossy_path,
            ))]);
        }
        self.given().iter().map(|path| self.source(path)).collect()
    }

    fn source(&self, path: &Path) -> Result<Box<dyn Source>> {
        if storage::stat(path)?.is_dir {
            if self.group.is_some() {
                let reason = "groups are made of the members of an archive, and this is a folder";
                return Err(Error::refused(path, reason));
            }
            self.refuse_inside(path)?;
            return Ok(Box::new(Folder::new(path.to_path_buf())));
        }
        let tar = Tar::by_name(path.to_path_buf()).ok_or_else(|| {
            let reason = match TableKind::by_name(path) {
                Some(_) => "a table is packed with --table FILE",
                None => "neither a folder nor an archive (.tar, .tar.gz, .tgz, .tar.zst, .tzst)",
            };
            Error::refused(path, reason)
        })?;
        Ok(match self.group {
            Some(Grouping::Webdataset) => {
                Box::new(WebDataset::new(tar, &self.payload, self.lossy_path))
            }
            None => Box::new(tar),
        })
    }

    /// A cache written into a source would become a part of it.
    fn refuse_inside(&self, source: &Path) -> Result<()> {
        let source = storage::real_path(source)?;
        let out = match self.out() {
            out if out.is_absolute() => out.to_path_buf(),
            out => storage::real_path(Path::new("."))?.join(out),
        };
        let existing = out.ancestors().find(|dir| storage::exists(dir));
        let real = storage::real_path(existing.unwrap_or(Path::new("/")))?;
        if real.starts_with(&source) {
            let reason = format!("lies inside the source {}", source.display());
            return Err(Error::refused(self.out(), reason));
        }
        Ok(())
    }

    /// What the metadata is made of.
    pub(super) fn plan_options(&self) -> Result<PlanOptions> {
        let join = match &self.metadata {
            None => None,
            Some(path) => Some(JoinOptions {
                path: path.clone(),
                kind: TableKind::by_name(path)
                    .filter(|kind| !matches!(kind, TableKind::Parquet | TableKind::Arrow))
                    .ok_or_else(|| {
                        let reason = "a table of further metadata ends in .jsonl, .csv or .tsv";
                        Error::refused(path, reason)
                    })?,
                key: self.metadata_key.clone(),
            }),
        };
        Ok(PlanOptions {
            path: !self.no_path,
            labels: match (self.label, self.no_label) {
                (true, _) => Labels::Yes,
                (_, true) => Labels::No,
                _ => Labels::Auto,
            },
            choices: FieldChoices {
                types: self.types.iter().cloned().collect(),
                dropped: self.drop.iter().cloned().collect(),
            },
            lossy: self.lossy_path,
            join,
        })
    }

    /// How the cache is stored.
    pub(super) fn writer_options(&self) -> WriterOptions {
        WriterOptions {
            compression: match self.compression {
                Algorithm::None => Compression::None,
                Algorithm::Lz4 => Compression::Lz4,
            },
            max_shard_bytes: self.max_shard_bytes,
        }
    }

    /// Number of threads.
    pub(super) fn jobs(&self) -> usize {
        self.jobs.map_or_else(
            || std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            usize::from,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_parted_at_the_last_sign() {
        assert_eq!(parse_type("a=int"), Ok(("a".to_owned(), FieldKind::Int)));
        assert_eq!(
            parse_type("a=b=string"),
            Ok(("a=b".to_owned(), FieldKind::String))
        );
        assert!(parse_type("a").is_err() && parse_type("a=double").is_err());
        assert!(parse_shard_bytes("0").is_err() && parse_shard_bytes("1KiB") == Ok(1024));
    }
}
