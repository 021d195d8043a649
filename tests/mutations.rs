//! 187 kinds of damage whose verdict by the reference is known: ours is a refusal, an error for the
//! samples concerned, or right bytes. Where the two programs differ, it is on purpose and listed in
//! docs/reference-differences.md.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test may panic"
)]

mod common;
#[path = "mutations/differences.rs"]
mod differences;

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::OnceLock;

use datasetrt::dataset::Dataset;
use datasetrt::format::digest::Sha256Digest;

use common::golden::{self, ExpectedSample};
use common::json::Json;
use common::lz4::decode_payload;
use common::{deliver, mutate, same_rows};
use differences::{DIFFERENCES, READ_ALTHOUGH_REFUSED, Where};

/// Opened as it is, or with every sum checked.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Mode {
    Plain,
    Validated,
}

const MODES: [Mode; 2] = [Mode::Plain, Mode::Validated];

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "unvalidated",
            Self::Validated => "validated",
        }
    }
}

/// What a reader makes of a damaged cache.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Verdict {
    Refused,
    /// The process ends.
    Dies,
    /// Samples as in the undamaged cache, samples with other content, samples refused.
    Read {
        right: usize,
        other: usize,
        errors: usize,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Refused => f.write_str("refused"),
            Self::Dies => f.write_str("process dies"),
            Self::Read {
                right,
                other,
                errors,
            } => {
                write!(f, "{right} right")?;
                if other > 0 {
                    write!(f, ", {other} other")?;
                }
                if errors > 0 {
                    write!(f, ", {errors} refused")?;
                }
                Ok(())
            }
        }
    }
}

struct Mutation {
    id: String,
    base: String,
    ops: Json,
    reference: serde_json::Value,
}

impl Mutation {
    /// The verdict of the reference's reader of both formats.
    fn reference(&self, mode: Mode, samples: usize) -> Verdict {
        let verdict = ["all", "v3", mode.name()]
            .iter()
            .find_map(|key| self.reference.get(key))
            .unwrap_or_else(|| panic!("{}: no verdict", self.id));
        if verdict.get("load_error").is_some() {
            return Verdict::Refused;
        }
        if verdict.get("process_aborted").is_some() {
            return Verdict::Dies;
        }
        let count = |key: &str| usize::try_from(verdict[key].as_u64().unwrap()).unwrap();
        Verdict::Read {
            right: count("same_as_base"),
            other: count("read_ok") - count("same_as_base"),
            errors: samples - count("read_ok"),
        }
    }

    /// The payload that the mutation itself gave to `sample`, by a record that is valid.
    fn rewritten(&self, sample: u64) -> Option<Vec<u8>> {
        let op = self.ops.items().iter().find(|op| {
            op.text_at("op") == "append_record" && op.number_at::<u64>("row") == sample
        })?;
        assert_eq!(self.base, "v2-before-migration", "an lz4 cache");
        decode_payload(&mutate::stored_payload(op))
    }
}

fn mutations(dir: &Path) -> Vec<Mutation> {
    let text = golden::expected_text(dir, "mutations.json");
    let verdicts: serde_json::Value = serde_json::from_str(&text).unwrap();
    let verdicts = verdicts["mutations"].as_array().unwrap();
    let json = Json::parse(&text);
    let list = json.get("mutations").unwrap().items();
    let both = list.iter().zip(verdicts);
    both.map(|(mutation, verdict)| Mutation {
        id: mutation.text_at("id"),
        base: mutation.text_at("base"),
        ops: mutation.get("ops").unwrap().clone(),
        reference: verdict["reference"].clone(),
    })
    .collect()
}

/// Damages that only a checksum shows: served as they are without validation, as by the reference.
const SEEN_BY_SUMS_ONLY: [&str; 3] = [
    "shard-payload-bit-flip",
    "compression-algo-none-for-lz4",
    "compression-mixed-one-shard-flipped",
];

/// What we make of the cache in `dir`. A sample that differs from the undamaged one, and that the
/// mutation did not itself rewrite, is a failure of this test unless only sums could show it.
fn our_verdict(mutation: &Mutation, dir: &Path, mode: Mode, base: &[ExpectedSample]) -> Verdict {
    let Ok(mut dataset) = Dataset::open(&[dir.to_path_buf()]) else {
        return Verdict::Refused;
    };
    if mode == Mode::Validated && dataset.validate(false, &|_| ()).is_err() {
        return Verdict::Refused;
    }
    let cache = &dataset.entries()[0].cache;
    assert_eq!(cache.sample_count(), base.len() as u64, "{}", mutation.id);
    let (mut right, mut other, mut errors) = (0, 0, 0);
    for (id, expected) in (0_u64..).zip(base) {
        let Ok(found) = deliver(cache, id) else {
            errors += 1;
            continue;
        };
        let place = format!("{} ({mode:?}), sample {id}", mutation.id);
        let metadata: Vec<_> = expected.metadata.iter().cloned().map(Some).collect();
        assert!(same_rows(&found.metadata, &metadata), "{place}: metadata");
        if Sha256Digest::of(&found.payload).to_string() == expected.sha256 {
            right += 1;
            continue;
        }
        other += 1;
        let seen_by_sums = SEEN_BY_SUMS_ONLY.contains(&mutation.id.as_str());
        let allowed = match mutation.rewritten(id) {
            Some(payload) => payload == found.payload,
            None => seen_by_sums && mode == Mode::Plain,
        };
        assert!(allowed, "{place}: other bytes were delivered");
    }
    Verdict::Read {
        right,
        other,
        errors,
    }
}

