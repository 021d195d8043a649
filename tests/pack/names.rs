//! File names that are not text, source names that are not names.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use datasetrt::writer::source::spelling::bytes_of;

use super::support::{Desk, Sample, tar};

const ODD: [&[u8]; 7] = [
    b"\xdcber",
    b"\xff\xfe",
    b"line\nbreak",
    b"back\\slash",
    "\u{e9}".as_bytes(),
    "e\u{301}".as_bytes(),
    &[b'n'; 255],
];

#[test]
fn every_file_name_has_its_own_spelling_and_can_be_got_back() {
    let desk = Desk::new();
    for name in ODD {
        fs::write(desk.path("in").join(OsStr::from_bytes(name)), name).unwrap();
    }
    desk.file("t.tar", tar(ODD.map(|name| (name, name))));
    let check = |samples: Vec<Sample>| {
        assert_eq!(samples.len(), ODD.len());
        for sample in &samples {
            assert_eq!(bytes_of(sample.text("path")), Some(sample.payload.clone()));
        }
        let find = |name: &[u8]| {
            samples
                .iter()
                .find(|sample| sample.payload == name)
                .unwrap()
        };
        assert_eq!(find(b"\xdcber").text("path"), "\\xdcber");
        assert_eq!(find(b"\xff\xfe").text("path"), "\\xff\\xfe");
        assert_eq!(find(b"back\\slash").text("path"), "back\\\\slash");
        assert_eq!(find("\u{e9}".as_bytes()).text("path"), "\u{e9}");
    };
    check(desk.packed("folder", &["in"]));
    check(desk.packed("tar", &["t.tar"]));
    let lossy = desk.packed("lossy", &["--lossy-path", "in"]);
    let spelled: Vec<_> = lossy.iter().map(|sample| sample.text("path")).collect();
    assert!(spelled.contains(&"\u{fffd}ber") && spelled.contains(&"back\\slash"));
}

#[test]
fn odd_bytes_in_tables_are_refused_or_mended() {
    let desk = Desk::new();
    desk.file("a.bin", "x");
    desk.file("t.csv", b"file,name\na.bin,\xdcber\n");
    let args = ["--table", "t.csv", "--payload-column", "file"];
    let refused = desk.refused("x", &args);
    assert!(
        refused.contains("row 1") && refused.contains("\"name\""),
        "{refused}"
    );
    let mended = desk.packed("x", &[&args[..], &["--lossy-path"]].concat());
    assert_eq!(mended[0].text("name"), "\u{fffd}ber");
}

#[test]
fn a_name_that_is_no_name_is_wrong_usage() {
    let desk = Desk::new();
    desk.file("in/a", "x");
    for name in ["", ".", "..", "tmp", "a/b", "a/", &"n".repeat(256)] {
        let run = desk.pack(name, &["in"]);
        assert_eq!(run.code(), 2, "{name:?}: {}", run.err());
        assert!(!desk.out().exists(), "{name:?}");
    }
    for name in [&"n".repeat(255)[..], "\u{e9}", "a b", "..."] {
        assert_eq!(desk.packed(name, &["in"]).len(), 1);
    }
}
