//! What agrees with a row and what does not.

use bytes::Bytes;

use super::super::metadata::{TableWriter, Value};
use super::*;

fn one_row(values: &[(&str, Value)]) -> (Envelope, Table) {
    let fields: Vec<Field> = values
        .iter()
        .map(|(name, value)| Field {
            name: (*name).to_owned(),
            kind: value.kind(),
        })
        .collect();
    let mut writer = TableWriter::new(Vec::new(), &fields).unwrap();
    writer
        .push(values.iter().map(|(_, value)| value.borrowed()))
        .unwrap();
    let table = Table::open(Bytes::from(writer.finish().unwrap()), &fields).unwrap();
    (Envelope::new(&fields), table)
}

fn sample() -> (Envelope, Table) {
    one_row(&[
        ("flag", Value::Bool(true)),
        ("index", Value::Int(0)),
        ("label", Value::String("migrated".to_owned())),
        ("score", Value::Float(-1.25)),
    ])
}

#[test]
fn an_object_is_told_from_everything_else() {
    for json in [&b"{}"[..], b" {\"a\":[1,{}]}\n"] {
        assert!(Envelope::is_object(json), "{json:?}");
    }
    for json in [
        &b""[..],
        b"{",
        b"{}x",
        b"{}{}",
        b"[]",
        b"1",
        b"{\"a\":\"\xff\"}",
    ] {
        assert!(!Envelope::is_object(json), "{json:?}");
    }
}

#[test]
fn keys_may_come_in_any_order() {
    let names: Vec<String> = (0..20_000).map(|n| format!("field {n}")).collect();
    let values: Vec<(&str, Value)> = names
        .iter()
        .map(|name| (name.as_str(), Value::Bool(true)))
        .collect();
    let (envelope, table) = one_row(&values);
    let backwards = |names: &[String]| {
        let members: Vec<String> = names
            .iter()
            .rev()
            .map(|n| format!("\"{n}\":true"))
            .collect();
        format!("{{{}}}", members.join(","))
    };
    let json = backwards(&names);
    envelope.compare(json.as_bytes(), &table, 0).unwrap();
    let short = backwards(&names[1..]);
    envelope.compare(short.as_bytes(), &table, 0).unwrap_err();
}

#[test]
fn the_usual_spelling_is_the_writers() {
    let (envelope, table) = sample();
    let mut text = Vec::new();
    envelope.write_row(&table, 0, &mut text).unwrap();
    assert_eq!(
        String::from_utf8(text).unwrap(),
        r#"{"flag":true,"index":0,"label":"migrated","score":-1.25}"#
    );
    let (envelope, table) = one_row(&[("\"\\", Value::String("\u{1}\n/é\u{7f}".to_owned()))]);
    let mut text = Vec::new();
    envelope.write_row(&table, 0, &mut text).unwrap();
    assert_eq!(
        String::from_utf8(text).unwrap(),
        "{\"\\\"\\\\\":\"\\u0001\\n/é\u{7f}\"}"
    );
}

#[test]
fn other_spellings_agree() {
    let (envelope, table) = sample();
    for json in [
        r#"{"flag":true,"index":0,"label":"migrated","score":-1.25}"#,
        "{\n \"flag\": true, \"index\": 0, \"label\": \"migrated\", \"score\": -1.25 } \n",
        r#"{"score":-12.5e-1,"label":"m\u0069grated","index":0,"flag":true}"#,
    ] {
        envelope.compare(json.as_bytes(), &table, 0).unwrap();
    }
}

#[test]
fn other_values_kinds_and_keys_do_not_agree() {
    let (envelope, table) = sample();
    for json in [
        "",
        "[]",
        "{}",
        r#"{"flag":true,"index":0,"label":"migrated","score":-1.25}x"#,
        r#"{"flag":true,"index":0,"label":"migrated","score":-1.25,"zz":1}"#,
        r#"{"flag":true,"label":"migrated","score":-1.25}"#,
        r#"{"index":0,"flag":true,"index":0,"label":"migrated","score":-1.25}"#,
        r#"{"flag":1,"index":0,"label":"migrated","score":-1.25}"#,
        r#"{"flag":true,"index":0.0,"label":"migrated","score":-1.25}"#,
        r#"{"flag":true,"index":-0,"label":"migrated","score":-1.25}"#,
        r#"{"flag":true,"index":9223372036854775808,"label":"migrated","score":-1.25}"#,
        r#"{"flag":true,"index":0,"label":"migrate","score":-1.25}"#,
        r#"{"flag":true,"index":0,"label":null,"score":-1.25}"#,
        r#"{"flag":true,"index":0,"label":{"a":1},"score":-1.25}"#,
        r#"{"flag":true,"index":0,"label":"migrated","score":-1}"#,
        r#"{"flag":true,"index":0,"label":"migrated","score":NaN}"#,
        r#"{"flag":true,"index":0,"label":"migrated","score":null}"#,
        r#"{"flag":true,"index":0,"label":"migrated","score":1e400}"#,
        "\u{feff}{\"flag\":true,\"index\":0,\"label\":\"migrated\",\"score\":-1.25}",
    ] {
        let fault = envelope.compare(json.as_bytes(), &table, 0).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Envelope, "{json}");
    }
    let bad_text = b"{\"flag\":true,\"index\":0,\"label\":\"\xff\xfe\",\"score\":-1.25}";
    assert!(envelope.compare(bad_text, &table, 0).is_err());
}

#[test]
fn floats_are_compared_by_their_bits() {
    for (text, bits) in [
        ("1.5777777777770001", 0x3ff9_3e93_e93e_863b),
        ("0.9999999999999999", 0x3fef_ffff_ffff_ffff),
        ("117.63331139400017", 0x405d_6888_2c83_5a8e),
        ("5e-324", 1),
        ("1e16", 0x4341_c379_37e0_8000),
        ("1.7976931348623157e308", 0x7fef_ffff_ffff_ffff),
        ("9007199254740993.0", 0x4340_0000_0000_0000),
        ("-0.0", 0),
        ("0.0", 1 << 63),
        ("null", 0x7ff8_0000_0000_0001),
        ("null", 0xfff0_0000_0000_0000),
    ] {
        let (envelope, table) = one_row(&[("x", Value::Float(f64::from_bits(bits)))]);
        let json = format!("{{\"x\":{text}}}");
        envelope.compare(json.as_bytes(), &table, 0).unwrap();
    }
    let (envelope, table) = one_row(&[("x", Value::Float(1.577_777_777_777_000_1))]);
    assert!(
        envelope
            .compare(b"{\"x\":1.577777777777}", &table, 0)
            .is_err()
    );
}

#[test]
fn no_fields_means_an_empty_object() {
    let table = {
        let writer = TableWriter::new(Vec::new(), &[]).unwrap();
        Table::open(Bytes::from(writer.finish().unwrap()), &[]).unwrap()
    };
    let envelope = Envelope::new(&[]);
    let mut text = Vec::new();
    envelope.write_row(&table, 5, &mut text).unwrap();
    assert_eq!(text, b"{}");
    envelope.compare(b" { } ", &table, 5).unwrap();
    assert!(envelope.compare(b"{\"a\":1}", &table, 5).is_err());
}

#[test]
fn an_absurd_length_is_refused_before_it_is_read() {
    let envelope = Envelope::new(&[]);
    envelope.check_len(1 << 16, b"{}").unwrap();
    assert!(envelope.check_len(1 << 40, b"{}").is_err());
}
