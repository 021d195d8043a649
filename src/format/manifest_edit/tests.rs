use proptest::prelude::*;
use serde_json::Value;

use super::to_v3;
use crate::error::FaultKind;

fn edited(old: &str, cache_id: u64) -> String {
    String::from_utf8(to_v3(old.as_bytes(), cache_id).unwrap()).unwrap()
}

#[test]
fn the_new_member_is_laid_out_as_its_neighbours_are() {
    for (old, new) in [
        (
            "{\n  \"format_version\": 2,\n  \"source_name\": \"s\"\n}",
            "{\n  \"format_version\": 3,\n  \"cache_id\": 7,\n  \"source_name\": \"s\"\n}",
        ),
        (
            r#"{"a": 1, "format_version": 2, "z": 2}"#,
            r#"{"a": 1, "format_version": 3, "cache_id": 7, "z": 2}"#,
        ),
        (
            r#"{"format_version":2,"z":2}"#,
            r#"{"format_version":3,"cache_id":7,"z":2}"#,
        ),
        (
            "{\r\n\t\"a\" : 1\r\n\t, \"format_version\" : 2\r\n}\r\n",
            "{\r\n\t\"a\" : 1\r\n\t, \"format_version\" : 3\r\n\t, \"cache_id\" : 7\r\n}\r\n",
        ),
        (
            " { \"format_version\":  2 } ",
            " { \"format_version\":  3, \"cache_id\":  7 } ",
        ),
        (
            r#"{"format\u005fversion": 2}"#,
            r#"{"format\u005fversion": 3,"cache_id": 7}"#,
        ),
    ] {
        assert_eq!(edited(old, 7), new);
    }
}

#[test]
fn a_member_of_that_name_keeps_its_place() {
    for (old, new) in [
        (
            r#"{"cache_id": {"a": [1, 2]} , "format_version": 2}"#,
            r#"{"cache_id": 7 , "format_version": 3}"#,
        ),
        (
            r#"{"format_version": 2, "x": 1E5, "cache\u005fid": "seven"}"#,
            r#"{"format_version": 3, "x": 1E5, "cache\u005fid": 7}"#,
        ),
    ] {
        assert_eq!(edited(old, 7), new);
    }
    // The same names further down mean nothing.
    assert_eq!(
        edited(
            r#"{"x":{"cache_id":1,"format_version":9},"format_version":2}"#,
            u64::MAX
        ),
        r#"{"x":{"cache_id":1,"format_version":9},"format_version":3,"cache_id":18446744073709551615}"#
    );
}

#[test]
fn other_texts_are_refused() {
    for bad in [
        "",
        "[]",
        "{}",
        r#"{"format_version": 3}"#,
        r#"{"format_version": 2.0}"#,
        r#"{"format_version": "2"}"#,
        r#"{"format_version": 2, "format_version": 2}"#,
        r#"{"format_version": 2, "cache_id": 1, "cache_id": 1}"#,
        r#"{"format_version": 2} x"#,
        r#"{"format_version": 2,}"#,
        "\u{feff}{\"format_version\": 2}",
    ] {
        let fault = to_v3(bad.as_bytes(), 0).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Manifest, "{bad}");
    }
    let not_text = b"{\"format_version\": 2, \"x\": \"\xff\"}";
    assert_eq!(to_v3(not_text, 0).unwrap_err().kind, FaultKind::Manifest);
}

