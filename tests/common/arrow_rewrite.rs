//! `metadata.arrow` written in ways that other programs write it, and in ways that nobody should.

use std::collections::HashMap;
use std::io::Cursor;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int32Array, Int64Array, LargeStringArray, RecordBatch,
    StringArray, StringViewArray,
};
use arrow_ipc::convert::IpcSchemaEncoder;
use arrow_ipc::reader::FileReader;
use arrow_ipc::writer::{
    DictionaryTracker, EncodedData, FileWriter, IpcDataGenerator, IpcWriteContext, IpcWriteOptions,
    StreamWriter, write_message,
};
use arrow_ipc::{
    Block, BodyCompressionBuilder, BodyCompressionMethod, Buffer, CompressionType, FieldNode,
    FooterBuilder, MessageBuilder, MessageHeader, MetadataVersion, RecordBatchBuilder,
    root_as_message,
};
use arrow_schema::{DataType, Field, Schema};
use flatbuffers::FlatBufferBuilder;

/// Buffers in a file start at multiples of this many bytes.
const ALIGNMENT: usize = 64;

/// The table in `bytes`, written as `how` says. Validity bitmaps are left out unless there is a null.
#[must_use]
pub fn rewrite(bytes: &[u8], how: &str) -> Vec<u8> {
    let batch = FileReader::try_new(Cursor::new(bytes), None)
        .unwrap()
        .next()
        .expect("one batch")
        .unwrap();
    let rows = batch.num_rows();
    match how {
        "two_batches" => file(&split(&batch, 2), None),
        "three_batches" => file(&split(&batch, 3), None),
        "drop_last_row" => file(&[batch.slice(0, rows - 1)], None),
        "lz4_compressed" => file(&[batch], Some(CompressionType::LZ4_FRAME)),
        "zstd_compressed" => file(&[batch], Some(CompressionType::ZSTD)),
        "dictionary" => {
            with_arrows_own_writer(&each(&batch, dictionary), IpcWriteOptions::default())
        }
        "legacy" => with_arrows_own_writer(
            &batch,
            IpcWriteOptions::try_new(8, true, MetadataVersion::V4).unwrap(),
        ),
        "stream" => {
            let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
            writer.into_inner().unwrap()
        }
        _ => file(&[changed(&batch, how)], None),
    }
}

/// The batch with other columns.
fn changed(batch: &RecordBatch, how: &str) -> RecordBatch {
    let schema = batch.schema();
    let mut columns = named(batch);
    match how {
        "plain" => {}
        "reversed_columns" => columns.reverse(),
        "renamed_columns" => {
            for (field, _) in &mut columns {
                *field = field.clone().with_name(format!("{}_renamed", field.name()));
            }
        }
        "large_utf8" => return each(batch, large),
        "utf8_view" => return each(batch, view),
        "int32" => return each(batch, int32),
        "nullable" => {
            for (field, _) in &mut columns {
                *field = field.clone().with_nullable(true);
            }
        }
        "null_in_first_row" => replace_first_text(&mut columns, None),
        "change_row0_string" => replace_first_text(&mut columns, Some("changed")),
        "drop_last_column" => drop(columns.pop()),
        "extra_column" => {
            let values: Int64Array = (0..batch.num_rows() as i64).collect();
            let field = Field::new("zz_extra", DataType::Int64, false);
            columns.push((field, Arc::new(values)));
        }
        "schema_metadata" => {
            let metadata = HashMap::from([("made by".to_owned(), "another library".to_owned())]);
            let schema = Schema::clone(&schema).with_metadata(metadata);
            return RecordBatch::try_new(Arc::new(schema), batch.columns().to_vec()).unwrap();
        }
        other => panic!("unknown rewrite {other:?}"),
    }
    of_columns(columns)
}

fn named(batch: &RecordBatch) -> Vec<(Field, ArrayRef)> {
    let fields = batch.schema();
    let fields = fields.fields().iter().map(|field| Field::clone(field));
    fields.zip(batch.columns().iter().cloned()).collect()
}

