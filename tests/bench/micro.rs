//! The parts of one read that cost us something: the envelope check, the decoder, the index, the command of
//! a control file.
//!
//! usage: cargo bench --bench micro

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use datasetrt::cache::Cache;
use datasetrt::format::envelope::Envelope;
use datasetrt::format::index::{IndexRow, IndexView};
use datasetrt::format::metadata::{Field, FieldKind, ValueRef};
use datasetrt::format::record::{Compression, decode_lz4, encode_record};
use datasetrt::migrate::parse_control_word;
use datasetrt::storage::OpenFileLimit;
use datasetrt::writer::{CacheWriter, WriterOptions};

/// Samples of the cache under test.
const SAMPLES: u64 = 1024;
const PAYLOAD: usize = 4096;

/// A little of everything, about 90 bytes of JSON.
fn fields() -> Vec<Field> {
    [
        ("label", FieldKind::String),
        ("path", FieldKind::String),
        ("split", FieldKind::Int),
        ("weight", FieldKind::Float),
    ]
    .map(|(name, kind)| Field {
        name: name.to_owned(),
        kind,
    })
    .to_vec()
}

fn cache(dir: &Path, compression: Compression) -> Cache {
    let options = WriterOptions {
        compression,
        ..WriterOptions::default()
    };
    let mut writer = CacheWriter::create(dir, compression.name(), fields(), options).unwrap();
    let payload = half_text(PAYLOAD);
    for n in 0..SAMPLES {
        let path = format!("class-{}/{n:07}.bin", n % 10);
        let row = [
            ValueRef::String("a label"),
            ValueRef::String(&path),
            ValueRef::Int((n % 3) as i64),
            ValueRef::Float(n as f64 / 7.0),
        ];
        writer.push_row(&payload, &row).unwrap();
    }
    let report = writer.finish().unwrap();
    Cache::open(&report.dir, &OpenFileLimit::new(16)).unwrap()
}

/// Half noise, half words.
fn half_text(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    });
    let mut bytes: Vec<u8> = noise.take(len / 2).collect();
    let words: Vec<_> = "the samples of a cache are read many times and written once"
        .split(' ')
        .collect();
    let mut at = 7;
    while bytes.len() < len {
        at = (at * 31 + bytes.len()) % words.len();
        bytes.extend_from_slice(words[at].as_bytes());
        bytes.push(b' ');
    }
    bytes.truncate(len);
    bytes
}

fn envelope(c: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    let cache = cache(dir.path(), Compression::Lz4);
    let envelope = Envelope::new(&fields());
    let mut usual = Vec::new();
    let mut group = c.benchmark_group("envelope");
    let mut samples = (0..SAMPLES).cycle();
    group.bench_function("usual spelling, by bytes", |b| {
        b.iter(|| {
            let sample = samples.next().unwrap();
            envelope
                .write_row(&cache.table().unwrap(), sample, &mut usual)
                .unwrap();
            usual.len()
        })
    });
    envelope
        .write_row(&cache.table().unwrap(), 5, &mut usual)
        .unwrap();
    let spaced = String::from_utf8(usual.clone()).unwrap().replace(':', ": ");
    group.bench_function("other spelling, parsed", |b| {
        b.iter(|| {
            envelope
                .compare(spaced.as_bytes(), &cache.table().unwrap(), 5)
                .unwrap()
        })
    });
    group.finish();
}

fn lz4(c: &mut Criterion) {
    let mut group = c.benchmark_group("lz4");
    for len in [4 << 10, 100 << 10] {
        let payload = half_text(len);
        let mut record = Vec::new();
        encode_record(b"{}", &payload, Compression::Lz4, &mut record).unwrap();
        let mut out = vec![0; len];
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("decode {} KiB", len >> 10), |b| {
            b.iter(|| decode_lz4(black_box(&record[14..]), &mut out).unwrap())
        });
        assert!(out == payload);
    }
    group.finish();
}

fn index(c: &mut Criterion) {
    let rows = 1_u64 << 20;
    let bytes: Vec<u8> = (0..rows)
        .flat_map(|n| {
            let row = IndexRow {
                shard: n >> 14,
                offset: n << 12,
                length: 4096,
            };
            row.encode()
        })
        .collect();
    let view = IndexView::new(&bytes);
    let mut at = 0_u64;
    c.bench_function("index/random row of 1 Mi", |b| {
        b.iter(|| {
            at = at
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            view.row(black_box(at >> 44)).unwrap().offset
        })
    });
}

/// What a whole read costs without the mount: index, head of the record, envelope, decoder.
fn sample(c: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    let mut group = c.benchmark_group("sample");
    for compression in [Compression::None, Compression::Lz4] {
        let cache = cache(dir.path(), compression);
        let mut out = vec![0; PAYLOAD];
        let mut samples = (0..SAMPLES).cycle();
        group.bench_function(format!("length, {}", compression.name()), |b| {
            b.iter(|| cache.payload_len(samples.next().unwrap()).unwrap())
        });
        group.bench_function(format!("4 KiB payload, {}", compression.name()), |b| {
            b.iter(|| {
                let sample = samples.next().unwrap();
                let read = cache.with_record(sample, PAYLOAD as u64, |r| r.decode(&mut out));
                read.unwrap().unwrap();
            })
        });
    }
    group.finish();
}

fn control(c: &mut Criterion) {
    c.bench_function("control/word", |b| {
        b.iter(|| parse_control_word(black_box(b"3\n")))
    });
}

criterion_group!(benches, envelope, lz4, index, sample, control);
criterion_main!(benches);
