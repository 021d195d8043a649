//! What is refused before or while a cache is written; nothing is left each time.

use std::fs;

use super::support::{Desk, gzip, listing, read, tar, tool};

#[test]
fn archives_that_are_not_whole_are_refused() {
    let desk = Desk::new();
    let whole = tar([(&b"a"[..], &[1_u8; 3000][..]), (b"b", b"bbb")]);
    desk.file("cut.tar", &whole[..2000]);
    desk.file("boundary.tar", &whole[..512 + 3072]);
    desk.file("cut.tar.gz", &gzip(&whole)[..40]);
    desk.file("folders.tar", tar([(&b"a/"[..], &b""[..]), (b"a/b/", b"")]));
    desk.file(
        "twice.tar",
        tar([(&b"a"[..], &b"1"[..]), (b"b", b""), (b"./a", b"2")]),
    );
    desk.file("empty.tar", "");
    desk.file("text.tar", "hello, world".repeat(100));
    for (archive, part) in [
        ("cut.tar", "cut"),
        ("boundary.tar", "end marker"),
        ("cut.tar.gz", "cut.tar.gz"),
        ("folders.tar", "no samples"),
        ("twice.tar", "\"a\": this member is in the archive twice"),
        ("empty.tar", "end marker"),
        ("text.tar", "text.tar"),
    ] {
        let refused = desk.refused("x", &[archive]);
        assert!(
            refused.contains(part) && refused.contains(archive),
            "{archive}: {refused}"
        );
    }
}

#[test]
fn hard_links_are_refused_by_name() {
    let desk = Desk::new();
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(1);
    builder.append_data(&mut header, "a", &b"x"[..]).unwrap();
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Link);
    header.set_size(0);
    builder.append_link(&mut header, "b", "a").unwrap();
    desk.file("t.tar", builder.into_inner().unwrap());
    let refused = desk.refused("x", &["t.tar"]);
    assert!(
        refused.contains("\"b\"") && refused.contains("hard link"),
        "{refused}"
    );
}

#[test]
fn webdataset_groups_without_payload_are_refused() {
    let desk = Desk::new();
    let members: [(&[u8], &[u8]); 3] = [(b"a.jpg", b""), (b"a.cls", b"1"), (b"b.cls", b"2")];
    desk.file("t.tar", tar(members));
    let refused = desk.refused("x", &["--group", "webdataset", "--payload", "jpg", "t.tar"]);
    assert!(
        refused.contains("\"b\"") && refused.contains(".jpg"),
        "{refused}"
    );
}

#[test]
fn sources_that_cannot_be_packed_are_named() {
    let desk = Desk::new();
    assert!(desk.refused("x", &["in"]).contains("no samples"));
    assert!(desk.refused("x", &["nowhere"]).contains("nowhere"));
    desk.file("t.csv", "file\na\n");
    assert!(desk.refused("x", &["t.csv"]).contains("--table"));
    desk.file("t.zip", "PK");
    assert!(desk.refused("x", &["t.zip"]).contains("t.zip"));
    desk.file("t.xlsx", "");
    assert!(
        desk.refused("x", &["--table", "t.xlsx", "--payload-column", "a"])
            .contains("t.xlsx")
    );
    desk.file("in/a", "x");
    let inside = tool()
        .current_dir(desk.root.path())
        .args(["pack", "--name", "x", "in", "in/new/out"])
        .output()
        .unwrap();
    assert_eq!(inside.status.code(), Some(1));
    assert_eq!(listing(&desk.path("in")).unwrap(), ["a"]);
}

#[test]
fn wrong_command_lines_exit_with_2() {
    let desk = Desk::new();
    desk.file("in/a", "x");
    let wrong: [&[&str]; 9] = [
        &["--max-shard-bytes", "0", "in"],
        &["--max-shard-bytes", "many", "in"],
        &["--compression", "zip", "in"],
        &["--type", "a", "in"],
        &["--type", "a=double", "in"],
        &["--jobs", "0", "in"],
        &["--group", "webdataset", "in"],
        &["--table", "t.csv", "in"],
        &["--label", "--no-label", "in"],
    ];
    for args in wrong {
        assert_eq!(desk.pack("x", args).code(), 2, "{args:?}");
    }
    assert_eq!(desk.pack::<&str>("x", &[]).code(), 2, "no source");
    assert!(!desk.out().exists());
}

#[test]
fn a_payload_of_4_gib_is_refused_with_lz4_before_it_is_read() {
    let desk = Desk::new();
    desk.file("in/a", "x");
    let huge = fs::File::create(desk.path("in/huge")).unwrap();
    huge.set_len(1 << 32).unwrap();
    let refused = desk.refused("x", &["in"]);
    assert!(
        refused.contains("\"huge\"") && refused.contains("4 GiB"),
        "{refused}"
    );
}

#[test]
fn what_exists_at_the_target_is_never_touched() {
    let desk = Desk::new();
    desk.file("in/a", "first");
    assert_eq!(desk.packed("x", &["in"]).len(), 1);
    desk.file("in/a", "second");
    assert!(desk.refused("x", &["in"]).contains("already exists"));
    assert_eq!(read(&desk.out().join("x"))[0].payload, b"first");
    fs::create_dir(desk.out().join("empty")).unwrap();
    desk.refused("empty", &["in"]);
    std::os::unix::fs::symlink("nowhere", desk.out().join("dangling")).unwrap();
    desk.refused("dangling", &["in"]);
}

#[test]
fn the_summary_is_one_line_and_can_be_json() {
    let desk = Desk::new();
    desk.file("in/a", "x");
    let run = desk.pack("x", &["in"]);
    assert_eq!(run.out().lines().count(), 1);
    assert!(
        run.out().starts_with("out/x: 1 sample, 1 B stored as "),
        "{}",
        run.out()
    );
    assert_eq!(run.err(), "");
    let run = desk.pack("y", &["--json", "in"]);
    let json: serde_json::Value = serde_json::from_str(&run.out()).unwrap();
    assert_eq!(json["samples"], 1);
    assert_eq!(json["metadata_schema"][0]["name"], "path");
}
