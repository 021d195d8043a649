//! `metadata.jsonl` of a view: one JSON object for each file of it, with the file's path in the view
//! and the sample's metadata, as Hugging Face loaders read it.

use std::io::{self, Write};

use serde::Serialize;

use super::super::generated::Source;
use super::super::{Attr, FileKind, Node, Vfs, VfsError};
use super::LINES_FILE;
use crate::error::Result;
use crate::format::metadata::ValueRef;
use crate::view::{Scope, Union};

/// The key of the path.
const FILE_NAME: &str = "file_name";

impl Vfs {
    fn with_view_lines<T>(
        &self,
        view: u32,
        work: impl FnOnce(&Source<'_>) -> Result<T, VfsError>,
    ) -> Result<T, VfsError> {
        let built = self.built(view)?;
        if !built.index.has_lines {
            return Err(VfsError::NotFound);
        }
        self.trusted_tables(built.shown)?;
        work(&Source {
            node: Node::ViewLines(view),
            what: format!("/views/{}/{LINES_FILE}", built.shown.view.name()),
            known: &built.shown.lines,
            write: &|out| self.write_lines(&built, out),
        })
    }

    pub(in crate::vfs) fn read_view_lines(
        &self,
        view: u32,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize, VfsError> {
        self.with_view_lines(view, |source| self.read_generated(source, offset, out))
    }

    /// Its attributes; its length is not known before it was counted.
    pub(in crate::vfs) fn view_lines_attr(&self, view: u32) -> Result<Attr, VfsError> {
        let len = self.with_view_lines(view, |source| self.generated_len(source))?;
        let permissions = self.views.permissions(view).ok_or(VfsError::NotFound)?;
        let ino = self.ino(Node::ViewLines(view));
        Ok(Attr {
            perm: permissions.file,
            uid: permissions.uid,
            gid: permissions.gid,
            ..self.plain(ino, FileKind::File, len, self.newest)
        })
    }

    fn write_lines(&self, built: &super::Built<'_>, out: &mut dyn Write) -> io::Result<()> {
        let corpus = &self.views.corpus;
        let union = Union::new(corpus.entries(), &[FILE_NAME]);
        let keys = union.columns().iter().map(|column| {
            let mut key = b",".to_vec();
            push_json(&mut key, &column.name)?;
            key.push(b':');
            Ok(key)
        });
        let keys = keys.collect::<io::Result<Vec<_>>>()?;
        let names = self.views.names(built.shown);
        // In the order of the samples, not of the folders: so the metadata is read once, in order.
        let mut ordinals = built.index.files.clone();
        ordinals.sort_unstable();
        let (mut path, mut line) = (Vec::new(), Vec::new());
        let sniffs = built.shown.view.template().ends_in_ext();
        for (n, ordinal) in ordinals.iter().enumerate() {
            let Some(subject) = corpus.subject(*ordinal) else {
                continue;
            };
            if sniffs && !corpus.is_known(subject) {
                corpus.look_ahead(ordinals.get(n..).unwrap_or_default());
            }
            let suffixed = &built.index.suffixed;
            if names
                .full(*ordinal, Scope::Path, suffixed, &mut path)
                .is_err()
            {
                continue;
            }
            built.index.show_folders(&names, &mut path);
            line.clear();
            line.push(b'{');
            push_json(&mut line, FILE_NAME)?;
            line.push(b':');
            push_json(&mut line, &String::from_utf8_lossy(&path))?;
            let cache = &subject.entry.cache;
            let table = cache.table().map_err(io::Error::other)?;
            let row = table.row(subject.sample);
            for (key, field) in keys.iter().zip(union.fields(subject.cache)) {
                let Some(column) = field else {
                    continue;
                };
                line.extend_from_slice(key);
                let value = row.and_then(|row| row.value(*column).ok()?);
                match value {
                    None => push_json(&mut line, &())?,
                    Some(ValueRef::Bool(value)) => push_json(&mut line, &value)?,
                    Some(ValueRef::Int(value)) => push_json(&mut line, &value)?,
                    Some(ValueRef::Float(value)) => push_json(&mut line, &value)?,
                    Some(ValueRef::String(value)) => push_json(&mut line, value)?,
                }
            }
            line.extend_from_slice(b"}\n");
            table.check().map_err(io::Error::other)?;
            out.write_all(&line)?;
        }
        self.counters.note_names(names.made());
        Ok(())
    }
}

fn push_json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> io::Result<()> {
    serde_json::to_writer(out, value).map_err(io::Error::from)
}
