//! Lists of samples that are written to `/.control/prefetch`, one a line.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use serde_json::json;

use super::MOST_PENDING;
use crate::error::json_line;
use crate::vfs::control::later_than;
use crate::vfs::names::parse_decimal;
use crate::vfs::{Ino, Node, Vfs, VfsError, Written};

/// Programs write long lists in pieces of at least this many bytes, which may end inside a line; the
/// kernel may cut a shorter one off that goes on with it, or one that ends where a page of the file
/// does. Any other shorter write is whole lines.
const PIECE: usize = 4096;
/// Bytes of a page of a file in the kernel's memory.
const PAGE: u64 = 4096;
/// A line is at most a path.
const LONGEST_LINE: usize = 4096;
/// Bytes of a refused line that are shown.
const SHOWN: usize = 200;

/// Where a piece of a list ended, which the next one may go on with.
#[derive(Debug)]
pub(super) struct Unfinished {
    node: Ino,
    /// Offset in the file where the next write goes on.
    next: u64,
    /// What stands behind the last end of a line: the start of a line, or a whole one if nothing
    /// follows.
    text: Vec<u8>,
    /// The sample that it names as a whole line.
    sample: Option<Ino>,
    /// It was taken for a whole line, since nothing had followed when all others were done.
    taken: bool,
}

impl Unfinished {
    /// The sample of the line, as if nothing followed; once.
    pub(super) fn take(&mut self) -> Option<Ino> {
        let sample = self.sample.filter(|_| !self.taken)?;
        self.taken = true;
        Some(sample)
    }
}

/// A line that names no sample.
#[derive(Debug)]
struct BadLine {
    /// From 1, in what was written at once.
    number: usize,
    text: String,
    reason: String,
}

impl Vfs {
    /// Takes a list, or the next piece of one, to be read ahead. All of its lines or none.
    pub(in crate::vfs) fn start_prefetch(
        self: &Arc<Self>,
        node: Ino,
        offset: u64,
        data: &[u8],
    ) -> Written {
        let (vfs, data) = (Arc::clone(self), data.to_vec());
        // A path may lead into a view that has to be built.
        Written::Later(Box::new(move || vfs.take_list(node, offset, data)))
    }

    fn take_list(self: &Arc<Self>, node: Ino, offset: u64, data: Vec<u8>) -> Result<(), VfsError> {
        let end = offset.saturating_add(data.len() as u64);
        let start = self.goes_on(node, offset);
        let is_piece = data.len() >= PIECE || end.is_multiple_of(PAGE) || start.is_some();
        let mut text = start.unwrap_or_default();
        text.extend_from_slice(&data);
        let ended = text.iter().rposition(|byte| *byte == b'\n');
        let whole = match is_piece {
            true => ended.map_or(0, |at| at + 1),
            false => text.len(),
        };
        let rest = text.split_off(whole);
        let taken = self.samples_of(&text).and_then(|samples| {
            if rest.len() <= LONGEST_LINE {
                return Ok(samples);
            }
            Err(BadLine {
                number: text.split(|byte| *byte == b'\n').count(),
                text: shown(&rest),
                reason: format!("more than {LONGEST_LINE} bytes"),
            })
        });
        let samples = match taken {
            Ok(samples) => samples,
            Err(bad) => {
                log::warn!(
                    "prefetch: line {} was refused, and all that was written with it: {:?}: {}",
                    bad.number,
                    bad.text,
                    bad.reason
                );
                let refused = json!({"line": bad.number, "text": bad.text, "reason": bad.reason});
                self.say(&json!({ "refused": refused }));
                return Err(VfsError::BadControlWord);
            }
        };
        let sample = (!rest.is_empty()).then(|| self.sample_of(&rest).ok());
        let mut state = self.prefetch.lock();
        if state.pending.len() + samples.len() > MOST_PENDING {
            drop(state);
            let reason = format!("{MOST_PENDING} samples may wait at a time");
            self.say(&json!({"refused": {"reason": reason}}));
            return Err(VfsError::Busy);
        }
        let accepted = samples.len();
        state.progress.accepted += accepted as u64;
        state.pending.extend(samples);
        state.unfinished = is_piece.then(|| Unfinished {
            node,
            next: end,
            text: rest,
            sample: sample.flatten(),
            taken: false,
        });
        self.prefetch.update(&mut state);
        drop(state);
        self.say(&json!({ "accepted": accepted }));
        self.start_prefetching();
        Ok(())
    }

