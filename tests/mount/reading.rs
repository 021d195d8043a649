//! Every way in which programs read, and that each gives the same bytes to the true end.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Output;

use rustix::fs::{OFlags, copy_file_range, sendfile};

use crate::common::fixture::Fixture;
use crate::common::mount::can_mount;
use crate::common::noise::noise;
use crate::live::{HANGS_AFTER, Live, Place, command, run, stdout};
use crate::metrics;

const LEN: usize = 300 * 1024 + 17;

/// Reads by tools, which see nothing but the path.
fn by_tools(path: &Path, scratch: &Path) -> Vec<(String, Vec<u8>)> {
    let from = path.to_str().unwrap();
    let mut read = Vec::new();
    let all = "1000000";
    for words in [
        &["cat", from][..],
        &["head", "-c", all, from],
        &["tail", "-c", all, from],
        &["dd", "bs=1", "status=none", &format!("if={from}")],
        &["dd", "bs=1M", "status=none", &format!("if={from}")],
        &[
            "dd",
            "bs=4096",
            "iflag=direct",
            "status=none",
            &format!("if={from}"),
        ],
    ] {
        read.push((words.join(" "), stdout(&mut command(words))));
    }
    for words in [
        &["cp"][..],
        &["cp", "--reflink=auto"],
        &["cp", "--sparse=always"],
        &["install", "-m", "600"],
    ] {
        let copy = scratch.join("copy");
        let _ = fs::remove_file(&copy);
        copied(|| run(command(words).arg(path).arg(&copy), HANGS_AFTER));
        read.push((words.join(" "), fs::read(&copy).unwrap()));
    }
    read
}

/// Runs a tool that copies. It refuses a control file whose text became another one between two of its looks, which
/// a machine that is busy enough lets happen.
fn copied(mut copy: impl FnMut() -> Output) {
    let mut said = String::new();
    for _ in 0..5 {
        let output = copy();
        if output.status.success() {
            return;
        }
        said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("replaced while being copied"), "{said}");
    }
    panic!("{said}");
}

/// Reads of one open file, and its size while it is open.
fn by_calls(path: &Path, scratch: &Path) -> Vec<(String, u64, Vec<u8>)> {
    let mut read = Vec::new();
    let copy = || {
        let path = scratch.join("out");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path);
        file.unwrap()
    };
    let size = |file: &File| file.metadata().unwrap().len();

    let mut file = File::open(path).unwrap();
    let (len, mut bytes) = (size(&file), Vec::new());
    file.read_to_end(&mut bytes).unwrap();
    read.push(("read".to_owned(), len, bytes));

    let (file, mut out) = (File::open(path).unwrap(), copy());
    let len = size(&file);
    while sendfile(&out, &file, None, 1 << 20).unwrap() > 0 {}
    read.push(("sendfile".to_owned(), len, contents(&mut out)));

    let (file, mut out) = (File::open(path).unwrap(), copy());
    let len = size(&file);
    match copy_file_range(&file, None, &out, None, len.max(1) as usize) {
        Ok(copied) => {
            assert_eq!(copied as u64, len);
            read.push(("copy_file_range".to_owned(), len, contents(&mut out)));
        }
        // Between file systems: the tools then fall back.
        Err(errno) => assert_eq!(errno, rustix::io::Errno::XDEV),
    }

    let direct = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(path)
        .unwrap();
    let len = size(&direct);
    let (mut bytes, mut page) = (Vec::new(), vec![0; 8192]);
    let align = page.as_ptr().align_offset(4096);
    loop {
        let room = &mut page[align..][..4096];
        let n = direct.read_at(room, bytes.len() as u64).unwrap();
        if n == 0 {
            break;
        }
        bytes.extend_from_slice(&room[..n]);
    }
    read.push(("O_DIRECT".to_owned(), len, bytes));
    read
}

