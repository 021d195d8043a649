//! `/metadata.arrow`: one table over the samples of all caches, made when it is first looked up.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;

use super::generated::Source;
use super::{Attr, FileKind, Node, Vfs, VfsError};
use crate::dataset::Entry;
use crate::error::Result;
use crate::format::metadata::{Field, JOINED_COLUMNS, JoinedRow, JoinedWriter};
use crate::view::Union;

impl Vfs {
    fn with_joined_table<T>(
        &self,
        work: impl FnOnce(&Source<'_>) -> Result<T, VfsError>,
    ) -> Result<T, VfsError> {
        for entry in self.dataset.entries() {
            let trusted = entry.cache.table();
            trusted.map_err(|error| VfsError::Damaged(Arc::new(error)))?;
        }
        work(&Source {
            node: Node::JoinedTable,
            what: "/metadata.arrow".to_owned(),
            known: &self.joined,
            // The caches of the start, so that it is the same each time.
            write: &|out| write_table(self.dataset.entries(), out),
        })
    }

    pub(super) fn read_joined_table(&self, offset: u64, out: &mut [u8]) -> Result<usize, VfsError> {
        self.with_joined_table(|source| self.read_generated(source, offset, out))
    }

    pub(super) fn joined_attr(&self) -> Result<Attr, VfsError> {
        let len = self.with_joined_table(|source| self.generated_len(source))?;
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

fn write_table(entries: &[Entry], out: &mut dyn Write) -> io::Result<()> {
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
            let trusted = entry.cache.table().map_err(io::Error::other)?;
            let metadata = trusted.row(sample);
            let values = union.fields(cache).iter();
            let values = values.map(|field| metadata?.value((*field)?).ok()?);
            table.push(row, values)?;
            trusted.check().map_err(io::Error::other)?;
        }
    }
    table.finish().map(drop)
}
