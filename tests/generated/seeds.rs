//! What the fuzz targets start from: the bytes of sound caches, cut up as each target takes them.

use std::collections::BTreeMap;

use crate::check;
use crate::common::fixture::Fixture;

type Seeds = BTreeMap<String, Vec<u8>>;

fn of_caches(part: impl Fn(usize, &crate::common::fixture::TestCache) -> Vec<u8>) -> Seeds {
    let caches = Fixture::kinds().map(Fixture::build);
    let seed = |(n, cache)| (format!("cache-{n}"), part(n, cache));
    caches.iter().enumerate().map(seed).collect()
}

fn of_texts(texts: &[&str]) -> Seeds {
    let seed = |(n, text): (usize, &&str)| (format!("text-{n}"), text.as_bytes().to_vec());
    texts.iter().enumerate().map(seed).collect()
}

#[test]
fn the_seeds_of_the_fuzz_targets_are_caches_of_today() {
    let seeds = [
        (
            "manifest",
            of_caches(|_, cache| cache.read("manifest.json")),
        ),
        (
            // The first byte chooses a schema: tests/fuzz/support.rs.
            "metadata",
            of_caches(|n, cache| [vec![u8::from(n == 3)], cache.read("metadata.arrow")].concat()),
        ),
        (
            "record",
            of_caches(|n, cache| {
                let row = cache.row(1).encode().to_vec();
                [vec![u8::from(n == 1)], row, cache.read("shards/000000.bin")].concat()
            }),
        ),
        ("lz4", of_caches(|_, cache| cache.record(0).1)),
        ("control_word", of_texts(&["3", " 3\n", "12", "G"])),
        (
            "view",
            of_texts(&[
                "a={t}/{cache_id}-{sample_id:08}{ext}",
                "b={t...|none}/{`n`:04|x}{{}} where t == \"cat\" and not (x > 0.5 or n <= -1)",
                "c={source_name}/{b}-{x}{ext} where b == true",
            ]),
        ),
        // A list of edits is read from any bytes.
        (
            "cache",
            of_caches(|n, cache| [vec![n as u8], cache.read("index.bin")].concat()),
        ),
    ];
    for (target, seeds) in seeds {
        check(&format!("tests/fuzz/seeds/{target}"), &seeds);
    }
}
