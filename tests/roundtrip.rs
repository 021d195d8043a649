//! Whatever is written is read back equal, whole and in any piece.

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

use common::fixture::{Fixture, Sample, TestCache};
use common::json::Json;
use common::{Delivered, arrow_rewrite, deliver_all};
use datasetrt::cache::Cache;
use datasetrt::format::metadata::{FieldKind, Value};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

/// Text of any sort: control characters, quotes, surrogates' neighbours, several planes.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-z]{1,14}",
        vec(any::<char>(), 0..40).prop_map(String::from_iter),
        vec(
            prop_oneof![
                Just('\0'),
                Just('"'),
                Just('\\'),
                Just('\u{1f}'),
                Just('\u{7f}'),
                Just('\u{2028}'),
                Just('\u{feff}'),
                Just('\u{fffd}'),
                Just('\u{10ffff}')
            ],
            0..20
        )
        .prop_map(String::from_iter),
    ]
}

fn kind() -> impl Strategy<Value = FieldKind> {
    prop_oneof![
        Just(FieldKind::Bool),
        Just(FieldKind::Int),
        Just(FieldKind::Float),
        Just(FieldKind::String)
    ]
}

/// Finite floats by their bits, so that subnormal and integral ones are among them.
fn float() -> impl Strategy<Value = f64> {
    let special = [
        0.0,
        -0.0,
        1e15,
        1e16,
        1e-5,
        1e-6,
        5e-324,
        f64::MAX,
        9_007_199_254_740_993.0,
    ];
    prop_oneof![
        any::<u64>().prop_map(f64::from_bits),
        any::<i64>().prop_map(|n| n as f64),
        proptest::sample::select(special.to_vec()),
    ]
    .prop_filter("finite", |x| x.is_finite())
}

fn value(kind: FieldKind) -> BoxedStrategy<Value> {
    match kind {
        FieldKind::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        FieldKind::Int => {
            let edges = [i64::MIN, -1, 0, i64::MAX];
            prop_oneof![any::<i64>(), proptest::sample::select(edges.to_vec())]
                .prop_map(Value::Int)
                .boxed()
        }
        FieldKind::Float => float().prop_map(Value::Float).boxed(),
        FieldKind::String => text().prop_map(Value::String).boxed(),
    }
}

/// Payloads that compress well, badly, and around the lengths where reading ahead ends.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..300),
        (any::<u8>(), 0_usize..3000).prop_map(|(byte, len)| vec![byte; len]),
        (vec(any::<u8>(), 1..9), 0_usize..400).prop_map(|(unit, times)| unit.repeat(times)),
        ((16_usize << 10) - 2..(16 << 10) + 3).prop_map(|len| vec![b'x'; len]),
    ]
}

/// Samples that share a schema.
fn samples() -> impl Strategy<Value = (Vec<(String, FieldKind)>, Vec<Sample>)> {
    btree_map(text(), kind(), 0..5).prop_flat_map(|fields| {
        let fields: Vec<(String, FieldKind)> = fields.into_iter().collect();
        let row: Vec<_> = fields.iter().map(|(_, kind)| value(*kind)).collect();
        let names: Vec<String> = fields.iter().map(|(name, _)| name.clone()).collect();
        let sample = (payload(), row).prop_map(move |(payload, values)| {
            let mut sample = Sample::new(payload);
            sample.metadata = names.iter().cloned().zip(values).collect();
            sample
        });
        (Just(fields), vec(sample, 0..7))
    })
}

/// A cache of any settings.
fn cache() -> impl Strategy<Value = TestCache> {
    let settings = (
        text(),
        any::<bool>(),
        any::<bool>(),
        1_u64..4000,
        any::<u64>(),
    );
    (samples(), settings).prop_map(|((fields, samples), (name, lz4, v2, max, id))| {
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, kind)| (name.as_str(), *kind))
            .collect();
        let mut fixture = Fixture::new().name(&name).schema(&fields).samples(samples);
        fixture = fixture.max_shard_bytes(max).cache_id(id);
        fixture = if lz4 { fixture.lz4() } else { fixture };
        if v2 { fixture.v2() } else { fixture }.build()
    })
}

