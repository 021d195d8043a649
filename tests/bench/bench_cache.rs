//! Writes a cache of random payloads for the benchmarks:
//! `bench_cache OUT_DIR NAME SAMPLES BYTES none|lz4`.

use std::path::Path;

use datasetrt::format::metadata::{Field, FieldKind, ValueRef};
use datasetrt::format::record::Compression;
use datasetrt::writer::{CacheWriter, WriterOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [out_dir, name, samples, bytes, compression] = arguments.as_slice() else {
        return Err("usage: bench_cache OUT_DIR NAME SAMPLES BYTES none|lz4".into());
    };
    let options = WriterOptions {
        compression: match compression.as_str() {
            "none" => Compression::None,
            "lz4" => Compression::Lz4,
            other => return Err(format!("no compression {other}").into()),
        },
        ..WriterOptions::default()
    };
    let schema = [("label", FieldKind::String), ("number", FieldKind::Int)];
    let schema = schema.map(|(name, kind)| Field {
        name: name.to_owned(),
        kind,
    });
    let mut writer = CacheWriter::create(Path::new(out_dir), name, schema.to_vec(), options)?;
    let (samples, bytes): (i64, usize) = (samples.parse()?, bytes.parse()?);
    let mut payload = vec![0; bytes];
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for number in 0..samples {
        for chunk in payload.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Three bits of each byte, so that lz4 finds something to do.
            let word = state & 0x0707_0707_0707_0707;
            for (byte, random) in chunk.iter_mut().zip(word.to_le_bytes()) {
                *byte = random;
            }
        }
        let label = format!("class {}", number % 100);
        let row = [ValueRef::String(&label), ValueRef::Int(number)];
        writer.push_row(&payload, &row)?;
    }
    let report = writer.finish()?;
    println!("{}: {} bytes", report.dir.display(), report.shard_bytes);
    Ok(())
}
