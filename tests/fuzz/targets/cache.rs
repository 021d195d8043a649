//! A whole cache with edits that know its structure: opened, read in every way, checked. Bytes that come
//! out are the true ones, unless sums were made to agree with the damage; after a check that passes
//! stale sums they are the true ones in any case.
#![no_main]

use std::cell::RefCell;
use std::panic::AssertUnwindSafe;

use datasetrt::dataset::Dataset;
use datasetrt::format::index::IndexRow;
use datasetrt_fuzz::common::deliver;
use datasetrt_fuzz::common::fixture::{Fixture, TestCache};
use datasetrt_fuzz::let_the_decoder_panic;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum File {
    Manifest,
    Metadata,
    Index,
    Shard,
}

#[derive(Arbitrary, Debug)]
enum Edit {
    Flip {
        file: File,
        at: u16,
        mask: u8,
    },
    Cut {
        file: File,
        len: u16,
    },
    Append {
        file: File,
        bytes: Vec<u8>,
    },
    Number {
        file: File,
        at: u16,
        value: u64,
    },
    Row {
        sample: u8,
        shard: u64,
        offset: u64,
        length: u64,
    },
    Exchange {
        one: u8,
        other: u8,
    },
    Stored {
        sample: u8,
        bytes: Vec<u8>,
    },
    Json {
        sample: u8,
        bytes: Vec<u8>,
    },
    Text {
        old: u8,
        new: u64,
    },
}

#[derive(Arbitrary, Debug)]
struct Input {
    fixture: u8,
    reseal: bool,
    edits: Vec<Edit>,
}

/// Caches, and the files that each has when it is whole.
struct Stock(Vec<(TestCache, Vec<(String, Vec<u8>)>)>);

impl Stock {
    fn new() -> Self {
        Self(
            Fixture::kinds()
                .into_iter()
                .map(|fixture| {
                    let cache = fixture.build();
                    let mut names = vec![
                        "manifest.json".to_owned(),
                        "metadata.arrow".into(),
                        "index.bin".into(),
                    ];
                    let shards = cache
                        .manifest()
                        .get("shards")
                        .map_or(0, |shards| shards.items().len());
                    names.extend((0..shards as u64).map(|n| cache.shard_file(n)));
                    let files = names.into_iter().map(|name| {
                        let bytes = cache.read(&name);
                        (name, bytes)
                    });
                    let files = files.collect();
                    (cache, files)
                })
                .collect(),
        )
    }
}

thread_local! {
    static STOCK: RefCell<Stock> = RefCell::new(Stock::new());
}

fuzz_target!(init: let_the_decoder_panic(), |input: Input| {
    STOCK.with_borrow(|Stock(stock)| {
        let (cache, files) = &stock[usize::from(input.fixture) % stock.len()];
        for (name, bytes) in files {
            cache.put(name, bytes);
        }
        let resealed = damage(cache, files, &input);
        let Ok(mut dataset) = Dataset::open(std::slice::from_ref(&cache.dir)) else {
            return;
        };
        read_all(cache, &dataset, false);
        if dataset.validate(false, &|_| ()).is_ok() {
            read_all(cache, &dataset, !resealed);
        }
    });
});

/// Does the edits. Whether the sums agree with them.
fn damage(cache: &TestCache, files: &[(String, Vec<u8>)], input: &Input) -> bool {
    let count = cache.samples.len() as u64;
    let mut resealed = false;
    for edit in input.edits.iter().take(8) {
        // What an edit needs may be damaged by the one before.
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| apply(cache, files, edit, count)));
        resealed |= done.unwrap_or(true);
    }
    let reseal = || input.reseal.then(|| cache.reseal()).is_some();
    resealed | std::panic::catch_unwind(AssertUnwindSafe(reseal)).unwrap_or(true)
}

/// Does one edit; true when it also makes the sums agree.
fn apply(cache: &TestCache, files: &[(String, Vec<u8>)], edit: &Edit, count: u64) -> bool {
    let name = |file: &File, at: u16| match file {
        File::Manifest => files[0].0.as_str(),
        File::Metadata => files[1].0.as_str(),
        File::Index => files[2].0.as_str(),
        File::Shard => files[3 + usize::from(at) % (files.len() - 3)].0.as_str(),
    };
    let place = |bytes: &[u8], at: u16| usize::from(at) % bytes.len().max(1);
    let sample = |n: u8| u64::from(n) % count;
    match edit {
        Edit::Flip { file, at, mask } => cache.edit(name(file, *at), |bytes| {
            let at = place(bytes, *at);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= mask;
            }
        }),
        Edit::Cut { file, len } => {
            cache.edit(name(file, *len), |bytes| bytes.truncate((*len).into()))
        }
        Edit::Append { file, bytes } => cache.append(name(file, 0), bytes),
        Edit::Number { file, at, value } => cache.edit(name(file, *at), |bytes| {
            let at = place(bytes, *at);
            let room = bytes.len().saturating_sub(at).min(8);
            bytes[at..at + room].copy_from_slice(&value.to_le_bytes()[..room]);
        }),
        Edit::Row {
            sample: n,
            shard,
            offset,
            length,
        } => {
            let row = IndexRow {
                shard: *shard,
                offset: *offset,
                length: *length,
            };
            cache.edit("index.bin", |bytes| {
                let at = usize::try_from(sample(*n)).unwrap_or(0) * 24;
                if let Some(place) = bytes.get_mut(at..at + 24) {
                    place.copy_from_slice(&row.encode());
                }
            });
        }
        Edit::Exchange { one, other } => cache.edit("index.bin", |bytes| {
            let (one, other) = (sample(*one) as usize * 24, sample(*other) as usize * 24);
            if bytes.len() >= one.max(other) + 24 {
                (0..24).for_each(|n| bytes.swap(one + n, other + n));
            }
        }),
        Edit::Stored { sample: n, bytes } => {
            cache.set_stored(sample(*n), bytes);
            return true;
        }
        Edit::Json { sample: n, bytes } => {
            cache.set_json(sample(*n), bytes);
            return true;
        }
        Edit::Text { old, new } => cache.edit("manifest.json", |bytes| {
            // One of the numbers in the text becomes another.
            let text = String::from_utf8_lossy(bytes).into_owned();
            let starts = text
                .match_indices(|c: char| c.is_ascii_digit())
                .map(|(at, _)| at);
            let starts: Vec<usize> = starts
                .filter(|at| !text[..*at].ends_with(|c: char| c.is_ascii_digit()))
                .collect();
            if let Some(start) = starts.get(usize::from(*old) % starts.len().max(1)) {
                let rest = text[*start..].trim_start_matches(|c: char| c.is_ascii_digit());
                *bytes = format!("{}{new}{rest}", &text[..*start]).into_bytes();
            }
        }),
    }
    false
}

/// Reads all samples. With `same`, what comes is what was written.
fn read_all(cache: &TestCache, dataset: &Dataset, same: bool) {
    let open = &dataset.entries()[0].cache;
    for sample in 0..open.sample_count().min(8) {
        if let Ok(found) = deliver(open, sample)
            && same
        {
            assert!(
                found.same(&cache.expected(sample)),
                "sample {sample} came back changed"
            );
        }
    }
}
