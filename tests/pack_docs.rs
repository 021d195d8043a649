//! Runs every example of docs/pack.md, in one folder and in order, and compares what is printed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test may panic"
)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

/// A command and what it prints.
struct Example {
    command: String,
    printed: String,
}

fn examples(document: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut inside = false;
    for line in document.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            line if inside => match line.strip_prefix("$ ") {
                Some(command) => examples.push(Example {
                    command: command.to_owned(),
                    printed: String::new(),
                }),
                None => {
                    let example = examples.last_mut().expect("a command comes first");
                    example.printed += line;
                    example.printed.push('\n');
                }
            },
            _ => {}
        }
    }
    examples
}

/// `text` with the time at the end of each line taken out.
fn timeless(text: &str) -> String {
    let lines = text.lines();
    let without = lines.map(|line| match line.rsplit_once("; ") {
        Some((start, end)) if end.ends_with(" s") => start,
        _ => line,
    });
    without.map(|line| format!("{line}\n")).collect()
}

/// The table that the document does not make itself.
fn birds(dir: &Path) {
    for (name, bytes) in [("a", "tweet"), ("b", "chirp"), ("c", "caw!!")] {
        fs::create_dir_all(dir.join("birds")).unwrap();
        fs::write(dir.join(format!("birds/{name}.bin")), bytes).unwrap();
    }
    let schema = "message rows { required binary file (UTF8); required binary species (UTF8);
        required double weight; }";
    let schema = Arc::new(parquet::schema::parser::parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let texts = [
        ["birds/a.bin", "birds/b.bin", "birds/c.bin"],
        ["robin", "sparrow", "crow"],
    ];
    for values in texts {
        let mut column = group.next_column().unwrap().unwrap();
        let values = values.map(ByteArray::from);
        column
            .typed::<ByteArrayType>()
            .write_batch(&values, None, None)
            .unwrap();
        column.close().unwrap();
    }
    let mut column = group.next_column().unwrap().unwrap();
    column
        .typed::<DoubleType>()
        .write_batch(&[0.02, 0.03, 0.5], None, None)
        .unwrap();
    column.close().unwrap();
    group.close().unwrap();
    fs::write(dir.join("birds.parquet"), writer.into_inner().unwrap()).unwrap();
}

#[test]
fn the_examples_of_the_document_print_what_it_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("docs/pack.md")).unwrap();
    let examples = examples(&document);
    assert!(examples.len() > 25);
    let dir = tempfile::tempdir().unwrap();
    birds(dir.path());
    let programs = Path::new(env!("CARGO_BIN_EXE_datasetrt")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", programs.display());
    let mut wrong = String::new();
    for example in examples {
        let output = Command::new("sh")
            .args(["-c", &format!("{} 2>&1", example.command)])
            .current_dir(dir.path())
            .env("PATH", &path)
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        if timeless(&printed) != timeless(&example.printed) {
            wrong += &format!(
                "$ {}\n-- it printed:\n{printed}-- docs/pack.md says:\n{}\n",
                example.command, example.printed
            );
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
