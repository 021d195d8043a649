//! `/.control/status` and `/.control/damaged`: whole texts, however busy the mount is.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use datasetrt::vfs::{Request, VfsError, VfsOptions};

use crate::common::fixture::{Fixture, TestCache};
use crate::{look, piece, read, read_node, status, text, tree_of, tree_with};

/// Where in its shard the JSON of a sample starts.
fn json_at(cache: &TestCache, sample: u64) -> u64 {
    cache.row(sample).offset + 8
}

#[test]
fn the_status_says_what_is_mounted_and_what_was_done() {
    let plain = Fixture::tiny().name("plain").v2().build();
    let packed = Fixture::tiny().name("packed").lz4().cache_id(77).build();
    let options = VfsOptions {
        mountpoint: "/mnt/data".into(),
        cache_memory: 12_345,
        ..VfsOptions::default()
    };
    let vfs = tree_with(&[&plain, &packed], options);
    read(&vfs, "samples/77/1").unwrap();
    vfs.counters().note(Request::Lookup);
    let status = status(&vfs);
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["mountpoint"], "/mnt/data");
    assert_eq!(status["pid"], std::process::id());
    assert_eq!(status["skipped"], serde_json::json!([]));
    let bytes: usize = packed
        .samples
        .iter()
        .map(|sample| sample.payload.len())
        .sum();
    let second = &status["caches"][1];
    assert_eq!(second["folder"], packed.dir.to_str().unwrap());
    assert_eq!(second["cache_id"], 77);
    assert_eq!(second["position"], 1);
    assert_eq!(second["source_name"], "packed");
    assert_eq!(second["format_version"], 3);
    assert_eq!(second["samples"], 3);
    assert_eq!(second["decoded_bytes"], bytes);
    assert_eq!(second["validation"], "structure");
    assert_eq!(second["damaged"], 0);
    assert_eq!(status["caches"][0]["format_version"], 2);
    assert_eq!(status["counters"]["requests"]["lookup"], 1);
    assert_eq!(status["counters"]["payloads_decoded"], 1);
    assert_eq!(
        status["counters"]["bytes_read"],
        packed.samples[1].payload.len()
    );
    assert_eq!(status["counters"]["panics"], 0);
    assert_eq!(status["cache_memory"]["budget_bytes"], 12_345);
}

#[test]
fn a_text_that_was_looked_up_stays_as_it_was() {
    let cache = Fixture::tiny().v2().build();
    let vfs = tree_of(&[&cache]);
    let before = look(&vfs, ".control/damaged").unwrap();
    let status = look(&vfs, ".control/status").unwrap();
    assert_eq!(
        look(&vfs, ".control/status").unwrap(),
        status,
        "looked up twice"
    );
    cache.flip(&cache.shard_file(0), json_at(&cache, 1) as i64, 1);
    read(&vfs, "samples/0/1").unwrap_err();
    // What was found shows at once, under another number.
    let after = look(&vfs, ".control/damaged").unwrap();
    assert_ne!(after.ino, before.ino);
    assert_eq!(read_node(&vfs, before).unwrap(), b"");
    assert_eq!(vfs.getattr(before.ino).unwrap(), before);
    assert!(!read_node(&vfs, after).unwrap().is_empty());
    assert_ne!(look(&vfs, ".control/status").unwrap().ino, status.ino);
    assert_eq!(crate::status(&vfs)["caches"][0]["damaged"], 1);
}

#[test]
fn a_text_that_is_too_old_is_stale_and_the_latest_is_there() {
    let payloads = (0..300_u32).map(|n| n.to_string());
    let cache = Fixture::new().v2().payloads(payloads).build();
    let vfs = tree_of(&[&cache]);
    let first = look(&vfs, ".control/status").unwrap();
    let shard = File::options()
        .write(true)
        .open(cache.path(&cache.shard_file(0)))
        .unwrap();
    let mut seen = Vec::new();
    for sample in 0..300 {
        shard.write_all_at(b"#", json_at(&cache, sample)).unwrap();
        read(&vfs, &format!("samples/0/{sample}")).unwrap_err();
        let attr = look(&vfs, ".control/damaged").unwrap();
        let found = read_node(&vfs, attr).unwrap();
        let lines = found.iter().filter(|byte| **byte == b'\n').count() as u64;
        assert_eq!(lines, sample + 1);
        seen.push((attr, found));
    }
    assert_eq!(vfs.getattr(first.ino).unwrap(), first, "another file");
    read_node(&vfs, first).unwrap();
    let (stale, kept) = seen.split_at(300 - 256);
    for (attr, text) in kept {
        assert_eq!(&read_node(&vfs, *attr).unwrap(), text);
    }
    for (attr, _) in stale {
        assert!(matches!(vfs.getattr(attr.ino), Err(VfsError::Stale)));
        let read = vfs.read(attr.ino, 0, &mut [0; 8]);
        assert!(matches!(read, Err(VfsError::Stale)));
    }
}

