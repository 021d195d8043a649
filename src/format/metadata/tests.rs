//! Tables that readers meet: written by us, split, and damaged byte by byte.

use super::*;

fn fields() -> Vec<Field> {
    [
        ("flag", FieldKind::Bool),
        ("index", FieldKind::Int),
        ("label", FieldKind::String),
        ("score", FieldKind::Float),
    ]
    .map(|(name, kind)| Field {
        name: name.to_owned(),
        kind,
    })
    .to_vec()
}

fn row(n: i64) -> [Value; 4] {
    [
        Value::Bool(n % 2 == 0),
        Value::Int(n),
        Value::String(format!("row {n}")),
        Value::Float(n as f64 / 3.0),
    ]
}

fn table_bytes(rows: i64) -> Vec<u8> {
    let mut writer = TableWriter::new(Vec::new(), &fields()).unwrap();
    for n in 0..rows {
        writer.push(row(n).iter().map(Value::borrowed)).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn rows_come_back_across_batches() {
    let rows = (1 << 16) + 3;
    let table = Table::open(Bytes::from(table_bytes(rows)), &fields()).unwrap();
    assert_eq!(table.rows(), Some(65539));
    assert_eq!(table.batches.len(), 2);
    for n in [0, 1, 65535, 65536, 65538] {
        let found = table.row(n).unwrap();
        for (column, value) in row(n as i64).iter().enumerate() {
            assert_eq!(found.value(column).unwrap(), Some(value.borrowed()));
        }
    }
    assert!(table.row(65539).is_none());
    assert!(table.row(0).unwrap().value(4).is_err());
}

#[test]
fn columns_are_matched_by_name_kind_and_order() {
    let bytes = Bytes::from(table_bytes(2));
    assert!(
        Table::open(bytes.clone(), &fields()[..2]).is_ok(),
        "further columns are ignored"
    );
    let mut other = fields();
    other.swap(0, 1);
    assert!(Table::open(bytes.clone(), &other).is_err());
    let mut other = fields();
    other[0].name = "flagg".to_owned();
    assert!(Table::open(bytes.clone(), &other).is_err());
    let mut other = fields();
    other[1].kind = FieldKind::Float;
    assert!(Table::open(bytes, &other).is_err());
}

#[test]
fn a_table_without_columns_leaves_the_count_to_the_manifest() {
    let mut writer = TableWriter::new(Vec::new(), &[]).unwrap();
    for _ in 0..3 {
        writer.push(std::iter::empty()).unwrap();
    }
    let table = Table::open(Bytes::from(writer.finish().unwrap()), &[]).unwrap();
    assert_eq!(table.rows(), None);
    assert!(table.row(2).is_some());
}

#[test]
fn damaged_tables_are_refused_or_read_but_never_panic() {
    let good = table_bytes(3);
    for n in 0..good.len() {
        for mask in [0xFF, 0x80, 0x01] {
            let mut bytes = good.clone();
            bytes[n] ^= mask;
            read_all(&bytes);
        }
        read_all(&good[..n]);
    }
}

fn read_all(bytes: &[u8]) {
    if let Ok(table) = Table::open(Bytes::copy_from_slice(bytes), &fields()) {
        for n in 0..table.rows().unwrap().min(8) {
            for column in 0..4 {
                let _ = table.row(n).unwrap().value(column);
            }
        }
    }
}
