//! Floats at the edges, and what JSON cannot spell.

use datasetrt::format::metadata::Value;

use crate::common::fixture::{Fixture, Sample, TestCache};
use crate::common::test_cache::record_of;
use crate::refused_samples;

fn floats(values: impl IntoIterator<Item = f64>) -> TestCache {
    let values = values.into_iter();
    let samples = values.map(|x| Sample::new(format!("{x:?}")).with("x", x));
    Fixture::new().samples(samples).build()
}

fn set_float(cache: &TestCache, sample: u64, text: &str) {
    cache.set_json(sample, format!("{{\"x\":{text}}}"));
    cache.reseal();
}

#[test]
fn floats_come_back_bit_by_bit() {
    // The usual fast JSON parser is not the inverse of its own printer: one bit off.
    let values = [
        1.577_777_777_777_000_1,
        0.999_999_999_999_999_9,
        117.633_311_394_000_17,
        5e-324,
        -0.0,
        0.0,
        1e16,
        f64::MAX,
        f64::MIN_POSITIVE,
        -1e-310,
        0.1 + 0.2,
    ];
    let cache = floats(values);
    cache.validated().unwrap();
    assert!(refused_samples(&cache).is_empty());
    let open = cache.open().unwrap();
    let bits = |sample| match open.metadata(sample).unwrap()[..] {
        [Some(Value::Float(x))] => x.to_bits(),
        ref other => panic!("{other:?}"),
    };
    assert_eq!(bits(0), 0x3ff9_3e93_e93e_863b);
    assert_eq!(bits(1), 0x3fef_ffff_ffff_ffff);
    assert_eq!(bits(2), 0x405d_6888_2c83_5a8e);
    assert_eq!(bits(4), 1 << 63);
}

#[test]
fn spellings_that_round_to_the_same_float_agree_and_near_misses_do_not() {
    for (text, value) in [
        ("9007199254740993.0", 9_007_199_254_740_992.0),
        ("1e16", 1e16),
        ("1e+16", 1e16),
        ("10000000000000000.0", 1e16),
        ("1.7976931348623157e308", f64::MAX),
        ("0.0000000000000000000000000000000000000005e-284", 5e-324),
        ("-0.0", 0.0),
        ("0.0", -0.0),
        // No integer: there is no negative zero among them.
        ("-0", -0.0),
    ] {
        let cache = floats([value, 7.5]);
        set_float(&cache, 0, text);
        assert!(refused_samples(&cache).is_empty(), "{text}");
    }
    for (text, value) in [
        ("1.577777777777", 1.577_777_777_777_000_1),
        ("1.5777777777769999", 1.577_777_777_777_000_1),
        ("9007199254740994.0", 9_007_199_254_740_992.0),
        ("0.0", 5e-324),
        ("1", 1.0),
        ("\"1.0\"", 1.0),
    ] {
        let cache = floats([value, 7.5]);
        set_float(&cache, 0, text);
        assert_eq!(
            refused_samples(&cache),
            ["Envelope shards/000000.bin (0)"],
            "{text}"
        );
    }
}

#[test]
fn null_agrees_with_a_float_that_is_not_finite_and_with_nothing_else() {
    // JSON writers make null of NaN and infinities, and then nobody could read the sample.
    let nans = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::from_bits(0x7ff8_0000_0000_0123),
    ];
    let cache = floats(nans.into_iter().chain([1.5]));
    assert_eq!(cache.record(0).0, b"{\"x\":null}");
    cache.validated().unwrap();
    assert!(refused_samples(&cache).is_empty());

    set_float(&cache, 4, "null");
    set_float(&cache, 0, "1.5");
    let refused = refused_samples(&cache);
    assert_eq!(
        refused,
        [
            "Envelope shards/000000.bin (0)",
            "Envelope shards/000000.bin (4)"
        ]
    );
}

#[test]
fn texts_that_are_not_json_numbers_agree_with_nothing() {
    for text in [
        "NaN",
        "1e400",
        "-1e400",
        "Infinity",
        "-Infinity",
        "inf",
        "+1.5",
        ".5",
        "0x1",
        "1.5f",
        "",
    ] {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.5] {
            let cache = floats([value, 7.5]);
            set_float(&cache, 0, text);
            assert_eq!(
                refused_samples(&cache),
                ["Envelope shards/000000.bin (0)"],
                "{text}"
            );
        }
    }
}

