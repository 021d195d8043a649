//! `CacheWriter`: what it puts on disk, byte for byte, and what it leaves behind when it is stopped.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a test may panic"
)]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use datasetrt::cache::Cache;
use datasetrt::error::Error;
use datasetrt::format::metadata::{Field, FieldKind, Value, ValueRef};
use datasetrt::format::record::Compression;
use datasetrt::storage::OpenFileLimit;
use datasetrt::writer::{CacheWriter, WriteReport, WriterOptions};

fn field(name: &str, kind: FieldKind) -> Field {
    Field {
        name: name.to_owned(),
        kind,
    }
}

fn options(compression: Compression, max_shard_bytes: u64) -> WriterOptions {
    WriterOptions {
        compression,
        max_shard_bytes,
    }
}

fn open(dir: &Path) -> Cache {
    Cache::open(dir, &OpenFileLimit::new(16)).unwrap()
}

fn payload(cache: &Cache, sample: u64) -> Vec<u8> {
    cache
        .with_record(sample, u64::MAX, |record| {
            let mut out = vec![0; usize::try_from(record.decoded_len()).unwrap()];
            record.decode(&mut out).map(|()| out)
        })
        .unwrap()
        .unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Checks everything the format promises of a cache as a whole.
fn check_whole(cache: &Cache) {
    for (check, _) in cache.file_checks() {
        cache.check_file(check, &mut [0; 4096], &|_| ()).unwrap();
    }
}

/// One int field `n`; a record without lz4 takes 8 + 7 bytes and its payload while n is one digit.
fn write_numbered(out: &Path, limit: u64, payloads: &[&[u8]]) -> WriteReport {
    let schema = vec![field("n", FieldKind::Int)];
    let mut writer =
        CacheWriter::create(out, "set", schema, options(Compression::None, limit)).unwrap();
    for (n, payload) in (0..).zip(payloads) {
        writer.push_row(payload, &[ValueRef::Int(n)]).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn bytes_on_disk_are_those_of_the_format() {
    let out = tempfile::tempdir().unwrap();
    let schema = vec![
        field("s", FieldKind::String),
        field("b", FieldKind::Bool),
        field("f", FieldKind::Float),
    ];
    let mut writer = CacheWriter::create(
        out.path(),
        "source",
        schema,
        options(Compression::Lz4, 1 << 20),
    )
    .unwrap();
    let metadata = |s: &str, b, f| {
        [
            ("f".to_owned(), Value::Float(f)),
            ("s".to_owned(), Value::String(s.to_owned())),
            ("b".to_owned(), Value::Bool(b)),
        ]
    };
    writer
        .push(b"", &metadata("a\"\u{1f}/", true, 1.0))
        .unwrap();
    writer
        .push(b"abcd", &metadata("\u{e9}", false, 1e16))
        .unwrap();
    let report = writer.finish().unwrap();
    let dir = out.path().join("source");
    assert_eq!(report.dir, dir);
    assert_eq!(
        (report.samples, report.shards, report.decoded_bytes),
        (2, 1, 4)
    );
    assert_eq!(names(out.path()), ["source"]);
    assert_eq!(
        names(&dir),
        ["index.bin", "manifest.json", "metadata.arrow", "shards"]
    );
    assert_eq!(names(&dir.join("shards")), ["000000.bin"]);

    let shard = fs::read(dir.join("shards/000000.bin")).unwrap();
    let first = br#"{"b":true,"f":1.0,"s":"a\"\u001f/"}"#;
    assert_eq!(shard[..8], [35, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(shard[8..43], first[..]);
    assert_eq!(shard[43..48], [0, 0, 0, 0, 0], "length 0, one token");
    let second = "{\"b\":false,\"f\":1e+16,\"s\":\"\u{e9}\"}";
    assert_eq!(shard[48..56], [30, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(shard[56..86], second.as_bytes()[..]);
    assert_eq!(shard[86..90], [4, 0, 0, 0]);
    assert_eq!(shard[90..], *b"\x40abcd");

    let index = fs::read(dir.join("index.bin")).unwrap();
    assert_eq!(index.len(), 48);
    let row = |n: usize| -> [u64; 3] {
        std::array::from_fn(|k| {
            u64::from_le_bytes(
                index[n * 24 + k * 8..n * 24 + k * 8 + 8]
                    .try_into()
                    .unwrap(),
            )
        })
    };
    assert_eq!(row(0), [0, 0, 48]);
    assert_eq!(row(1), [0, 48, 47]);

    let manifest = fs::read_to_string(dir.join("manifest.json")).unwrap();
    assert!(manifest.starts_with(
        "{\n  \"format_version\": 3,\n  \"cache_id\": 4742122821122130104,\n  \
         \"source_name\": \"source\",\n  \"sample_count\": 2,\n  \"metadata_schema\": [\n    {\n      \
         \"name\": \"b\",\n      \"kind\": \"bool\"\n    },"
    ));
    assert!(manifest.contains(
        "\"uncompressed_byte_len\": 4,\n      \"byte_len\": 95,\n      \"compression\": {\n        \
         \"algo\": \"lz4\",\n        \"ratio\": 1.0\n      },\n"
    ));
    assert!(manifest.ends_with("\"\n    }\n  ]\n}"));
    check_whole(&open(&dir));
}

#[test]
fn shards_rotate_when_a_record_would_not_fit() {
    // Records of 16 + payload bytes: 8 of the length, 7 of the JSON `{"n":0}`, and the payload.
    let shard_lens = |limit, payloads: &[&[u8]]| {
        let out = tempfile::tempdir().unwrap();
        let report = write_numbered(out.path(), limit, payloads);
        let cache = open(&report.dir);
        check_whole(&cache);
        for (n, expected) in (0..).zip(payloads) {
            assert_eq!(payload(&cache, n), *expected);
            assert_eq!(cache.metadata(n).unwrap(), [Some(Value::Int(n as i64))]);
        }
        let shards = &cache.manifest().shards;
        shards
            .iter()
            .map(|shard| shard.byte_len)
            .collect::<Vec<_>>()
    };
    let (five, six, big): (&[u8], &[u8], &[u8]) = (b"12345", b"123456", &[7; 100]);
    assert_eq!(
        shard_lens(40, &[five, five, five]),
        [40, 20],
        "filled exactly"
    );
    assert_eq!(shard_lens(40, &[five, six, five]), [20, 41 - 20, 20]);
    assert_eq!(shard_lens(41, &[five, six, five]), [41, 20]);
    assert_eq!(
        shard_lens(40, &[five, big, five]),
        [20, 115, 20],
        "oversize alone"
    );
    assert_eq!(shard_lens(1, &[b"", b"", big]), [15, 15, 115]);
    assert_eq!(shard_lens(u64::MAX, &[big, big]), [230]);
}

#[test]
fn many_samples_in_several_batches_come_back_as_they_were() {
    for (compression, limit) in [(Compression::Lz4, 300_000), (Compression::None, 1 << 21)] {
        let out = tempfile::tempdir().unwrap();
        let schema = vec![field("half", FieldKind::Float), field("n", FieldKind::Int)];
        let mut writer =
            CacheWriter::create(out.path(), "set", schema, options(compression, limit)).unwrap();
        let sample = |n: u64| -> Vec<u8> {
            let len = (n * 7919 % 3000) as usize + if n % 500 == 7 { 1 << 20 } else { 0 };
            (0..len).map(|k| ((k as u64 * n) >> 5) as u8).collect()
        };
        for n in 0..2000 {
            let row = [ValueRef::Float(n as f64 / 2.0), ValueRef::Int(n as i64)];
            writer.push_row(&sample(n), &row).unwrap();
        }
        let report = writer.finish().unwrap();
        let cache = open(&report.dir);
        check_whole(&cache);
        assert!(report.shards > 1);
        for n in 0..2000 {
            assert_eq!(payload(&cache, n), sample(n), "{n}");
            let expected = [
                Some(Value::Float(n as f64 / 2.0)),
                Some(Value::Int(n as i64)),
            ];
            assert_eq!(cache.metadata(n).unwrap(), expected);
        }
    }
}

#[test]
fn samples_without_metadata_are_stored() {
    let out = tempfile::tempdir().unwrap();
    let plain = options(Compression::None, 1 << 20);
    let mut writer = CacheWriter::create(out.path(), "bare", vec![], plain).unwrap();
    for payload in [&b"a"[..], b"", b"ccc"] {
        writer.push(payload, &[]).unwrap();
    }
    let cache = open(&writer.finish().unwrap().dir);
    check_whole(&cache);
    assert_eq!(cache.sample_count(), 3);
    assert_eq!(payload(&cache, 2), b"ccc");
    assert_eq!(cache.metadata(1).unwrap(), []);
}

/// The folder of caches written by the reference implementation, when it is there.
fn golden() -> Option<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/golden");
    let dir = std::env::var_os("DATASETRT_GOLDEN").map_or(default, PathBuf::from);
    let there = dir.is_dir();
    if !there {
        eprintln!("GOLDEN DATA ABSENT: left out");
    }
    there.then_some(dir)
}

#[test]
fn index_and_shards_are_those_of_the_reference() {
    let Some(golden) = golden() else { return };
    let mut compared = 0;
    for name in names(&golden) {
        let dir = golden.join(&name);
        if !dir.join("manifest.json").exists() {
            continue;
        }
        let cache = open(&dir);
        let shards = &cache.manifest().shards;
        let index = fs::read(dir.join("index.bin")).unwrap();
        let shard_of = |row: &[u8]| u64::from_le_bytes(row[..8].try_into().unwrap()) as usize;
        // The limit was at least the length of each shard with more than one record; it may have
        // been anything below the length with one record more.
        let limit = (0..shards.len())
            .filter(|&n| index.chunks(24).filter(|row| shard_of(row) == n).count() > 1)
            .map(|n| shards[n].byte_len)
            .max()
            .unwrap_or(1);
        let out = tempfile::tempdir().unwrap();
        let manifest = cache.manifest();
        let mut writer = CacheWriter::create(
            out.path(),
            &manifest.source_name,
            manifest.schema.clone(),
            options(shards[0].compression, limit),
        )
        .unwrap();
        let mut whole = true;
        for n in 0..cache.sample_count() {
            let row = cache.metadata(n).unwrap();
            let row: Vec<_> = row.iter().map(|v| v.as_ref().unwrap().borrowed()).collect();
            // Our writer refuses what the reference stores and cannot read back.
            whole &= writer.push_row(&payload(&cache, n), &row).is_ok();
        }
        assert_eq!(whole, name != "v2-nonfinite");
        if !whole {
            continue;
        }
        let report = writer.finish().unwrap();
        assert!(
            fs::read(report.dir.join("index.bin")).unwrap() == index,
            "{name}"
        );
        for shard in shards {
            let file = Path::new("shards").join(shard.name.as_str());
            let ours = fs::read(report.dir.join(&file)).unwrap();
            assert!(
                ours == fs::read(dir.join(&file)).unwrap(),
                "{name} {file:?}"
            );
        }
        let ours = open(&report.dir);
        let decoded = |cache: &Cache| -> Vec<_> {
            let shards = cache.manifest().shards.iter();
            shards.map(|s| (s.decoded_len, s.sha256)).collect()
        };
        assert_eq!(decoded(&ours), decoded(&cache), "{name}");
        for n in 0..cache.sample_count() {
            assert_eq!(ours.metadata(n).unwrap(), cache.metadata(n).unwrap());
        }
        compared += 1;
    }
    assert!(compared >= 10, "{compared}");
}

#[test]
fn a_dropped_writer_leaves_nothing() {
    let out = tempfile::tempdir().unwrap();
    let schema = vec![field("n", FieldKind::Int)];
    let small = options(Compression::None, 100_000);
    let mut writer = CacheWriter::create(out.path(), "set", schema, small).unwrap();
    for n in 0..40 {
        writer.push_row(&[1; 100_000], &[ValueRef::Int(n)]).unwrap();
    }
    assert_eq!(names(out.path()).len(), 1);
    drop(writer);
    assert!(names(out.path()).is_empty());
}

#[test]
fn a_finished_cache_is_never_touched() {
    let out = tempfile::tempdir().unwrap();
    let plain = options(Compression::None, 100);
    let mut late = CacheWriter::create(out.path(), "set", vec![], plain).unwrap();
    late.push(b"late", &[]).unwrap();
    // While the first is being written, another one finishes under the name.
    let mut early = CacheWriter::create(out.path(), "set", vec![], plain).unwrap();
    early.push(b"early", &[]).unwrap();
    let report = early.finish().unwrap();
    assert!(matches!(late.finish(), Err(Error::Refused { .. })));
    assert!(matches!(
        CacheWriter::create(out.path(), "set", vec![], plain),
        Err(Error::Refused { .. })
    ));
    assert_eq!(names(out.path()), ["set"]);
    assert_eq!(payload(&open(&report.dir), 0), b"early");
}

/// Not a test of its own: writes without end when the environment says where.
#[test]
fn helper_that_never_finishes() {
    let Some(out) = std::env::var_os("WRITER_TEST_OUT") else {
        return;
    };
    let schema = vec![field("n", FieldKind::Int)];
    let small = options(Compression::None, 1 << 20);
    let mut writer = CacheWriter::create(Path::new(&out), "set", schema, small).unwrap();
    for n in 0.. {
        writer.push_row(&[9; 60_000], &[ValueRef::Int(n)]).unwrap();
        if n == 100 {
            eprintln!("half way");
        }
        if n > 100 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

#[test]
fn a_killed_writer_leaves_no_manifest_and_no_obstacle() {
    let out = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "helper_that_never_finishes", "--nocapture"])
        .env("WRITER_TEST_OUT", out.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut seen = [0; 8];
    child.stderr.take().unwrap().read_exact(&mut seen).unwrap();
    assert_eq!(seen, *b"half way");
    child.kill().unwrap();
    child.wait().unwrap();

    let left = names(out.path());
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].starts_with(".set.") && left[0].ends_with(".datasetrt-partial"));
    let staging = out.path().join(&left[0]);
    assert!(!staging.join("manifest.json").exists());
    assert!(matches!(
        Cache::open(&staging, &OpenFileLimit::new(1)),
        Err(Error::Incomplete { .. })
    ));
    let report = write_numbered(out.path(), 100, &[b"x"]);
    check_whole(&open(&report.dir));
}

/// A file system of `kib` KiB, unmounted when it goes out of use; `None` when we may not mount.
struct TinyDisk(tempfile::TempDir);

impl TinyDisk {
    fn new(kib: u32) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "tmpfs"])
            .arg(dir.path())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if !mounted {
            eprintln!("NO RIGHT TO MOUNT: left out");
        }
        mounted.then(|| Self(dir))
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_an_error_at_every_size() {
    let mut finished = 0;
    for kib in (16..=280).step_by(8) {
        let Some(disk) = TinyDisk::new(kib) else {
            return;
        };
        let out = disk.0.path();
        let written = (|| {
            let schema = vec![field("n", FieldKind::Int)];
            let plain = options(Compression::None, 40_000);
            let mut writer = CacheWriter::create(out, "set", schema, plain)?;
            for n in 0..200 {
                writer.push_row(&[5; 1000], &[ValueRef::Int(n)])?;
            }
            writer.finish()
        })();
        match written {
            Ok(report) => {
                check_whole(&open(&report.dir));
                finished += 1;
            }
            Err(Error::Io { path, source, .. }) => {
                assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
                assert!(path.starts_with(out), "{path:?}");
                assert!(names(out).is_empty());
            }
            Err(other) => panic!("{kib}: {other:?}"),
        }
    }
    assert!((1..30).contains(&finished), "{finished}");
}
