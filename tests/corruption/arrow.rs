//! `metadata.arrow` with lengths that lie, and one table in the ways in which programs write it.

use std::time::{Duration, Instant};

use arrow_ipc::{
    Block, Endianness, FieldBuilder, Footer, FooterBuilder, IntBuilder, MetadataVersion,
    SchemaBuilder, Struct_Builder, Type, root_as_footer, root_as_message,
};
use datasetrt::error::FaultKind;
use datasetrt::format::metadata::ForeignTable;
use flatbuffers::{FlatBufferBuilder, ForwardsUOffset, WIPOffset};

use crate::alloc::{requests_of, within};
use crate::common::arrow_rewrite::rewrite;
use crate::common::fixture::{Fixture, Sample, TestCache};
use crate::{fault_at_open, outcome};

/// The table is refused as one, quickly, without allocating what it states, by cache and by list.
fn assert_refused(cache: &TestCache, what: &str) {
    cache.reseal();
    let start = Instant::now();
    assert_eq!(
        within(1 << 20, || fault_at_open(cache)),
        FaultKind::Table,
        "{what}"
    );
    assert!(start.elapsed() < Duration::from_secs(2), "{what}");
    assert_eq!(outcome(cache), "open: Table metadata.arrow", "{what}");
    let message = cache.dataset().unwrap_err().chain();
    assert!(message.contains("metadata.arrow"), "{message}");
}

fn footer_of(table: &[u8]) -> &[u8] {
    let end = table.len() - 10;
    let len = i32::from_le_bytes(*table[end..].first_chunk().unwrap());
    &table[end - len as usize..end]
}

/// Where the first record batch's block lies in the file: offset, metadata length, body length.
fn first_block(table: &[u8]) -> usize {
    let footer = root_as_footer(footer_of(table)).unwrap();
    let block = footer.recordBatches().unwrap().get(0);
    let mut bytes = block.offset().to_le_bytes().to_vec();
    bytes.extend_from_slice(&block.metaDataLength().to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&block.bodyLength().to_le_bytes());
    let places: Vec<usize> = (0..=table.len() - 24)
        .filter(|&at| table[at..at + 24] == bytes)
        .collect();
    assert_eq!(places.len(), 1);
    places[0]
}

#[test]
fn lengths_in_the_footer_are_not_allocated() {
    // A table of 1 KB asked for 44 TB and ended the process; no handler of panics sees that.
    for body in [0x0280_0000_0240, i64::MAX, -1, i64::MIN, 1 << 32] {
        let cache = Fixture::tiny().build();
        let at = first_block(&cache.read("metadata.arrow")) + 16;
        cache.edit("metadata.arrow", |b| {
            b[at..at + 8].copy_from_slice(&i64::to_le_bytes(body))
        });
        assert_refused(&cache, &format!("body length {body}"));
    }
    for meta in [-1, i32::MIN, i32::MAX, 0, 4] {
        let cache = Fixture::tiny().build();
        let at = first_block(&cache.read("metadata.arrow")) + 8;
        cache.edit("metadata.arrow", |b| {
            b[at..at + 4].copy_from_slice(&i32::to_le_bytes(meta))
        });
        assert_refused(&cache, &format!("metadata length {meta}"));
    }
    for offset in [-1, i64::MAX, 0, 1 << 40] {
        let cache = Fixture::tiny().build();
        let at = first_block(&cache.read("metadata.arrow"));
        cache.edit("metadata.arrow", |b| {
            b[at..at + 8].copy_from_slice(&i64::to_le_bytes(offset))
        });
        assert_refused(&cache, &format!("offset {offset}"));
    }
}

#[test]
fn the_length_of_the_footer_is_bounded_by_the_file() {
    for len in [0x7FFF_FFFF, -1, 0, i32::MIN, 1] {
        let cache = Fixture::tiny().build();
        cache.edit("metadata.arrow", |bytes| {
            let at = bytes.len() - 10;
            bytes[at..at + 4].copy_from_slice(&i32::to_le_bytes(len));
        });
        assert_refused(&cache, &format!("footer length {len}"));
    }
}