    /// The start of the line that a write at `offset` goes on with; `None` when it begins a list. The
    /// last line of a list that nobody has gone on with is then taken for a whole one.
    fn goes_on(&self, node: Ino, offset: u64) -> Option<Vec<u8>> {
        let mut state = self.prefetch.lock();
        let mut unfinished = state.unfinished.take()?;
        if unfinished.node == node && unfinished.next == offset {
            state.progress.accepted -= u64::from(unfinished.taken);
            return Some(unfinished.text);
        }
        if let Some(sample) = unfinished.take() {
            state.progress.accepted += 1;
            state.pending.push_back(sample);
        } else if unfinished.sample.is_none() && !unfinished.text.is_empty() {
            let line = shown(&unfinished.text);
            log::warn!("prefetch: the last line of a list names no sample: {line:?}");
        }
        None
    }

    /// The samples that the lines of `text` name; empty lines name none.
    fn samples_of(&self, text: &[u8]) -> Result<Vec<Ino>, BadLine> {
        let lines = text.split(|byte| *byte == b'\n').enumerate();
        let lines = lines.filter(|(_, line)| !line.is_empty());
        lines
            .map(|(n, line)| {
                self.sample_of(line).map_err(|reason| BadLine {
                    number: n + 1,
                    text: shown(line),
                    reason,
                })
            })
            .collect()
    }

    /// The sample that a line names: as `<cache_id>/<sample_id>`, or by a path in this mount.
    fn sample_of(&self, line: &[u8]) -> Result<Ino, String> {
        if let Some(sample) = self.sample_by_ids(line) {
            return Ok(sample);
        }
        let mountpoint = self.options.mountpoint.as_os_str().as_bytes();
        let below = line
            .strip_prefix(mountpoint)
            .filter(|rest| rest.first() == Some(&b'/'));
        let found = match below.map(|below| self.walk(below)) {
            Some(Ok(node)) => Ok(node),
            // `/` may be that of the mount too.
            _ => self.walk(line),
        };
        let is_elsewhere = below.is_none() && line.first() == Some(&b'/');
        match found {
            Ok(node @ Node::Sample(..)) => Ok(self.ino(node)),
            Err(VfsError::NotFound) if is_elsewhere => {
                Err(format!("not below {}", self.options.mountpoint.display()))
            }
            Ok(_) => Err("not a sample".to_owned()),
            Err(VfsError::NotFound | VfsError::NotADirectory | VfsError::NameTooLong) => {
                Err("no such sample".to_owned())
            }
            Err(error) => Err(format!("cannot be looked up: {error:?}")),
        }
    }

    fn sample_by_ids(&self, line: &[u8]) -> Option<Ino> {
        let slash = line.iter().position(|byte| *byte == b'/')?;
        let (id, sample) = (line.get(..slash)?, line.get(slash + 1..)?);
        let mounted = self.by_decimal(OsStr::from_bytes(id))?;
        let sample = parse_decimal(OsStr::from_bytes(sample))?;
        let exists = sample < mounted.cache().sample_count();
        exists.then(|| self.ino(Node::Sample(mounted.slot(), sample)))
    }

    /// The node at a path below the root. Links are followed; nothing is read of samples.
    fn walk(&self, path: &[u8]) -> Result<Node, VfsError> {
        let mut at = Node::Root;
        for name in path.split(|byte| *byte == b'/') {
            if name.is_empty() || name == b"." {
                continue;
            }
            let name = OsStr::from_bytes(name);
            at = match at {
                Node::SampleDir(slot) => {
                    let count = self.mounted(slot)?.cache().sample_count();
                    let sample = parse_decimal(name).filter(|sample| *sample < count);
                    Node::Sample(slot, sample.ok_or(VfsError::NotFound)?)
                }
                Node::ViewDir(view, folder) => self
                    .find_in_view(view, folder, name)?
                    .ok_or(VfsError::NotFound)?,
                other => self.node(self.lookup(self.ino(other), name)?.ino)?,
            };
            if let Node::NameLink(slot) = at {
                at = Node::SampleDir(slot);
            }
        }
        Ok(at)
    }

    /// Sets what reading the file gives.
    fn say(&self, text: &serde_json::Value) {
        let mut state = self.prefetch.lock();
        state.said = (json_line(text) + "\n").into_bytes().into();
        state.changed = later_than(state.changed);
    }
}

fn shown(line: &[u8]) -> String {
    let start = line.get(..SHOWN).unwrap_or(line);
    String::from_utf8_lossy(start).into_owned()
}
