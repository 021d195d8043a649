//! Mapped files, and many processes at random places of one.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use datasetrt::format::index::IndexRow;
use memmap2::MmapOptions;

use crate::common::faulty::{Errno, Fault, FaultyDisk};
use crate::common::fixture::Fixture;
use crate::common::mount::can_mount;
use crate::common::noise::noise;
use crate::live::{Place, command, run, stdout};
use crate::worker::{self, Workers, pieces};

const LENGTHS: [usize; 3] = [1 << 20, 5 << 20, 12_345];

fn caches() -> [Fixture; 2] {
    let payloads = || (0_u64..).zip(LENGTHS).map(|(n, len)| noise(len, n));
    [
        Fixture::new().v2().payloads(payloads()),
        Fixture::new().v2().lz4().payloads(payloads()),
    ]
}

#[test]
fn a_mapped_sample_is_the_sample_shared_and_private() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let [plain, packed] = caches();
    let (plain, packed) = (place.cache("plain", plain), place.cache("packed", packed));
    let live = place.mount(&[&plain, &packed]);
    for id in 0..2 {
        for (n, len) in LENGTHS.into_iter().enumerate() {
            let expected = noise(len, n as u64);
            let file = File::open(live.path(&format!("samples/{id}/{n}"))).unwrap();
            // SAFETY: nobody changes a sample of a mount, and the map does not outlive it.
            #[allow(unsafe_code)]
            let shared = unsafe { MmapOptions::new().map(&file) }.unwrap();
            assert!(shared[..] == expected, "cache {id}, sample {n}");
            // SAFETY: as above; the pages that are written are this process's own.
            #[allow(unsafe_code)]
            let mut private = unsafe { MmapOptions::new().map_copy(&file) }.unwrap();
            // From the end, as a reader of an archive does.
            assert!(private[len - 100..] == expected[len - 100..]);
            private[..10].fill(0);
            assert!(private[10..] == expected[10..], "cache {id}, sample {n}");
            assert!(shared[..] == expected, "what is written stays private");
        }
    }
    live.assert_sound();
}

#[test]
fn python_maps_samples_as_it_maps_files() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let [_, packed] = caches();
    let cache = place.cache("packed", packed);
    let live = place.mount(&[&cache]);
    let script = "import hashlib,mmap,sys\n\
        with open(sys.argv[1],'rb') as f, mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ) as m:\n\
        \x20   print(hashlib.sha256(m).hexdigest())";
    let path = live.path("samples/0/1");
    let found = stdout(&mut command(&[
        "python3",
        "-c",
        script,
        path.to_str().unwrap(),
    ]));
    let expected = datasetrt::format::digest::Sha256Digest::of(&noise(LENGTHS[1], 1));
    assert_eq!(
        String::from_utf8(found).unwrap().trim(),
        expected.to_string()
    );
}

#[test]
fn numpy_maps_arrays() {
    if !can_mount() {
        return;
    }
    let limit = std::time::Duration::from_secs(60);
    if !run(&mut command(&["python3", "-c", "import numpy"]), limit)
        .status
        .success()
    {
        eprintln!("SKIPPED: python3 has no numpy");
        return;
    }
    let place = Place::new();
    let make = "import numpy,sys; numpy.save(sys.argv[1], numpy.arange(655360.0).reshape(-1, 64))";
    let file = place.path().join("array.npy");
    stdout(&mut command(&[
        "python3",
        "-c",
        make,
        file.to_str().unwrap(),
    ]));
    let payload = std::fs::read(&file).unwrap();
    let cache = place.cache("cache", Fixture::new().v2().lz4().payloads([&payload]));
    let live = place.mount(&[&cache]);
    let check = "import numpy,sys\n\
        a=numpy.load(sys.argv[1])\n\
        for mode in 'rc': assert (numpy.load(sys.argv[2], mmap_mode=mode) == a).all()";
    // numpy goes by the content, not by the end of the name.
    let sample = live.path("samples/0/0");
    let line = [
        "python3",
        "-c",
        check,
        file.to_str().unwrap(),
        sample.to_str().unwrap(),
    ];
    stdout(&mut command(&line));
}

#[test]
fn eight_processes_read_random_pieces_of_the_same_samples() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let [plain, packed] = caches();
    let (plain, packed) = (place.cache("plain", plain), place.cache("packed", packed));
    let live = place.mount(&[&plain, &packed]);
    for (n, length) in LENGTHS.into_iter().take(2).enumerate() {
        let orders = (0..8_u64).map(|process| {
            let path = live.path(&format!("samples/{}/{n}", process % 2));
            pieces(&path, length, n as u64, 200, process + 7)
        });
        Workers::start(orders).finish();
    }
    assert_eq!(live.damaged(), [""; 0]);
    live.assert_sound();
    // Decoded at most once for its pieces and once whole: idle payloads are kept for longer.
    let decoded = &live.status()["counters"]["payloads_decoded"];
    assert!(decoded.as_u64().unwrap() <= 4, "{decoded}");
}

#[test]
fn a_listing_during_an_error_of_the_disk_cuts_no_sample_that_is_mapped() {
    if !can_mount() {
        return;
    }
    // Longer than 32 bits count; a hole below.
    const LEN: u64 = 5 << 30;
    let place = Place::new();
    let cache = place.cache("below/cache", Fixture::new().v2().payloads(["x"]));
    let row = cache.row(0);
    let length = row.length - 1 + LEN;
    let shard = cache.path("shards/000000.bin");
    File::options()
        .write(true)
        .open(shard)
        .unwrap()
        .set_len(length)
        .unwrap();
    cache.set_row(0, IndexRow { length, ..row });
    cache.set_manifest("shards/0/byte_len", length);
    cache.set_manifest("shards/0/uncompressed_byte_len", LEN);
    let point = place.path().join("disk");
    fs::create_dir(&point).unwrap();
    let below = place.path().join("below");
    let mut disk = FaultyDisk::served_by(worker::disk(&below, &point), &point);
    let live = place.mount_dirs(crate::common::mount::program(), &[point.join("cache")]);
    let script = "import mmap,sys\n\
        f=open(sys.argv[1],'rb')\n\
        m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)\n\
        print(len(m),m[0],flush=True)\n\
        sys.stdin.readline()\n\
        print(m[len(m)//2],flush=True)";
    let mut reader = Command::new("python3")
        .args(["-c", script])
        .arg(live.path("samples/0/0"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(reader.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, format!("{LEN} 120\n"));
    disk.fault("cache/shards/000000.bin", Fault::Fail(Errno::EIO));
    let names = fs::read_dir(live.path("samples/0")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["0"]);
    disk.heal();
    reader.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    line.clear();
    said.read_line(&mut line).unwrap();
    assert_eq!(
        (line.as_str(), reader.wait().unwrap().code()),
        ("0\n", Some(0))
    );
    assert_eq!(fs::metadata(live.path("samples/0/0")).unwrap().len(), LEN);
    live.stop();
}