#[test]
fn cut_and_foreign_files_are_refused() {
    for len in [0, 5, 6, 8, 12, 17, 18, 24] {
        let cache = Fixture::tiny().build();
        cache.truncate("metadata.arrow", len);
        assert_refused(&cache, &format!("{len} bytes"));
    }
    for bytes in [
        &b"ARROW1"[..],
        b"ARROW1ARROW1",
        b"ARROW1\0\0\0\0\0\0ARROW1",
        &[b'A'; 4096],
    ] {
        let cache = Fixture::tiny().build();
        cache.put("metadata.arrow", bytes);
        assert_refused(&cache, &format!("{bytes:?}"));
    }
}

/// Puts another footer in the place of the table's own, whose blocks the new one may use.
fn replace_footer(
    bytes: &mut Vec<u8>,
    build: impl FnOnce(&mut FlatBufferBuilder<'static>, &[Block]) -> WIPOffset<Footer<'static>>,
) {
    let old = footer_of(bytes).to_vec();
    let blocks = root_as_footer(&old).unwrap().recordBatches().unwrap();
    let blocks: Vec<Block> = blocks.iter().copied().collect();
    let mut fbb = FlatBufferBuilder::new();
    let footer = build(&mut fbb, &blocks);
    fbb.finish(footer, None);
    bytes.truncate(bytes.len() - 10 - old.len());
    bytes.extend_from_slice(fbb.finished_data());
    bytes.extend_from_slice(&(fbb.finished_data().len() as i32).to_le_bytes());
    bytes.extend_from_slice(b"ARROW1");
}

fn footer<'a>(
    fbb: &mut FlatBufferBuilder<'a>,
    schema: WIPOffset<arrow_ipc::Schema<'a>>,
    blocks: &[Block],
) -> WIPOffset<Footer<'a>> {
    let blocks = fbb.create_vector(blocks);
    let mut footer = FooterBuilder::new(fbb);
    footer.add_version(MetadataVersion::V5);
    footer.add_schema(schema);
    footer.add_recordBatches(blocks);
    footer.finish()
}

#[test]
fn a_footer_without_schema_is_refused() {
    // It hit an unwrap in the decoder.
    let cache = Fixture::tiny().build();
    cache.edit("metadata.arrow", |bytes| {
        replace_footer(bytes, |fbb, _| FooterBuilder::new(fbb).finish());
    });
    assert_refused(&cache, "no schema");
}

/// Texts around the lengths that string views treat differently.
fn with_texts() -> TestCache {
    let texts = [
        String::new(),
        "twelve bytes".to_owned(),
        "thirteen byte".to_owned(),
        "\u{e9}\u{1f642}".to_owned(),
        "0123456789\u{e9}".to_owned(),
        format!("{}\u{1f642}", "\u{e9}".repeat(98)),
        "again".to_owned(),
        "again".to_owned(),
    ];
    let samples = texts.iter().zip(0..).map(|(text, n)| {
        Sample::new(format!("payload {n}"))
            .with("flag", n % 3 == 0)
            .with("label", n)
            .with("score", f64::from(n) / 3.0 + 1.0)
            .with("text", text.as_str())
            .with("zweitext", format!("{text}{text}"))
    });
    Fixture::new().samples(samples).build()
}

#[test]
fn one_table_in_many_spellings_is_one_table() {
    // Files of other writers were unreadable in one reader, and read as wrong text in another.
    for how in [
        "plain",
        "large_utf8",
        "utf8_view",
        "two_batches",
        "three_batches",
        "nullable",
        "extra_column",
        "schema_metadata",
    ] {
        let cache = with_texts();
        cache.edit("metadata.arrow", |bytes| *bytes = rewrite(bytes, how));
        cache.reseal();
        assert_eq!(outcome(&cache), "right", "{how}");
    }
}