#[test]
fn the_message_names_sample_and_field() {
    let cache = floats([1.5, 2.5]);
    set_float(&cache, 1, "1.5");
    let open = cache.open().unwrap();
    let message = open.with_record(1, 0, |_| ()).unwrap_err().chain();
    assert!(
        message.contains("sample 1") && message.contains("\"x\""),
        "{message}"
    );
}

#[test]
fn any_spelling_of_the_same_object_agrees() {
    let cache = Fixture::tiny().build();
    for json in [
        "{\"label\":7,\"name\":\"row 0 \u{e9}\",\"score\":-0.5}",
        "{\"name\":\"row 0 \\u00e9\",\"score\":-5e-1,\"label\":7}",
        " {\r\n\t\"label\" : 7 , \"name\" : \"row 0 \u{e9}\" , \"score\" : -0.50 } ",
        "{\"\\u006cabel\":7,\"name\":\"row 0 \u{e9}\",\"score\":-0.5}",
    ] {
        cache.set_json(0, json);
        cache.reseal();
        assert!(refused_samples(&cache).is_empty(), "{json}");
    }
    for json in [
        "{\"label\":7,\"name\":\"row 0 e\u{301}\",\"score\":-0.5}",
        "{\"label\":7,\"label\":7,\"name\":\"row 0 \u{e9}\",\"score\":-0.5}",
        "{\"label\":7,\"name\":\"row 0 \u{e9}\",\"score\":-0.5,\"more\":1}",
        "{\"label\":7,\"name\":\"row 0 \u{e9}\"}",
        "{\"label\":7.0,\"name\":\"row 0 \u{e9}\",\"score\":-0.5}",
        "{\"label\":\"7\",\"name\":\"row 0 \u{e9}\",\"score\":-0.5}",
        "{\"label\":7,\"name\":\"row 0 \u{e9}\",\"score\":-0.5}\0",
        "{\"label\":7,\"name\":\"row 0 \u{e9}\",\"score\":-0.5}{}",
        "{\"label\":7,\"name\":\"row 0 \u{e9}\",\"score\":-0.5,}",
        "[7,\"row 0 \u{e9}\",-0.5]",
        "",
    ] {
        cache.set_json(0, json);
        cache.reseal();
        assert_eq!(
            refused_samples(&cache),
            ["Envelope shards/000000.bin (0)"],
            "{json}"
        );
    }
}

#[test]
fn white_space_without_end_is_refused_before_it_is_read() {
    // The length of the JSON is a length from the disk: a sparse shard could make it 4 GiB.
    let cache = Fixture::tiny().build();
    let (json, _) = cache.record(1);
    let padded = [&json[..], &vec![b' '; 8 << 20]].concat();
    cache.set_json(1, &padded);
    cache.reseal();
    let (refused, largest) = crate::alloc::largest_of(|| {
        let open = cache.open().unwrap();
        open.with_record(1, 0, |_| ()).unwrap_err()
    });
    assert!(refused.fault().is_some() && largest < 1 << 20, "{largest}");
    assert_eq!(refused_samples(&cache).len(), 1);
}

#[test]
fn a_table_with_long_strings_costs_no_memory_for_a_short_record() {
    // A sparse metadata.arrow may name a string of any length; each of its zeros is spelled in six bytes.
    let long = "\0".repeat(8 << 20);
    let cache = Fixture::new()
        .sample(Sample::new("a").with("text", long.as_str()))
        .sample(Sample::new("b").with("text", "short"))
        .build();
    for record in [
        record_of(b"{}", b"a"),
        // The record is long, and its metadata is not.
        record_of(b"{\"text\":\"\"}", &vec![7; 60 << 20]),
    ] {
        cache.set_record(0, &record);
        cache.reseal();
        let (refused, largest) = crate::alloc::largest_of(|| {
            let open = cache.open().unwrap();
            let refused = open.payload_len_and_trust(0);
            (
                refused.is_err() || refused.is_ok_and(|(_, trusted)| !trusted),
                open.payload_len(1).unwrap(),
            )
        });
        assert_eq!(refused, (true, 1));
        assert!(largest < 2 << 20, "{largest}");
    }
}
