//! metadata.arrow as others write it and as nobody should, and numbers that are hard to spell.

use arrow_ipc::root_as_footer;
use datasetrt::format::metadata::{FieldKind, Value};

use crate::common::arrow_rewrite::rewrite;
use crate::common::fixture::{Fixture, Sample, TestCache};
use crate::common::mount::{can_mount, program};
use crate::live::{EIO, Live, Place, limited, verify};

fn all_right(live: &Live, cache: &TestCache) {
    for (n, sample) in cache.samples.iter().enumerate() {
        let found = live.read(&format!("samples/0/{n}"));
        assert_eq!(found.unwrap(), sample.payload, "sample {n}");
    }
}

/// Strings of 0, 12, 13 and 200 bytes, around what a view holds in itself.
fn strings() -> Fixture {
    let texts = [
        "",
        "twelve bytes",
        "thirteen byte",
        &"\u{e9}\u{1f600}".repeat(34)[..200],
        "\u{1f600}\u{1f600}\u{1f600}",
    ];
    Fixture::new()
        .v2()
        .samples(texts.into_iter().zip(0..).map(|(text, n)| {
            Sample::new(format!("payload {n}"))
                .with("text", text)
                .with("n", n)
        }))
}

#[test]
fn tables_of_other_writers_are_read_or_refused_by_name() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    for how in [
        "plain",
        "large_utf8",
        "utf8_view",
        "two_batches",
        "three_batches",
        "nullable",
        "extra_column",
        "schema_metadata",
    ] {
        let cache = place.cache(how, strings());
        cache.put(
            "metadata.arrow",
            rewrite(&cache.read("metadata.arrow"), how),
        );
        cache.reseal();
        let mut by = program();
        by.arg("--validate-cache");
        let live = place.mount_by(by, &[&cache]);
        all_right(&live, &cache);
        assert_eq!(
            live.read("caches/0/metadata.arrow").unwrap(),
            cache.read("metadata.arrow"),
            "{how}"
        );
        let (code, said) = verify(&[&cache]);
        assert_eq!(code, 0, "{how}: {said}");
    }
    for (how, named) in [
        ("dictionary", "text"),
        ("lz4_compressed", "LZ4"),
        ("zstd_compressed", "ZSTD"),
        ("int32", "\"n\""),
        ("stream", "metadata.arrow"),
    ] {
        let cache = place.cache(how, strings());
        cache.put(
            "metadata.arrow",
            rewrite(&cache.read("metadata.arrow"), how),
        );
        cache.reseal();
        let said = place.refused(&[&cache]);
        let (said, named) = (said.to_lowercase(), named.to_lowercase());
        assert!(
            said.contains("metadata.arrow") && said.contains(&named),
            "{how}: {said}"
        );
        let (code, said) = verify(&[&cache]);
        assert!(
            code == 1 && said.to_lowercase().contains(&named),
            "{how}: {said}"
        );
    }
}

/// Where in the file the first block of the footer lies.
fn first_block(bytes: &[u8]) -> usize {
    let end = bytes.len() - 10;
    let len = i32::from_le_bytes(bytes[end..end + 4].try_into().unwrap()) as usize;
    let footer = &bytes[end - len..end];
    let block = root_as_footer(footer)
        .unwrap()
        .recordBatches()
        .unwrap()
        .get(0);
    let at = footer.windows(24).position(|window| window == block.0);
    end - len + at.expect("the block")
}

#[test]
fn footers_that_ask_for_terabytes_are_refused_before_anything_is_set_aside() {
    if !can_mount() {
        return;
    }
    let put = |at: usize, value: &[u8]| {
        let value = value.to_vec();
        move |bytes: &mut Vec<u8>| bytes[at..at + value.len()].copy_from_slice(&value)
    };
    let place = Place::new();
    let whole = place
        .cache("whole", Fixture::tiny().v2())
        .read("metadata.arrow");
    let (block, end) = (first_block(&whole), whole.len() - 10);
    type Damage = Box<dyn Fn(&mut Vec<u8>)>;
    let mut damages: Vec<(String, Damage)> = vec![
        (
            "body".into(),
            Box::new(put(block + 16, &0x2_8000_0000_0240_i64.to_le_bytes())),
        ),
        (
            "body-negative".into(),
            Box::new(put(block + 16, &(-1_i64).to_le_bytes())),
        ),
        (
            "metadata".into(),
            Box::new(put(block + 8, &(-1_i32).to_le_bytes())),
        ),
        (
            "metadata-huge".into(),
            Box::new(put(block + 8, &i32::MAX.to_le_bytes())),
        ),
        (
            "block-offset".into(),
            Box::new(put(block, &i64::MAX.to_le_bytes())),
        ),
        (
            "block-before".into(),
            Box::new(put(block, &(-8_i64).to_le_bytes())),
        ),
        (
            "footer-huge".into(),
            Box::new(put(end, &i32::MAX.to_le_bytes())),
        ),
        (
            "footer-negative".into(),
            Box::new(put(end, &(-1_i32).to_le_bytes())),
        ),
        (
            "footer-zero".into(),
            Box::new(put(end, &0_i32.to_le_bytes())),
        ),
    ];
    for len in [0, 5, 8, 12, 16, whole.len() - 1] {
        damages.push((
            format!("cut-{len}"),
            Box::new(move |bytes: &mut Vec<u8>| bytes.truncate(len)),
        ));
    }
    for (name, damage) in damages {
        let cache = place.cache(&name, Fixture::tiny().v2());
        cache.edit("metadata.arrow", damage);
        cache.reseal();
        let said = place.refused_by(limited("-v 524288"), &[&cache]);
        assert!(said.contains("metadata.arrow"), "{name}: {said}");
        let (code, said) = verify(&[&cache]);
        assert!(
            code == 1 && said.contains("metadata.arrow"),
            "{name}: {said}"
        );
    }
}

