use super::*;

fn column(cells: &[Cell], forced: Option<FieldKind>) -> Result<FieldKind, String> {
    let mut choices = FieldChoices::default();
    if let Some(kind) = forced {
        choices.types.insert("x".to_owned(), kind);
    }
    let mut inference = Inference::new(choices);
    for (row, cell) in (1..).zip(cells) {
        let place = Place::Row(row);
        let cells = vec![(Arc::from("x"), cell.clone())];
        let observed = inference.observe(&place, &cells);
        observed.map_err(|reason| format!("{place}: {reason}"))?;
    }
    Ok(inference.finish()?[0].1)
}

fn untyped(texts: &[&str]) -> Result<FieldKind, String> {
    let cells: Vec<_> = texts
        .iter()
        .map(|t| Cell::Untyped((*t).to_owned()))
        .collect();
    column(&cells, None)
}

#[test]
fn untyped_columns_are_what_all_their_values_read_as() {
    for (texts, kind) in [
        (&["1", "-2", "0"][..], FieldKind::Int),
        (&["1", "2.5", "1e3", "-.5", "-0"], FieldKind::Float),
        (&["true", "False"], FieldKind::Bool),
        (&["true", "1"], FieldKind::String),
        (&["1", "a"], FieldKind::String),
        (&["007", "008"], FieldKind::String),
        (&["00.5"], FieldKind::String),
        (&["+5"], FieldKind::String),
        (&["1", "nan", "x"], FieldKind::String),
        (&["", ""], FieldKind::String),
        (&["", "a"], FieldKind::String),
        (&["99999999999999999999", "a"], FieldKind::String),
        (&["--5", "- 5", " 5"], FieldKind::String),
        (&["information"], FieldKind::String),
        (
            &["9223372036854775807", "-9223372036854775808"],
            FieldKind::Int,
        ),
    ] {
        assert_eq!(untyped(texts), Ok(kind), "{texts:?}");
    }
}

#[test]
fn conflicts_name_field_places_and_both_types() {
    for (texts, parts) in [
        (
            &["1", "", "2"][..],
            &["row 2", "\"x\"", "an empty value", "int in row 1"][..],
        ),
        (&["true", ""], &["row 2", "an empty value", "bool in row 1"]),
        (&["0.5", "nan"], &["row 2", "not finite", "float in row 1"]),
        (&["nan"], &["row 1", "not finite"]),
        (&["-inf", "1"], &["row 1", "not finite", "int in row 2"]),
        (&["1", "1e400"], &["row 2", "not finite"]),
        (&["5", "9223372036854775808"], &["row 2", "beyond 64 bits"]),
        (
            &["0.5", "9007199254740993"],
            &["row 2", "9007199254740993", "float in row 1"],
        ),
    ] {
        let reason = untyped(texts).unwrap_err();
        for part in parts {
            assert!(reason.contains(part), "{texts:?}: {reason}");
        }
    }
    let text = |text: &str| Cell::Text(text.to_owned());
    for (cells, parts) in [
        (
            vec![Cell::Int(1), text("a")],
            &["row 2", "\"x\"", "string here", "int in row 1"][..],
        ),
        (
            vec![Cell::Bool(true), Cell::Int(1)],
            &["row 2", "int here", "bool in row 1"],
        ),
        (vec![Cell::Int(1), Cell::Null], &["row 2", "no value"]),
        (vec![Cell::Float(f64::NAN)], &["row 1", "NaN", "not finite"]),
        (
            vec![Cell::BigInt("1".repeat(20))],
            &["row 1", "does not fit 64 bits"],
        ),
        (
            vec![Cell::Bytes(vec![1])],
            &["row 1", "bytes cannot be stored", "--drop x"],
        ),
    ] {
        let reason = column(&cells, None).unwrap_err();
        for part in parts {
            assert!(reason.contains(part), "{cells:?}: {reason}");
        }
    }
}

#[test]
fn typed_integers_and_floats_are_floats_while_nothing_is_lost() {
    let big = 1 << 53;
    assert_eq!(
        column(&[Cell::Int(1), Cell::Float(0.5)], None),
        Ok(FieldKind::Float)
    );
    assert_eq!(
        column(&[Cell::Int(big), Cell::Float(0.5)], None),
        Ok(FieldKind::Float)
    );
    assert_eq!(
        column(&[Cell::Int(big + 1), Cell::Int(2)], None),
        Ok(FieldKind::Int)
    );
    assert!(column(&[Cell::Int(big + 1), Cell::Float(0.5)], None).is_err());
    assert_eq!(
        convert(Cell::Int(3), FieldKind::Float),
        Ok(Value::Float(3.0))
    );
    assert!(convert(Cell::Int(big + 1), FieldKind::Float).is_err());
    assert!(convert(Cell::Float(1.0), FieldKind::Int).is_err());
}

#[test]
fn a_type_that_the_user_gives_is_kept() {
    let list = Cell::Other {
        what: "a list",
        text: "[1]".to_owned(),
    };
    let cells = [
        Cell::Int(1),
        Cell::Bool(true),
        list,
        Cell::Untyped(String::new()),
    ];
    assert_eq!(
        column(&cells, Some(FieldKind::String)),
        Ok(FieldKind::String)
    );
    let texts = [
        Cell::Untyped("1".to_owned()),
        Cell::Untyped("2.5".to_owned()),
    ];
    let reason = column(&texts, Some(FieldKind::Int)).unwrap_err();
    assert!(
        reason.contains("row 2") && reason.contains("expected int, found float"),
        "{reason}"
    );
    assert!(column(&[Cell::Null], Some(FieldKind::String)).is_err());
}

#[test]
fn every_row_has_every_field_once() {
    let named = |names: &[&str]| -> Cells {
        names
            .iter()
            .map(|n| (Arc::from(*n), Cell::Int(1)))
            .collect()
    };
    let observe = |rows: &[Cells]| {
        let mut inference = Inference::new(FieldChoices {
            dropped: ["gone".to_owned()].into(),
            ..FieldChoices::default()
        });
        rows.iter()
            .try_for_each(|row| inference.observe(&Place::Row(1), row))
    };
    let ab = named(&["a", "b"]);
    assert_eq!(
        observe(&[ab.clone(), named(&["b", "a"]), named(&["a", "gone", "b"])]),
        Ok(())
    );
    assert!(
        observe(&[ab.clone(), named(&["a"])])
            .unwrap_err()
            .contains("\"b\": no value")
    );
    assert!(
        observe(&[ab.clone(), named(&["a", "b", "c"])])
            .unwrap_err()
            .contains("\"c\"")
    );
    assert!(
        observe(&[named(&["a", "a"])])
            .unwrap_err()
            .contains("twice")
    );
}