#[test]
fn files_of_old_writers_are_read() {
    // Before format version 5 messages had no marker before their length.
    let cache = with_texts();
    cache.edit("metadata.arrow", |bytes| *bytes = rewrite(bytes, "legacy"));
    cache.reseal();
    assert_eq!(outcome(&cache), "right");
}

#[test]
fn a_table_of_the_other_byte_order_is_refused_and_not_read_backwards() {
    let cache = Fixture::new().payloads(["a", "b"]).build();
    cache.edit("metadata.arrow", |bytes| {
        replace_footer(bytes, |fbb, blocks| {
            let width = {
                let mut int = IntBuilder::new(fbb);
                int.add_bitWidth(64);
                int.add_is_signed(true);
                int.finish().as_union_value()
            };
            let name = fbb.create_string("n");
            let children = fbb.create_vector::<ForwardsUOffset<arrow_ipc::Field>>(&[]);
            let mut field = FieldBuilder::new(fbb);
            field.add_name(name);
            field.add_type_type(Type::Int);
            field.add_type_(width);
            field.add_children(children);
            let field = field.finish();
            let fields = fbb.create_vector(&[field]);
            let mut schema = SchemaBuilder::new(fbb);
            schema.add_endianness(Endianness::Big);
            schema.add_fields(fields);
            let schema = schema.finish();
            footer(fbb, schema, blocks)
        });
    });
    assert_refused(&cache, "big-endian");
}

#[test]
fn a_schema_whose_fields_share_their_children_is_not_expanded() {
    // Each level refers to the one below it twice: 1 KB became gigabytes.
    let cache = Fixture::new().payloads(["a", "b"]).build();
    cache.edit("metadata.arrow", |bytes| {
        replace_footer(bytes, |fbb, blocks| {
            let kind = Struct_Builder::new(fbb).finish().as_union_value();
            let name = fbb.create_string("n");
            let mut children = fbb.create_vector::<ForwardsUOffset<arrow_ipc::Field>>(&[]);
            for _ in 0..16 {
                let mut field = FieldBuilder::new(fbb);
                field.add_name(name);
                field.add_type_type(Type::Struct_);
                field.add_type_(kind);
                field.add_children(children);
                let field = field.finish();
                children = fbb.create_vector(&[field, field]);
            }
            let mut schema = SchemaBuilder::new(fbb);
            schema.add_fields(children);
            let schema = schema.finish();
            footer(fbb, schema, blocks)
        });
    });
    cache.reseal();
    let (_, requests) = requests_of(|| assert_refused(&cache, "shared children"));
    assert!(requests < 100_000, "{requests} allocations");
    let bytes = cache.read("metadata.arrow");
    let (table, requests) = requests_of(|| ForeignTable::open(bytes.into()));
    assert!(table.is_err() && requests < 1000, "{requests} allocations");
}

/// Reads a table of another program to its end, without large allocations.
fn read_foreign(bytes: Vec<u8>) -> Result<usize, String> {
    within(1 << 20, || {
        let mut table = ForeignTable::open(bytes.into())?;
        let mut rows = 0;
        while table.next_row()?.is_some() {
            rows += 1;
        }
        Ok(rows)
    })
}

