use super::*;

fn parts(text: &str) -> Vec<Vec<Part>> {
    Template::parse(text).unwrap().components
}

fn field(name: &str, width: usize, default: Option<&str>, several: bool, slot: usize) -> Part {
    Part::Field(FieldPart {
        name: name.to_owned(),
        width,
        default: default.map(str::to_owned),
        several,
        slot,
    })
}

fn literal(text: &str) -> Part {
    Part::Literal(text.to_owned())
}

#[test]
fn a_template_has_literal_text_and_placeholders() {
    assert_eq!(
        parts("train/{label|none}/a{{{sample_id:08}}}{ext}"),
        [
            vec![literal("train")],
            vec![field("label", 0, Some("none"), false, 0)],
            vec![
                literal("a{"),
                Part::SampleId { width: 8 },
                literal("}"),
                Part::Ext
            ],
        ]
    );
    assert_eq!(
        parts("{cache_id}-{source_name}/{n:03|no number}/{path...|a/b}"),
        [
            vec![Part::CacheId { width: 0 }, literal("-"), Part::SourceName],
            vec![field("n", 3, Some("no number"), false, 0)],
            vec![field("path", 0, Some("a/b"), true, 1)],
        ]
    );
}

#[test]
fn quoted_names_are_always_fields() {
    assert_eq!(
        parts("{`cache_id`}{`a|}:``b`...}{``|x}"),
        [vec![
            field("cache_id", 0, None, false, 0),
            field("a|}:`b", 0, None, true, 1),
            field("", 0, Some("x"), false, 2),
        ]]
    );
    for name in ["plain", "a`b", "{}|:", ""] {
        let made = Template::by_field(name);
        let read = Template::parse(made.text()).unwrap();
        assert_eq!(read, made);
        let made = Template::stored_path(name);
        assert_eq!(Template::parse(made.text()).unwrap(), made);
    }
}

#[test]
fn errors_say_where_and_what() {
    for (text, at, expected, found) in [
        ("", 0, "placeholder", "the end"),
        ("/a", 0, "placeholder", "'/'"),
        ("a//b", 2, "placeholder", "'/'"),
        ("a/", 2, "placeholder", "the end"),
        ("a/../b", 2, "other than", "\"..\""),
        (".", 0, "other than", "\".\""),
        ("a}b", 1, "}}", "'}'"),
        ("é{", 2, "name of a metadata field", "the end"),
        ("{}", 1, "name of a metadata field", "'}'"),
        ("{...}", 1, "name of a metadata field", "'.'"),
        ("{a", 2, "} after", "the end"),
        ("{a{b}}", 2, "} after", "'{'"),
        ("{`a}", 4, "` after", "the end"),
        ("{a:8}", 3, "zero padding", "'8'"),
        ("{a:}", 3, "zero padding", "'}'"),
        ("{a:065}", 3, "zero padding", "'0'"),
        ("{a:099999999999999999999}", 3, "zero padding", "'0'"),
        ("{a|}", 3, "a default", "'}'"),
        ("{a|b{c}", 4, "} after the default", "'{'"),
        ("{ext:08}", 4, "padded", "zero padding"),
        ("{source_name...}", 1, "several", "source_name..."),
        ("{sample_id|0}", 10, "every sample", "a default"),
        ("a\nb", 1, "printable", "'\\n'"),
    ] {
        let error = Template::parse(text).unwrap_err();
        assert_eq!((error.at, error.found.as_str()), (at, found), "{text}");
        assert!(error.expected.contains(expected), "{text}: {error}");
    }
    assert!(Template::parse(&"x".repeat(256)).is_err());
    assert!(Template::parse(&"x/".repeat(100_000)).is_err());
}

#[test]
fn what_a_template_promises() {
    let template = |text| Template::parse(text).unwrap();
    assert!(template("{label}/{sample_id}{ext}").ends_in_ext());
    assert!(!template("{label}/{ext}").ends_in_ext());
    assert!(!template("{label}{ext}/{sample_id}").ends_in_ext());
    for (text, one, two) in [
        ("{label}/{sample_id}{ext}", true, false),
        ("{label}/{cache_id}-{sample_id}{ext}", true, true),
        ("{cache_id}/{sample_id}", true, false),
        ("{cache_id}{sample_id}", false, false),
        ("{label}-{sample_id}", false, false),
        ("v1{sample_id}", false, false),
        ("{sample_id}0", false, false),
        ("{path...}/{sample_id}", false, false),
        ("x{sample_id}.bin", true, false),
        ("{label}", false, false),
    ] {
        let template = template(text);
        assert_eq!(template.is_unique(1), one, "{text}");
        assert_eq!(template.is_unique(2), two, "{text}");
    }
}
