//! Where fields come from and which types they get.

use datasetrt::format::metadata::Value;

use super::support::{Desk, tar, tool};

fn classes(desk: &Desk) {
    for file in ["cat/1.png", "cat/2.png", "dog/1.png"] {
        desk.file(format!("in/{file}"), file);
    }
}

#[test]
fn class_folders_give_labels() {
    let desk = Desk::new();
    classes(&desk);
    let labels = |name: &str, args: &[&str]| -> Vec<Option<String>> {
        let samples = desk.packed(name, args);
        let label = |sample: &super::support::Sample| match sample.metadata.get("label") {
            Some(Value::String(label)) => Some(label.clone()),
            _ => None,
        };
        samples.iter().map(label).collect()
    };
    let classes = ["cat", "cat", "dog"].map(|label| Some(label.to_owned()));
    let none = vec![None, None, None];
    assert_eq!(labels("auto", &["in"]), classes);
    assert_eq!(labels("no", &["--no-label", "in"]), none);
    let members: [(&[u8], &[u8]); 3] = [
        (b"./in/cat/1", b""),
        (b"./in/cat/2", b""),
        (b"./in/dog/1", b""),
    ];
    desk.file("t.tar", tar(members));
    assert_eq!(labels("tar", &["t.tar"]), classes);
    desk.file("in/cat/more/3.png", "");
    assert_eq!(labels("deep", &["in"]), [None, None, None, None]);
    let forced = ["cat", "cat", "more", "dog"].map(|label| Some(label.to_owned()));
    assert_eq!(labels("forced", &["--label", "in"]), forced);
    desk.file("in/README", "");
    assert!(desk.refused("x", &["--label", "in"]).contains("\"README\""));
}

#[test]
fn samples_without_any_metadata_are_packed_and_verified() {
    let desk = Desk::new();
    for name in ["a", "b", "c"] {
        desk.file(format!("in/{name}"), name);
    }
    let samples = desk.packed("x", &["--no-path", "in"]);
    let payloads: Vec<_> = samples.iter().map(|sample| sample.payload_text()).collect();
    assert_eq!(payloads, ["a", "b", "c"]);
    assert!(samples.iter().all(|sample| sample.metadata.is_empty()));
    let verified = tool().arg("verify").arg(desk.out().join("x")).status();
    assert!(verified.unwrap().success());
}

#[test]
fn a_second_table_is_joined_by_path() {
    let desk = Desk::new();
    classes(&desk);
    let csv =
        "path,score,note\ndog/1.png,1,\"a,\nb\"\ncat/1.png,2.5,x\nnobody,3,\ncat/2.png,-1,y\n";
    desk.file("m.csv", csv);
    let run = desk.pack("x", &["--metadata", "m.csv", "in"]);
    assert_eq!(run.code(), 0, "{}", run.err());
    assert!(
        run.err().contains("1 row of the metadata table"),
        "{}",
        run.err()
    );
    let samples = super::support::read(&desk.out().join("x"));
    assert_eq!(samples[2].text("note"), "a,\nb");
    assert_eq!(samples[2].metadata["score"], Value::Float(1.0));
    assert_eq!(samples[0].metadata["score"], Value::Float(2.5));
    assert_eq!(samples[0].text("label"), "cat");
    assert_eq!(samples[0].text("path"), "cat/1.png");

    // The key may have another name, and a label of one's own wins over the folder's.
    let jsonl = ["cat/1.png", "cat/2.png", "dog/1.png"]
        .map(|path| format!("{{\"file_name\": \"{path}\", \"label\": \"mine\"}}\n"));
    desk.file("m.jsonl", jsonl.concat());
    let args = [
        "--metadata",
        "m.jsonl",
        "--metadata-key",
        "file_name",
        "--no-path",
        "in",
    ];
    let samples = desk.packed("y", &args);
    assert!(samples.iter().all(|sample| sample.text("label") == "mine"));
    assert_eq!(samples[0].metadata.len(), 1);

    desk.file("short.csv", "path,score\ncat/1.png,1\n");
    let refused = desk.refused("z", &["--metadata", "short.csv", "in"]);
    assert!(
        refused.contains("cat/2.png") && refused.contains("short.csv"),
        "{refused}"
    );
    let refused = desk.refused("z", &["--metadata", "m.jsonl", "in"]);
    assert!(
        refused.contains("\"path\"") && refused.contains("file_name"),
        "{refused}"
    );
}

