//! Memory of packing: payloads that are stored as they are need not be in memory.

use std::fs;
use std::io::{self, Read, Write};
use std::process::Command;

use datasetrt::cache::Cache;
use datasetrt::storage::OpenFileLimit;
use flate2::write::GzEncoder;

use super::support::{Desk, Run};

/// Bytes that repeat after a length that is no power of two.
struct Long {
    at: u64,
    len: u64,
}

fn byte(at: u64) -> u8 {
    u8::try_from(at % 65_537 % 251).unwrap()
}

impl Read for Long {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = usize::try_from(self.len - self.at).unwrap().min(out.len());
        for (at, out) in (self.at..).zip(&mut out[..n]) {
            *out = byte(at);
        }
        self.at += n as u64;
        Ok(n)
    }
}

fn tar(out: impl Write, len: u64) -> io::Result<()> {
    let mut tar = tar::Builder::new(out);
    let small = |name: &str, tar: &mut tar::Builder<_>| {
        let mut header = tar::Header::new_gnu();
        header.set_size(5);
        tar.append_data(&mut header, name, &b"small"[..])
    };
    small("a.txt", &mut tar)?;
    let mut header = tar::Header::new_gnu();
    header.set_size(len);
    tar.append_data(&mut header, "b.bin", Long { at: 0, len })?;
    small("c.txt", &mut tar)?;
    tar.into_inner().map(drop)
}

/// `datasetrt pack` with little room for data.
fn pack(desk: &Desk, name: &str, source: &str, compression: &str) -> Run {
    let mut command = Command::new("sh");
    command
        .current_dir(desk.root.path())
        .args(["-c", "ulimit -d 120000 && exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_datasetrt"))
        .args([
            "pack",
            "--name",
            name,
            "--jobs",
            "2",
            "--compression",
            compression,
        ])
        .args([source, "out"]);
    Run(command.output().unwrap())
}

#[test]
fn members_of_any_length_are_packed_in_little_memory() {
    const LEN: u64 = 160 << 20;
    let desk = Desk::new();
    let gz = fs::File::create(desk.path("long.tar.gz")).unwrap();
    let mut gz = GzEncoder::new(gz, flate2::Compression::fast());
    tar(&mut gz, LEN).unwrap();
    gz.finish().unwrap();
    tar(fs::File::create(desk.path("long.tar")).unwrap(), LEN).unwrap();
    let mut shards = Vec::new();
    for (name, source, compression) in [
        ("gz", "long.tar.gz", "none"),
        ("plain", "long.tar", "none"),
        ("lz4", "long.tar.gz", "lz4"),
    ] {
        let run = pack(&desk, name, source, compression);
        assert_eq!(run.code(), 0, "{source}: {}", run.err());
        let dir = desk.out().join(name);
        let cache = Cache::open(&dir, &OpenFileLimit::new(16)).unwrap();
        assert_eq!(cache.sample_count(), 3);
        let read = cache.with_record(1, 0, |record| {
            assert_eq!(record.decoded_len(), LEN);
            let mut at = 0;
            record.decode_through(|piece| {
                let right = (at..).zip(piece).all(|(at, found)| byte(at) == *found);
                assert!(right, "{source} near {at}");
                at += piece.len() as u64;
                Ok(())
            })
        });
        read.unwrap().unwrap();
        shards.push(
            cache
                .manifest()
                .shards
                .iter()
                .map(|s| s.sha256)
                .collect::<Vec<_>>(),
        );
        fs::remove_dir_all(dir).unwrap();
    }
    assert_eq!(shards[0], shards[1]);
}