fn contents(out: &mut File) -> Vec<u8> {
    let mut bytes = vec![0; out.metadata().unwrap().len() as usize];
    out.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Reads at the last byte, at the end and far beyond it.
fn at_the_end(path: &Path, last: u8) {
    let file = File::open(path).unwrap();
    let size = file.metadata().unwrap().len();
    let mut room = [0xA5; 16];
    assert_eq!(file.read_at(&mut room, size - 1).unwrap(), 1);
    assert_eq!((room[0], room[1]), (last, 0xA5));
    for beyond in [size, size + 1, 1 << 40] {
        assert_eq!(file.read_at(&mut room, beyond).unwrap(), 0, "at {beyond}");
    }
}

#[test]
fn a_sample_has_the_same_bytes_in_every_way_of_reading() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let payload = noise(LEN, 3);
    let plain = place.cache(
        "plain",
        Fixture::new().v2().payloads([&payload, &Vec::new()]),
    );
    let packed = place.cache(
        "packed",
        Fixture::new().v2().lz4().payloads([&payload, &Vec::new()]),
    );
    for id in 0..2 {
        // Each way meets a cold cache too.
        let live = place.mount(&[&plain, &packed]);
        let path = live.path(&format!("samples/{id}/0"));
        let meta = fs::metadata(&path).unwrap();
        assert_eq!(
            (meta.len(), meta.blocks()),
            (LEN as u64, (LEN as u64).div_ceil(512))
        );
        for (how, bytes) in by_tools(&path, place.path()) {
            assert!(bytes == payload, "{how}: {} bytes", bytes.len());
        }
        for (how, size, bytes) in by_calls(&path, place.path()) {
            assert_eq!(size, LEN as u64, "{how}");
            assert!(bytes == payload, "{how}: {} bytes", bytes.len());
        }
        at_the_end(&path, payload[LEN - 1]);
        let empty = live.path(&format!("samples/{id}/1"));
        assert_eq!(fs::metadata(&empty).unwrap().blocks(), 0);
        for (how, bytes) in by_tools(&empty, place.path()) {
            assert_eq!(bytes, b"", "{how}");
        }
        assert_eq!(live.damaged(), [""; 0]);
        live.assert_sound();
    }
}

/// Whether `text` is a whole text of the control file.
fn is_whole(name: &str, text: &[u8]) -> bool {
    match name {
        "damaged" => text.ends_with(b"\n") && text.starts_with(b"0/1: "),
        "log" => text.starts_with(b"20") && text.ends_with(b"\n"),
        "log-level" => text == b"info\n",
        "metrics" => {
            metrics::assert_histograms_are_whole(std::str::from_utf8(text).unwrap());
            true
        }
        _ => text.ends_with(b"\n") && serde_json::from_slice::<serde_json::Value>(text).is_ok(),
    }
}

#[test]
fn control_files_are_whole_in_every_way_of_reading() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = place.cache("cache", Fixture::tiny().v2());
    cache.flip(&cache.shard_file(0), cache.row(1).offset as i64 + 12, 0x20);
    let live = place.mount(&[&cache]);
    live.read("samples/0/1").unwrap_err();
    fs::write(live.path(".control/migrate"), "3\n").unwrap();
    fs::write(live.path(".control/prefetch"), "0/0\n").unwrap();
    for name in [
        "damaged",
        "log",
        "log-level",
        "metrics",
        "migrate",
        "prefetch",
        "status",
    ] {
        check_control(&live, name, place.path());
    }
    for file in ["manifest.json", "metadata.arrow"] {
        let path = live.path(&format!("caches/0/{file}"));
        for (how, bytes) in by_tools(&path, place.path()) {
            assert!(bytes == cache.read(file), "{file} by {how}");
        }
        for (how, size, bytes) in by_calls(&path, place.path()) {
            assert_eq!(size, bytes.len() as u64, "{file} by {how}");
            assert!(bytes == cache.read(file), "{file} by {how}");
        }
    }
    live.assert_sound();
}

fn check_control(live: &Live, name: &str, scratch: &Path) {
    let path = live.path(&format!(".control/{name}"));
    for (how, bytes) in by_tools(&path, scratch) {
        assert!(
            is_whole(name, &bytes),
            "{name} by {how}: {}",
            String::from_utf8_lossy(&bytes)
        );
    }
    for (how, size, bytes) in by_calls(&path, scratch) {
        assert_eq!(size, bytes.len() as u64, "{name} by {how}");
        assert!(
            is_whole(name, &bytes),
            "{name} by {how}: {}",
            String::from_utf8_lossy(&bytes)
        );
    }
    at_the_end(&path, b'\n');
}

#[test]
fn one_read_asks_for_no_more_than_there_is() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = place.cache("cache", Fixture::new().v2().payloads([b"abc"]));
    let live = place.mount(&[&cache]);
    let mut room = vec![0xA5; 1 << 16];
    let mut file = File::open(live.path("samples/0/0")).unwrap();
    assert_eq!(file.read(&mut room).unwrap(), 3);
    assert_eq!(&room[..4], b"abc\xA5");
    assert_eq!(file.read(&mut room).unwrap(), 0);
}
