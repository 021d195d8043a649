//! One JSON object a line.

use std::io::{self, Write};

use super::Listing;
use crate::cache::Cache;
use crate::error::{Result, json_line, printable_json};

pub(super) struct Lines {
    out: Box<dyn Write>,
    metadata: Vec<u8>,
}

impl Lines {
    pub(super) fn new(out: Box<dyn Write>) -> Self {
        Self {
            out,
            metadata: Vec::new(),
        }
    }
}

impl Listing for Lines {
    fn good(&mut self, cache: &Cache, sample: u64, size: u64) -> Result<io::Result<()>> {
        cache.write_metadata_json(sample, &mut self.metadata)?;
        let start = format!(r#"{{"sample_id":{sample},"size":{size},"metadata":"#);
        let metadata = String::from_utf8_lossy(&self.metadata);
        let metadata = printable_json(&metadata);
        let parts = [start.as_bytes(), metadata.as_bytes(), b"}\n"];
        Ok(parts.iter().try_for_each(|part| self.out.write_all(part)))
    }

    fn damaged(&mut self, sample: u64, reason: &str) -> io::Result<()> {
        let reason = json_line(&reason);
        writeln!(self.out, r#"{{"sample_id":{sample},"damaged":{reason}}}"#)
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.out.flush()
    }
}
