use super::*;

#[test]
fn filters_nest_and_precede_as_usual() {
    let parse = |text| Filter::parse(text).unwrap().root;
    let field = |name: &str, at| Field {
        name: name.to_owned(),
        quoted: false,
        at,
    };
    assert_eq!(
        parse("a or not b and c"),
        Expr::Any(vec![
            Expr::Flag(field("a", 0)),
            Expr::All(vec![
                Expr::Not(Box::new(Expr::Flag(field("b", 9)))),
                Expr::Flag(field("c", 15)),
            ]),
        ])
    );
    assert_eq!(
        parse("5 <= x"),
        Expr::Compare(field("x", 5), Comparison::GreaterOrEqual, Literal::Int(5))
    );
    assert_eq!(
        parse("(x not in ['a''b', \"\\u00e9\\\"\",])"),
        Expr::Not(Box::new(Expr::In(
            field("x", 1),
            vec![
                Literal::Text("a'b".to_owned()),
                Literal::Text("é\"".to_owned())
            ]
        )))
    );
    assert_eq!(
        parse("`odd ``name` != -1.5e3"),
        Expr::Compare(
            Field {
                name: "odd `name".to_owned(),
                quoted: true,
                at: 0
            },
            Comparison::NotEqual,
            Literal::Float(-1500.0)
        )
    );
    assert_eq!(parse("true"), Expr::Constant(true));
    assert_eq!(parse("not not a"), parse("    not not a").clone_at("a", 8));
}

impl Expr {
    fn clone_at(self, name: &str, at: usize) -> Self {
        match self {
            Self::Flag(field) if field.name == name => Self::Flag(Field { at, ..field }),
            other => other,
        }
    }
}

#[test]
fn errors_say_where_and_what() {
    for (text, at, expected) in [
        ("", 0, "a field or a value"),
        ("x =", 2, "== for equality"),
        ("x = 1", 2, "== for equality"),
        ("x & y", 2, "and"),
        ("x || y", 2, "or"),
        ("!x", 0, "!= or not"),
        ("x ==", 4, "a field or a value"),
        ("x == y", 5, "a value"),
        ("1 == 2", 5, "a field"),
        ("1", 1, "a comparison"),
        ("x y", 2, "and, or or the end"),
        ("(x", 2, "and, or or )"),
        ("x)", 1, "and, or or the end"),
        ("x in 1", 5, "[ and values"),
        ("x in []", 6, "a value"),
        ("x in [1 2]", 8, ", or ]"),
        ("x in [y]", 6, "a value"),
        ("x not 1", 6, "in after not"),
        ("1 in [1]", 5, "a field before in"),
        ("x == 'a", 7, "' at the end"),
        ("x == \"a", 7, "\" at the end"),
        ("x == \"\\q\"", 5, "JSON"),
        ("x == 1x", 5, "a number"),
        ("x == 1e999", 5, "a number"),
        ("x == .5", 5, "a number"),
        ("x == -", 5, "a number"),
        ("and", 0, "stands in `"),
        ("x == #", 5, "a field, a value"),
    ] {
        let error = Filter::parse(text).unwrap_err();
        assert_eq!(error.at, at, "{text}: {error}");
        assert!(error.expected.contains(expected), "{text}: {error}");
    }
}

#[test]
fn no_filter_exhausts_the_stack() {
    for text in [
        "(".repeat(1 << 20),
        "not (".repeat(1 << 20),
        "not ".repeat(1 << 20),
    ] {
        assert!(Filter::parse(&text).is_err());
    }
    let deep = format!("{}x{}", "(".repeat(60), ")".repeat(60));
    assert!(Filter::parse(&deep).is_ok());
    let long = vec!["x"; 100_000].join(" and ");
    assert!(Filter::parse(&long).is_ok());
}
