//! The flatbuffers in Arrow files, verified before they are read.
//!
//! A flatbuffer may refer to one table many times, and arrow makes a copy for each: a schema of one
//! kilobyte whose fields share their children becomes gigabytes. What a message comes to when nothing
//! is shared is bounded here by its own length.

use arrow_ipc::{Footer, Message, root_as_footer_with_opts, root_as_message_with_opts};
use flatbuffers::{InvalidFlatbuffer, VerifierOptions};

/// How often writers refer to the same bytes, beyond anything seen: they share small things, as the
/// descriptions of tables.
const SHARED: usize = 16;
/// Least bytes of a table, its description shared.
const TABLE_LEN: usize = 4;

pub(super) fn footer(bytes: &[u8]) -> Result<Footer<'_>, InvalidFlatbuffer> {
    root_as_footer_with_opts(&options(bytes), bytes)
}

pub(super) fn message(bytes: &[u8]) -> Result<Message<'_>, InvalidFlatbuffer> {
    root_as_message_with_opts(&options(bytes), bytes)
}

fn options(bytes: &[u8]) -> VerifierOptions {
    VerifierOptions {
        max_tables: bytes.len() / TABLE_LEN,
        max_apparent_size: bytes.len().saturating_mul(SHARED),
        ..VerifierOptions::default()
    }
}