/// Every mutation with the verdicts of both programs, in both modes.
fn all_verdicts(dir: &Path) -> &'static [(String, Mode, Verdict, Verdict)] {
    // The tests of this file look at one run from different sides.
    static VERDICTS: OnceLock<Vec<(String, Mode, Verdict, Verdict)>> = OnceLock::new();
    VERDICTS.get_or_init(|| find_verdicts(dir))
}

fn find_verdicts(dir: &Path) -> Vec<(String, Mode, Verdict, Verdict)> {
    let mut bases: BTreeMap<String, Vec<ExpectedSample>> = BTreeMap::new();
    let mut verdicts = Vec::new();
    for mutation in mutations(dir) {
        let temp = tempfile::TempDir::new().unwrap();
        let copy = temp.path().join("cache");
        golden::copy_cache(&dir.join(&mutation.base), &copy);
        mutate::apply(&copy, &mutation.ops);
        let base = bases
            .entry(mutation.base.clone())
            .or_insert_with(|| golden::expected(dir, &mutation.base).samples);
        for mode in MODES {
            let ours = catch_unwind(AssertUnwindSafe(|| {
                our_verdict(&mutation, &copy, mode, base)
            }))
            .unwrap_or_else(|_| panic!("{} ({mode:?}): see the panic above", mutation.id));
            let reference = mutation.reference(mode, base.len());
            verdicts.push((mutation.id.clone(), mode, reference, ours));
        }
    }
    verdicts
}

/// One line of the document's tables.
fn line(id: &str, mode: Mode, reference: &Verdict, ours: &Verdict) -> String {
    format!("| `{id}` | {} | {reference} | {ours} |", mode.name())
}

#[test]
fn damage_ends_in_a_refusal_an_error_or_right_bytes_and_differences_are_on_purpose() {
    let Some(dir) = golden::dir() else { return };
    let verdicts = all_verdicts(&dir);
    assert_eq!(verdicts.len(), 2 * 187);

    let mut sections: Vec<String> = DIFFERENCES
        .iter()
        .map(|difference| {
            format!(
                "### {}\n\n{}\n\n| damage | mode | DatasetRT | datasetrt-mount |\n|---|---|---|---|\n",
                difference.title, difference.reason
            )
        })
        .collect();
    let mut listed = 0;
    let mut unlisted = Vec::new();
    for (id, mode, reference, ours) in verdicts {
        if reference == ours {
            continue;
        }
        let line = line(id, *mode, reference, ours);
        let place = DIFFERENCES.iter().position(|difference| {
            difference.damage.iter().any(|(listed, modes)| {
                listed == id
                    && match modes {
                        Where::Both => true,
                        Where::Plain => *mode == Mode::Plain,
                        Where::Validated => *mode == Mode::Validated,
                    }
            })
        });
        match place {
            Some(place) => {
                sections[place].push_str(&line);
                sections[place].push('\n');
                listed += 1;
            }
            None => unlisted.push(line),
        }
    }
    assert!(
        unlisted.is_empty(),
        "new differences:\n{}",
        unlisted.join("\n")
    );
    let promised: usize = DIFFERENCES
        .iter()
        .flat_map(|difference| difference.damage)
        .map(|(_, modes)| if *modes == Where::Both { 2 } else { 1 })
        .sum();
    assert_eq!(listed, promised, "a listed difference is none any more");

    let text = sections.join("\n");
    println!("{text}");
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference-differences.md");
    let document = std::fs::read_to_string(document).unwrap();
    assert!(
        document.contains(&text),
        "docs/reference-differences.md does not have these sections:\n\n{text}"
    );
}

#[test]
fn what_the_reference_refuses_when_validating_we_refuse_when_validating() {
    let Some(dir) = golden::dir() else { return };
    let mut read: Vec<String> = all_verdicts(&dir)
        .iter()
        .filter(|(_, mode, reference, ours)| {
            let refuses = |verdict| matches!(verdict, Verdict::Refused | Verdict::Dies);
            *mode == Mode::Validated && refuses(reference.clone()) && !refuses(ours.clone())
        })
        .map(|(id, ..)| id.clone())
        .collect();
    read.sort();
    assert_eq!(read, READ_ALTHOUGH_REFUSED);
}

#[test]
fn a_sample_that_the_reference_refuses_is_not_delivered_here() {
    let Some(dir) = golden::dir() else { return };
    for (id, mode, reference, ours) in all_verdicts(&dir) {
        if let (Verdict::Read { errors: theirs, .. }, Verdict::Read { errors, .. }) =
            (&reference, &ours)
        {
            assert!(
                errors >= theirs,
                "{id} ({mode:?}): {reference}; ours: {ours}"
            );
        }
    }
}
