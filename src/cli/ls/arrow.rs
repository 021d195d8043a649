//! An Arrow IPC file of the good samples.

use std::io::{self, Write};

use super::{Listing, PROGRAM};
use crate::cache::Cache;
use crate::error::Result;
use crate::format::metadata::{Field, FieldKind, TableWriter, ValueRef};

pub(super) struct Arrow {
    table: TableWriter<Box<dyn Write>>,
}

impl Arrow {
    pub(super) fn new(out: Box<dyn Write>, cache: &Cache) -> io::Result<Self> {
        let schema = &cache.manifest().schema;
        let ours = ["sample_id", "size"].map(|name| Field {
            name: free(name, schema),
            kind: FieldKind::Int,
        });
        let fields: Vec<Field> = ours.into_iter().chain(schema.iter().cloned()).collect();
        Ok(Self {
            table: TableWriter::new(out, &fields)?,
        })
    }
}

/// `name`, after as many underscores as it takes not to be a metadata field.
fn free(name: &str, schema: &[Field]) -> String {
    let mut name = name.to_owned();
    while schema.iter().any(|field| field.name == name) {
        name.insert(0, '_');
    }
    name
}

impl Listing for Arrow {
    fn good(&mut self, cache: &Cache, sample: u64, size: u64) -> Result<io::Result<()>> {
        let metadata = cache.metadata(sample)?;
        let values = metadata.iter().flatten().map(|value| value.borrowed());
        let ours = [sample, size].map(i64::try_from);
        let [Ok(sample), Ok(size)] = ours else {
            return Ok(Err(io::Error::from(io::ErrorKind::InvalidData)));
        };
        let ours = [ValueRef::Int(sample), ValueRef::Int(size)];
        Ok(self.table.push(ours.into_iter().chain(values)))
    }

    fn damaged(&mut self, _: u64, reason: &str) -> io::Result<()> {
        // stdout may be the file, so this one message is for people only.
        crate::cli::say(format_args!("{PROGRAM}: damaged: {}", reason));
        Ok(())
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        self.table.finish()?.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_columns_step_aside_for_fields_of_the_same_name() {
        let field = |name: &str| Field {
            name: name.to_owned(),
            kind: FieldKind::Int,
        };
        let schema = [field("size"), field("_size")];
        assert_eq!(free("size", &schema), "__size");
        assert_eq!(free("sample_id", &schema), "sample_id");
    }
}