/// Reads a text piece by piece, as slow programs do.
fn slowly(vfs: &datasetrt::vfs::Vfs, path: &str) -> String {
    let attr = look(vfs, path).unwrap();
    let mut bytes = Vec::new();
    loop {
        let part = piece(vfs, attr.ino, bytes.len() as u64, 37).unwrap();
        if part.is_empty() {
            break;
        }
        bytes.extend(part);
    }
    assert_eq!(bytes.len() as u64, attr.size, "{path}");
    String::from_utf8(bytes).unwrap()
}

#[test]
fn no_reader_sees_half_a_text_while_samples_break_and_heal() {
    let payloads = (0..8_u32).map(|n| n.to_string());
    let cache = Fixture::new().v2().payloads(payloads).build();
    let vfs = tree_of(&[&cache]);
    let file = cache.path(&cache.shard_file(0));
    let shard = File::options().write(true).open(&file).unwrap();
    let (done, changes) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        for line in slowly(&vfs, ".control/damaged").lines() {
                            let whole = line.starts_with("0/") && line.contains(": expected ");
                            assert!(whole, "{line:?}");
                        }
                        let status = slowly(&vfs, ".control/status");
                        assert!(status.ends_with("}\n"));
                        serde_json::from_str::<serde_json::Value>(&status).unwrap();
                    }
                })
            })
            .collect();
        // In few steps, so that no text that a reader has is pushed out.
        for round in 0..12_u64 {
            let sample = round % 8;
            for byte in [b"#", b"{"] {
                shard.write_all_at(byte, json_at(&cache, sample)).unwrap();
                let read = read(&vfs, &format!("samples/0/{sample}"));
                assert_eq!(read.is_err(), byte == b"#");
                changes.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
    });
    assert_eq!(changes.into_inner(), 24);
    assert_eq!(text(&vfs, ".control/damaged"), "");
}

#[test]
fn processes_that_nobody_knows_read_whole_texts_and_no_words_of_others() {
    let cache = Fixture::tiny().v2().build();
    let vfs = tree_of(&[&cache]);
    let control = look(&vfs, ".control").unwrap().ino;
    let visit = || {
        let found = vfs.lookup_by(Some(0), control, "prefetch".as_ref());
        found.unwrap().ino
    };
    let whole = |ino| {
        let mut text = vec![0; 4096];
        let len = vfs.read(ino, 0, &mut text).unwrap();
        String::from_utf8(text[..len].to_vec()).unwrap()
    };
    let write = |list: &str| {
        let ino = visit();
        datasetrt::vfs::Command::new(ino, 0, list.as_bytes())
            .run(&vfs)
            .unwrap();
        ino
    };
    let writer = write("0/0\n");
    let reader = visit();
    assert_ne!(
        reader, writer,
        "the kernel shows readers of a node what is written to it"
    );
    let before = whole(reader);
    let second = write("0/0\n0/1\n");
    assert_eq!(whole(reader), before, "one text to its end");
    assert_eq!(whole(second), "{\"accepted\":2}\n", "its own result");
    assert_eq!(whole(visit()), "{\"accepted\":2}\n");
    // Never the rest of another text, however many come meanwhile.
    for _ in 0..5000 {
        visit();
    }
    let rest = vfs.read(reader, 5, &mut [0; 64]);
    assert!(matches!(rest, Err(VfsError::Stale)), "{rest:?}");
    assert_eq!(whole(reader), "{\"accepted\":2}\n");
}