fn table(desk: &Desk, name: &str, text: &str) {
    desk.file("a.bin", "payload");
    desk.file(name, text);
}

#[test]
fn types_are_learnt_from_all_rows_and_can_be_given() {
    let desk = Desk::new();
    table(
        &desk,
        "t.csv",
        "file,id,score,flag,name\na.bin,1,1,true,x\na.bin,007,0.25,False,1\na.bin,3,2,true,\n",
    );
    let args = ["--table", "t.csv", "--payload-column", "file", "--no-path"];
    let samples = desk.packed("x", &args);
    assert_eq!(samples[1].text("id"), "007");
    assert_eq!(samples[0].metadata["score"], Value::Float(1.0));
    assert_eq!(samples[1].metadata["flag"], Value::Bool(false));
    assert_eq!(samples[1].text("name"), "1");
    let given = [
        "--type",
        "id=int",
        "--type",
        "score=string",
        "--drop",
        "name",
    ];
    let samples = desk.packed("y", &[&args[..], &given].concat());
    assert_eq!(samples[1].metadata["id"], Value::Int(7));
    assert_eq!(samples[1].text("score"), "0.25");
    assert_eq!(samples[1].metadata.len(), 3);
    let refused = desk.refused("z", &[&args[..], &["--type", "score=int"]].concat());
    for part in ["t.csv", "row 2", "\"score\"", "int", "float"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    let refused = desk.refused("z", &[&args[..], &["--type", "nothing=int"]].concat());
    assert!(refused.contains("\"nothing\""), "{refused}");
}

#[test]
fn what_no_field_can_hold_is_refused_with_field_row_and_file() {
    let desk = Desk::new();
    for (table_name, text, parts) in [
        (
            "nan.csv",
            "file,score\na.bin,1.5\na.bin,nan\n",
            &["row 2", "\"score\"", "not finite"][..],
        ),
        (
            "inf.csv",
            "file,score\na.bin,inf\n",
            &["row 1", "\"score\"", "not finite"],
        ),
        (
            "nan.jsonl",
            "{\"file\":\"a.bin\",\"score\":NaN}\n",
            &["row 1", "\"score\"", "not finite"],
        ),
        (
            "inf.jsonl",
            "{\"file\":\"a.bin\",\"score\":1}\n{\"file\":\"a.bin\",\"score\":-Infinity}\n",
            &["row 2", "\"score\"", "not finite"],
        ),
        (
            "big.jsonl",
            "{\"file\":\"a.bin\",\"score\":1e400}\n",
            &["row 1", "\"score\"", "not finite"],
        ),
        (
            "int.jsonl",
            "{\"file\":\"a.bin\",\"n\":9223372036854775808}\n",
            &["row 1", "\"n\"", "9223372036854775808"],
        ),
        (
            "int.csv",
            "file,n\na.bin,1\na.bin,-9223372036854775809\n",
            &["row 2", "\"n\"", "beyond 64 bits", "int in row 1"],
        ),
        (
            "mix.jsonl",
            "{\"file\":\"a.bin\",\"n\":1}\n{\"file\":\"a.bin\",\"n\":\"one\"}\n",
            &["row 2", "\"n\"", "string", "int in row 1"],
        ),
        (
            "null.jsonl",
            "{\"file\":\"a.bin\",\"n\":null}\n",
            &["row 1", "\"n\"", "no value"],
        ),
        (
            "less.jsonl",
            "{\"file\":\"a.bin\",\"n\":1}\n{\"file\":\"a.bin\"}\n",
            &["row 2", "\"n\"", "no value"],
        ),
        (
            "nested.jsonl",
            "{\"file\":\"a.bin\",\"n\":[1]}\n",
            &["row 1", "\"n\"", "a list"],
        ),
        (
            "twice.jsonl",
            "{\"file\":\"a.bin\",\"n\":1,\"n\":2}\n",
            &["row 1", "\"n\"", "twice"],
        ),
        (
            "bad.jsonl",
            "{\"file\":\"a.bin\"}\n{\"file\":\n",
            &["row 2", "not a JSON object"],
        ),
        (
            "short.csv",
            "file,n\na.bin\n",
            &["short.csv", "found record with 1 field"],
        ),
        (
            "twice.csv",
            "file,n,n\na.bin,1,2\n",
            &["twice.csv", "\"n\""],
        ),
        ("empty.csv", "", &["empty.csv", "header"]),
        ("none.csv", "file,n\n", &["none.csv", "no samples"]),
        (
            "gone.csv",
            "file,n\nnowhere.bin,1\n",
            &["gone.csv", "row 1", "nowhere.bin"],
        ),
        (
            "column.csv",
            "image,n\na.bin,1\n",
            &["column.csv", "\"file\"", "image, n"],
        ),
        ("cut.parquet", "PAR1 and nothing else", &["cut.parquet"]),
        ("no.arrow", "ARROW1", &["no.arrow"]),
    ] {
        table(&desk, table_name, text);
        let refused = desk.refused("x", &["--table", table_name, "--payload-column", "file"]);
        for part in parts.iter().chain([&table_name]) {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        assert!(!refused.contains("panic"), "{refused}");
    }
}

#[test]
fn fields_of_one_name_from_two_sides_are_refused() {
    let desk = Desk::new();
    table(&desk, "t.csv", "file,path\na.bin,elsewhere\n");
    let args = ["--table", "t.csv", "--payload-column", "file"];
    assert!(desk.refused("x", &args).contains("\"path\""));
    let own = desk.packed("own", &[&args[..], &["--no-path"]].concat());
    assert_eq!(own[0].text("path"), "elsewhere");
    let made = desk.packed("made", &[&args[..], &["--drop", "path"]].concat());
    assert_eq!(made[0].text("path"), "a.bin");
}

#[test]
fn a_quote_that_swallows_rows_is_refused_with_its_line() {
    let desk = Desk::new();
    desk.file("in/f", "x");
    for (name, table, line) in [
        ("t.tsv", "p\ts\nf\t\"a\nf\t\"b\nf\tc\n", "line 2"),
        ("open.csv", "p,s\nf,a\nf,\"b\nf,c\n", "line 3"),
        ("behind.csv", "p,s\nf,\"a\"b\n", "line 2"),
    ] {
        desk.file(name, table);
        let refused = desk.refused("x", &["--table", name, "--payload-column", "p"]);
        assert!(
            refused.contains(line) && refused.contains(name),
            "{refused}"
        );
    }
}

#[test]
fn a_number_too_small_for_a_float_stays_text() {
    let desk = Desk::new();
    for name in ["a", "b", "c"] {
        desk.file(name, name);
    }
    desk.file(
        "t.csv",
        "p,tiny,zero\na,1e-400,0e-400\nb,0.5,0.0\nc,-2E-999,0\n",
    );
    let samples = desk.packed(
        "x",
        &["--table", "t.csv", "--payload-column", "p", "--no-path"],
    );
    let tiny: Vec<&str> = samples.iter().map(|sample| sample.text("tiny")).collect();
    assert_eq!(tiny, ["1e-400", "0.5", "-2E-999"]);
}

#[test]
fn a_type_for_the_path_that_pack_makes_is_refused() {
    let desk = Desk::new();
    desk.file("in/f", "x");
    let refused = desk.refused("x", &["--type", "path=int", "in"]);
    assert!(
        refused.contains("path") && refused.contains("int"),
        "{refused}"
    );
    desk.packed("y", &["--type", "path=string", "in"]);
}