fn assert_all_right(cache: &TestCache, open: &Cache) {
    assert_eq!(open.sample_count(), cache.samples.len() as u64);
    for (sample, found) in (0..).zip(deliver_all(open)) {
        let found: Delivered = found.unwrap_or_else(|e| panic!("{}", e.chain()));
        assert!(
            found.same(&cache.expected(sample)),
            "sample {sample}: {found:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(192) })]

    #[test]
    fn what_is_written_is_read_back_equal(cache in cache()) {
        let dataset = cache.validated().unwrap_or_else(|e| panic!("{}", e.chain()));
        assert_all_right(&cache, &dataset.entries()[0].cache);
    }

    #[test]
    fn any_piece_is_that_slice_of_the_payload(
        payload in payload(),
        offset in any::<proptest::sample::Index>(),
        size in any::<proptest::sample::Index>(),
        wanted in prop_oneof![Just(0_u64), 1_u64..40_000, Just(u64::MAX)],
    ) {
        let cache = Fixture::new().payloads(["before", "", "after"]).build();
        let cache = Fixture::new()
            .samples([cache.samples[0].clone(), Sample::new(&payload).with("n", 1), cache.samples[2].clone()])
            .build();
        let offset = offset.index(payload.len() + 1);
        let size = size.index(payload.len() - offset + 1);
        let mut out = vec![0x55; size];
        let open = cache.open().unwrap();
        let read = open.with_record(1, wanted, |record| record.read(offset as u64, &mut out));
        read.unwrap().unwrap();
        prop_assert_eq!(&out[..], &payload[offset..offset + size]);
    }

    #[test]
    fn another_spelling_of_the_metadata_changes_nothing(cache in cache()) {
        for sample in 0..cache.samples.len() as u64 {
            let (json, _) = cache.record(sample);
            let mut json = Json::parse(std::str::from_utf8(&json).unwrap());
            if let Json::Object(items) = &mut json {
                items.reverse();
            }
            cache.set_json(sample, json.to_text());
        }
        cache.reseal();
        assert_all_right(&cache, &cache.open().unwrap());
    }

    #[test]
    fn another_spelling_of_the_table_changes_nothing(
        cache in cache(),
        how in proptest::sample::select(vec!["plain", "large_utf8", "utf8_view", "two_batches", "nullable"]),
    ) {
        if !cache.samples.is_empty() && !cache.schema.is_empty() {
            cache.edit("metadata.arrow", |bytes| *bytes = arrow_rewrite::rewrite(bytes, how));
            cache.reseal();
            assert_all_right(&cache, &cache.open().unwrap());
        }
    }

    #[test]
    fn a_changed_value_is_noticed(cache in cache(), sample in any::<proptest::sample::Index>()) {
        if !cache.samples.is_empty() && !cache.schema.is_empty() {
            let sample = sample.index(cache.samples.len()) as u64;
            let (json, _) = cache.record(sample);
            let mut json = Json::parse(std::str::from_utf8(&json).unwrap());
            if let Json::Object(items) = &mut json {
                let value = &mut items[0].1;
                let other = match value.raw() {
                    "true" => "false".to_owned(),
                    "false" => "true".to_owned(),
                    text if text.starts_with('"') => format!("\"x{}", &text[1..]),
                    number => format!("{}1", number.trim_end_matches('1')),
                };
                if *value == Json::Scalar(other.clone()) {
                    return Ok(());
                }
                *value = Json::Scalar(other);
            }
            cache.set_json(sample, json.to_text());
            cache.reseal();
            let delivered = deliver_all(&cache.open().unwrap());
            // A digit more may not change a float: then it is the same value in another spelling.
            if let Ok(found) = &delivered[sample as usize] {
                let float = matches!(found.metadata[0], Some(Value::Float(_)));
                prop_assert!(float && found.same(&cache.expected(sample)));
            }
        }
    }
}