#[test]
fn a_text_that_readers_would_not_take_is_not_made() {
    let limit = usize::try_from(super::MAX_MANIFEST_LEN).unwrap();
    let (head, tail) = (r#"{"x":""#, r#"","format_version":2}"#);
    let fill = limit - head.len() - tail.len();
    let old = format!("{head}{}{tail}", "y".repeat(fill));
    assert_eq!(
        to_v3(old.as_bytes(), 0).unwrap_err().kind,
        FaultKind::Length
    );
    let room = format!(
        "{head}{}{tail}",
        "y".repeat(fill - r#","cache_id":0"#.len())
    );
    assert_eq!(to_v3(room.as_bytes(), 0).unwrap().len(), limit);
}

fn space() -> impl Strategy<Value = String> {
    "[ \t\r\n]{0,3}"
}

/// Any JSON text, with spellings that no writer of ours uses.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?",
        any::<String>().prop_map(|value| serde_json::to_string(&value).unwrap()),
        Just(r#""\u00e9\/\ud83d\ude00""#.to_owned()),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let list =
            prop::collection::vec((space(), inner.clone(), space()), 0..4).prop_map(|list| {
                let items: Vec<_> = list.iter().map(|(a, v, b)| format!("{a}{v}{b}")).collect();
                format!("[{}]", items.join(","))
            });
        let object = prop::collection::vec((any::<String>(), space(), inner), 0..4).prop_map(|o| {
            let items: Vec<_> = o
                .iter()
                .map(|(k, s, v)| format!("{}{s}:{s}{v}", serde_json::to_string(k).unwrap()))
                .collect();
            format!("{{{}}}", items.join(","))
        });
        prop_oneof![list, object]
    })
}

type Item = (String, String, [String; 4]);

/// The top level: members in any order, each with white space of its own.
fn top_level() -> impl Strategy<Value = (Vec<Item>, bool)> {
    let spaces = || [space(), space(), space(), space()];
    let member = ("[a-zA-Z\u{e9}\"\\\\]{0,9}", json(), spaces());
    let version = (
        Just("format_version".to_owned()),
        Just("2".to_owned()),
        spaces(),
    );
    let id = (Just("cache_id".to_owned()), json(), spaces());
    (
        prop::collection::vec(member, 0..6),
        version,
        id,
        any::<bool>(),
    )
        .prop_flat_map(|(mut members, version, id, has_id)| {
            let mut seen = std::collections::HashSet::from(["cache_id".to_owned()]);
            members.retain(|(name, ..)| seen.insert(name.clone()));
            members.push(version);
            if has_id {
                members.push(id);
            }
            (Just(members).prop_shuffle(), Just(has_id))
        })
}

fn text_of(members: &[Item]) -> String {
    let items: Vec<_> = members
        .iter()
        .map(|(name, value, [a, b, c, d])| {
            format!(
                "{a}{}{b}:{c}{value}{d}",
                serde_json::to_string(name).unwrap()
            )
        })
        .collect();
    format!("{{{}}}", items.join(","))
}

proptest! {
    #[test]
    fn everything_but_the_two_members_stays_to_the_byte((members, has_id) in top_level(), id: u64) {
        let old = text_of(&members);
        let new = edited(&old, id);

        let mut expected: Value = serde_json::from_str(&old).unwrap();
        expected["format_version"] = 3.into();
        expected["cache_id"] = id.into();
        prop_assert_eq!(serde_json::from_str::<Value>(&new).unwrap(), expected);

        // Taking the edits back gives the old bytes.
        if has_id {
            let mut changed = members;
            for (name, value, _) in &mut changed {
                match name.as_str() {
                    "format_version" => *value = "3".to_owned(),
                    "cache_id" => *value = id.to_string(),
                    _ => {}
                }
            }
            prop_assert_eq!(new, text_of(&changed));
        } else {
            let digit = old.bytes().zip(new.bytes()).position(|(a, b)| a != b).unwrap();
            prop_assert_eq!((&old[digit..=digit], &new[digit..=digit]), ("2", "3"));
            let (head, tail) = (&old[..=digit], &old[digit + 1..]);
            let added = new[head.len()..].strip_suffix(tail).unwrap();
            let trimmed = added.trim_start().strip_prefix(',').unwrap().trim_start();
            let value = trimmed.strip_prefix("\"cache_id\"").unwrap().trim_start();
            let value = value.strip_prefix(':').unwrap().trim_start();
            prop_assert_eq!(value, id.to_string());
        }
    }
}
