//! `/metadata.arrow`: one table over the samples of all caches, made when it is first looked up.

use std::fmt::Write as _;
use std::io::{self, BufWriter};

use super::lazy_file::written;
use super::{Attr, FileKind, Node, Vfs, VfsError};
use crate::dataset::Entry;
use crate::error::Result;
use crate::format::metadata::{Field, JOINED_COLUMNS, JoinedRow, JoinedWriter};
use crate::storage::ScratchFile;
use crate::view::Union;

/// Its name in messages.
const WHAT: &str = "/metadata.arrow";

impl Vfs {
    /// The table, made if nobody has asked for it before.
    pub(super) fn joined_table(&self) -> Result<&ScratchFile, VfsError> {
        self.joined.get(WHAT, |out| {
            let entries: Vec<_> = self.caches.iter().map(|m| m.entry.clone()).collect();
            write_table(&entries, out).map_err(|source| written(WHAT, source))
        })
    }

    pub(super) fn joined_attr(&self) -> Result<Attr, VfsError> {
        let len = self.joined_table()?.len();
        let permissions = self.caches.shared().table;
        let ino = self.ino(Node::JoinedTable);
        Ok(Attr {
            perm: permissions.file,
            uid: permissions.uid,
            gid: permissions.gid,
            ..self.plain(ino, FileKind::File, len, self.newest)
        })
    }
}

fn write_table(
    entries: &[Entry],
    out: BufWriter<ScratchFile>,
) -> io::Result<BufWriter<ScratchFile>> {
    let union = Union::new(entries, &JOINED_COLUMNS);
    let fields = union.columns().iter().map(|column| Field {
        name: column.name.clone(),
        kind: column.kind,
    });
    let mut table = JoinedWriter::new(out, &fields.collect::<Vec<_>>())?;
    let mut path = String::new();
    for (cache, entry) in entries.iter().enumerate() {
        for sample in 0..entry.cache.sample_count() {
            path.clear();
            // Writing into memory does not fail.
            let _ = write!(path, "samples/{}/{sample}", entry.cache_id);
            let row = JoinedRow {
                cache_id: entry.cache_id,
                sample_id: sample,
                path: &path,
                // A damaged sample has a row without a size.
                size: entry.cache.payload_len(sample).ok(),
            };
            let metadata = entry.cache.table().row(sample);
            let values = union.fields(cache).iter();
            let values = values.map(|field| metadata?.value((*field)?).ok()?);
            table.push(row, values)?;
        }
    }
    table.finish()
}