#[test]
fn lengths_in_tables_of_other_programs_are_not_allocated() {
    let table = with_texts().read("metadata.arrow");
    let rows = read_foreign(table.clone()).unwrap();
    let stream = rewrite(&table, "stream");
    assert_eq!(read_foreign(stream.clone()), Ok(rows));
    // The second message is the record batch.
    let len_at = |at: usize| i32::from_le_bytes(*stream[at..].first_chunk().unwrap()) as usize;
    let second = 8 + len_at(4);
    let message = &stream[second + 8..][..len_at(second + 4)];
    let body = root_as_message(message).unwrap().bodyLength().to_le_bytes();
    let places = (0..message.len() - 7).filter(|at| message[*at..at + 8] == body);
    let places: Vec<usize> = places.map(|at| second + 8 + at).collect();
    assert_eq!(places.len(), 1);
    for len in [
        -1,
        i64::MIN,
        i64::MAX,
        1 << 44,
        1 << 31,
        stream.len() as i64,
    ] {
        let mut lies = stream.clone();
        lies[places[0]..places[0] + 8].copy_from_slice(&len.to_le_bytes());
        assert!(read_foreign(lies).is_err(), "body of a stream: {len}");
        let mut lies = table.clone();
        let at = first_block(&table) + 16;
        lies[at..at + 8].copy_from_slice(&len.to_le_bytes());
        assert!(read_foreign(lies).is_err(), "body of a file: {len}");
    }
    for len in [-1, i32::MIN, i32::MAX, stream.len() as i32] {
        for at in [4, second + 4] {
            let mut lies = stream.clone();
            lies[at..at + 4].copy_from_slice(&len.to_le_bytes());
            assert!(read_foreign(lies).is_err(), "message at {at}: {len}");
        }
    }
}

#[test]
fn spellings_that_are_not_read_are_refused_naming_column_or_codec() {
    for (how, named) in [
        ("dictionary", "dictionary-encoded column \"text\""),
        ("lz4_compressed", "LZ4_FRAME"),
        ("zstd_compressed", "ZSTD"),
        ("int32", "\"label\" (Int32)"),
        ("reversed_columns", "\"flag\" (bool)"),
        ("renamed_columns", "\"flag_renamed\""),
        ("drop_last_column", "\"zweitext\""),
        ("stream", "ARROW1 at both ends"),
    ] {
        let cache = with_texts();
        cache.edit("metadata.arrow", |bytes| *bytes = rewrite(bytes, how));
        assert_refused(&cache, how);
        let message = cache.open().unwrap_err().chain();
        assert!(message.contains(named), "{how}: {message}");
    }
}

#[test]
fn a_null_is_damage_of_its_sample() {
    for how in ["null_in_first_row", "change_row0_string"] {
        let cache = with_texts();
        cache.edit("metadata.arrow", |bytes| *bytes = rewrite(bytes, how));
        cache.reseal();
        let found = outcome(&cache);
        let (kind, rest) = found.split_at("read: Envelope ".len());
        assert_eq!(kind, "read: Envelope ", "{how}: {found}");
        assert!(
            rest.ends_with("(0)") && !rest.contains(','),
            "{how}: {found}"
        );
    }
}

#[test]
fn rows_without_columns_are_samples_without_metadata() {
    // "must either specify a row count or at least one column": a batch without columns lost its rows.
    for fixture in [Fixture::new(), Fixture::new().lz4(), Fixture::new().v2()] {
        let cache = fixture
            .samples([&b"a"[..], b"", b"ccc"].map(Sample::new))
            .build();
        assert_eq!(outcome(&cache), "right");
        assert_eq!(cache.record(0).0, b"{}");
        assert!(cache.open().unwrap().metadata(2).unwrap().is_empty());
        cache.set_json(0, "{\"x\":1}");
        cache.reseal();
        assert_eq!(outcome(&cache), "read: Envelope shards/000000.bin (0)");
    }
}

#[test]
fn a_table_without_batches_has_no_rows() {
    let cache = Fixture::tiny().build();
    let empty = Fixture::tiny().build();
    let schema: Vec<_> = cache.schema.clone();
    let table = datasetrt::format::metadata::TableWriter::new(Vec::new(), &schema).unwrap();
    empty.put("metadata.arrow", table.finish().unwrap());
    empty.reseal();
    assert_eq!(outcome(&empty), "open: RowCount metadata.arrow");
}