#[test]
fn samples_without_metadata_are_read() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let fixture = Fixture::new().v2().samples(["a", "", "c"].map(Sample::new));
    let cache = place.cache("cache", fixture);
    assert_eq!(cache.record(0).0, b"{}");
    let mut by = program();
    by.arg("--validate-cache");
    let live = place.mount_by(by, &[&cache]);
    all_right(&live, &cache);
    let (code, said) = verify(&[&cache]);
    assert_eq!(code, 0, "{said}");
}

/// A cache whose only field is a float with these values.
fn floats(place: &Place, name: &str, values: &[f64]) -> TestCache {
    let samples = values
        .iter()
        .zip(0..)
        .map(|(value, n)| Sample::new(format!("{n}")).with("score", *value));
    place.cache(
        name,
        Fixture::new()
            .v2()
            .schema(&[("score", FieldKind::Float)])
            .samples(samples),
    )
}

#[test]
fn floats_are_compared_to_the_last_bit() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let values = [
        1.577_777_777_777_000_1,
        0.999_999_999_999_999_9,
        117.633_311_394_000_17,
        5e-324,
        -0.0,
        1e16,
        f64::MAX,
        9_007_199_254_740_992.0,
        1.577_777_777_777_000_1,
        0.0,
        1.0,
    ];
    let cache = floats(&place, "cache", &values);
    assert_eq!(values[0].to_bits(), 0x3ff9_3e93_e93e_863b);
    let json = |value: &str| format!(r#"{{"score":{value}}}"#);
    // As other writers spell them.
    cache.set_json(0, json("1.5777777777770001"));
    cache.set_json(1, json("0.9999999999999999"));
    cache.set_json(2, json("117.63331139400017"));
    cache.set_json(4, json("0.0"));
    cache.set_json(5, json("1e16"));
    cache.set_json(7, json("9007199254740993.0"));
    cache.set_json(9, json("-0.0"));
    // A near miss, and a number of another kind.
    cache.set_json(8, json("1.577777777777"));
    cache.set_json(10, json("1"));
    cache.reseal();
    let mut by = program();
    by.arg("--validate-cache");
    let live = place.mount_by(by, &[&cache]);
    for (n, sample) in cache.samples.iter().enumerate() {
        let path = format!("samples/0/{n}");
        match n {
            8 | 10 => assert_eq!(live.errno(&path), EIO, "{n}"),
            _ => assert_eq!(live.read(&path).unwrap(), sample.payload, "{n}"),
        }
    }
    assert_eq!(live.damaged().len(), 2);
    live.assert_sound();
}

#[test]
fn floats_that_json_cannot_spell_agree_with_null_alone() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let values = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        f64::INFINITY,
        1.0,
        2.0,
    ];
    let cache = floats(&place, "cache", &values);
    for sample in 0..3 {
        cache.set_json(sample, r#"{"score":null}"#);
    }
    cache.set_json(3, r#"{"score":NaN}"#);
    cache.set_json(4, r#"{"score":1e400}"#);
    cache.set_json(5, r#"{"score":null}"#);
    cache.reseal();
    let live = place.mount(&[&cache]);
    for n in [0, 1, 2, 6] {
        assert_eq!(
            live.read(&format!("samples/0/{n}")).unwrap(),
            n.to_string().as_bytes()
        );
    }
    for n in [3, 4, 5] {
        assert_eq!(live.errno(&format!("samples/0/{n}")), EIO, "{n}");
    }
    let (code, said) = verify(&[&cache]);
    assert_eq!(code, 1);
    for n in [3, 4, 5] {
        assert!(said.contains(&format!("sample {n}")), "{said}");
    }
    assert!(said.contains("score"), "{said}");
    assert!(matches!(cache.samples[0].value("score"), Value::Float(value) if value.is_nan()));
    live.assert_sound();
}