fn of_columns(columns: Vec<(Field, ArrayRef)>) -> RecordBatch {
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

/// The batch with each column converted that `convert` has an answer for.
fn each(batch: &RecordBatch, convert: impl Fn(&ArrayRef) -> Option<ArrayRef>) -> RecordBatch {
    let columns = named(batch).into_iter().map(|(field, array)| {
        let array = convert(&array).unwrap_or(array);
        (field.with_data_type(array.data_type().clone()), array)
    });
    of_columns(columns.collect())
}

fn text(array: &ArrayRef) -> Option<&StringArray> {
    array.as_string_opt::<i32>()
}

fn large(array: &ArrayRef) -> Option<ArrayRef> {
    let values: LargeStringArray = text(array)?.iter().collect();
    Some(Arc::new(values))
}

fn view(array: &ArrayRef) -> Option<ArrayRef> {
    let values: StringViewArray = text(array)?.iter().collect();
    Some(Arc::new(values))
}

fn dictionary(array: &ArrayRef) -> Option<ArrayRef> {
    let values: DictionaryArray<Int32Type> = text(array)?.iter().collect();
    Some(Arc::new(values))
}

fn int32(array: &ArrayRef) -> Option<ArrayRef> {
    let values = array.as_primitive_opt::<Int64Type>()?.iter();
    let values: Int32Array = values.map(|n| n.map(|n| n as i32)).collect();
    Some(Arc::new(values))
}

/// Puts `value` into row 0 of the first column of text.
fn replace_first_text(columns: &mut [(Field, ArrayRef)], value: Option<&str>) {
    let (field, array) = columns
        .iter_mut()
        .find(|(_, array)| text(array).is_some())
        .expect("a column of text");
    let rest = text(array).unwrap().iter().skip(1);
    let values: StringArray = std::iter::once(value).chain(rest).collect();
    *field = field.clone().with_nullable(value.is_none());
    *array = Arc::new(values);
}

fn split(batch: &RecordBatch, pieces: usize) -> Vec<RecordBatch> {
    let rows = batch.num_rows();
    let bounds: Vec<usize> = (0..=pieces).map(|n| rows * n / pieces).collect();
    let pieces = bounds.windows(2);
    pieces.map(|w| batch.slice(w[0], w[1] - w[0])).collect()
}

fn with_arrows_own_writer(batch: &RecordBatch, options: IpcWriteOptions) -> Vec<u8> {
    let mut writer =
        FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
    writer.into_inner().unwrap()
}

/// An Arrow IPC file whose messages are put together here: arrow's own writer neither leaves out
/// bitmaps nor marks bodies as compressed without a compression library.
fn file(batches: &[RecordBatch], codec: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::default();
    let generator = IpcDataGenerator::default();
    let mut tracker = DictionaryTracker::new(true);
    let schema = batches[0].schema();

    let mut out = b"ARROW1\0\0".to_vec();
    let message =
        generator.schema_to_bytes_with_dictionary_tracker(&schema, &mut tracker, &options);
    write_message(&mut out, message, &options).unwrap();
    let mut blocks = Vec::new();
    for batch in batches {
        let mut context = IpcWriteContext::default();
        let (_, encoded) = generator
            .encode(batch, &mut tracker, &options, &mut context)
            .unwrap();
        let message = rebuilt(&encoded, batch, codec);
        let start = out.len() as i64;
        let (meta, body) = write_message(&mut out, message, &options).unwrap();
        blocks.push(Block::new(start, meta as i32, body as i64));
    }
    out.extend_from_slice(&[0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0]);

    let mut fbb = FlatBufferBuilder::new();
    let blocks = fbb.create_vector(&blocks);
    let schema = IpcSchemaEncoder::new().schema_to_fb_offset(&mut fbb, &schema);
    let mut footer = FooterBuilder::new(&mut fbb);
    footer.add_version(MetadataVersion::V5);
    footer.add_schema(schema);
    footer.add_recordBatches(blocks);
    let footer = footer.finish();
    fbb.finish(footer, None);
    let footer = fbb.finished_data();
    out.extend_from_slice(footer);
    out.extend_from_slice(&(footer.len() as i32).to_le_bytes());
    out.extend_from_slice(b"ARROW1");
    out
}

/// The same message with other buffers: no bitmap where there is no null, and with a codec each
/// buffer behind the length -1, which says "not compressed after all".
fn rebuilt(
    encoded: &EncodedData,
    batch: &RecordBatch,
    codec: Option<CompressionType>,
) -> EncodedData {
    let message = root_as_message(&encoded.ipc_message).unwrap();
    let header = message.header_as_record_batch().unwrap();
    let bitmaps = bitmap_positions(batch);
    let mut body = Vec::new();
    let mut buffers = Vec::new();
    for (n, buffer) in header.buffers().unwrap().iter().enumerate() {
        let start = body.len();
        let bytes = &encoded.arrow_data[buffer.offset() as usize..][..buffer.length() as usize];
        if !bitmaps.contains(&n) && !bytes.is_empty() {
            if codec.is_some() {
                body.extend_from_slice(&(-1_i64).to_le_bytes());
            }
            body.extend_from_slice(bytes);
        }
        buffers.push(Buffer::new(start as i64, (body.len() - start) as i64));
        body.resize(body.len().next_multiple_of(ALIGNMENT), 0);
    }
    let nodes: Vec<FieldNode> = header.nodes().unwrap().iter().copied().collect();
    let variadic: Option<Vec<i64>> = header.variadicBufferCounts().map(|c| c.iter().collect());

    let mut fbb = FlatBufferBuilder::new();
    let compression = codec.map(|codec| {
        let mut compression = BodyCompressionBuilder::new(&mut fbb);
        compression.add_method(BodyCompressionMethod::BUFFER);
        compression.add_codec(codec);
        compression.finish()
    });
    let buffers = fbb.create_vector(&buffers);
    let nodes = fbb.create_vector(&nodes);
    let variadic = variadic.map(|counts| fbb.create_vector(&counts));
    let mut record_batch = RecordBatchBuilder::new(&mut fbb);
    record_batch.add_length(header.length());
    record_batch.add_nodes(nodes);
    record_batch.add_buffers(buffers);
    if let Some(compression) = compression {
        record_batch.add_compression(compression);
    }
    if let Some(variadic) = variadic {
        record_batch.add_variadicBufferCounts(variadic);
    }
    let record_batch = record_batch.finish();
    let mut message = MessageBuilder::new(&mut fbb);
    message.add_version(MetadataVersion::V5);
    message.add_header_type(MessageHeader::RecordBatch);
    message.add_bodyLength(body.len() as i64);
    message.add_header(record_batch.as_union_value());
    let message = message.finish();
    fbb.finish(message, None);
    EncodedData {
        ipc_message: fbb.finished_data().to_vec(),
        arrow_data: body,
    }
}

/// Which buffers of the message are bitmaps of columns without nulls.
fn bitmap_positions(batch: &RecordBatch) -> Vec<usize> {
    let mut next = 0;
    let mut positions = Vec::new();
    for column in batch.columns() {
        if column.null_count() == 0 {
            positions.push(next);
        }
        next += 1 + column.to_data().buffers().len();
    }
    positions
}
