//! A file system whose files get other inode numbers, as sshfs and most in user space give them once
//! the kernel has forgotten a file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use crate::common::faulty::FaultyDisk;
use crate::common::fixture::Fixture;
use crate::common::mount::{can_mount, finish, program};
use crate::common::noise::noise;
use crate::live::{EIO, Place, limited};
use crate::worker;

const SHARDS: u64 = 60;

#[test]
fn files_that_get_other_inode_numbers_are_served_on() {
    if !can_mount() {
        return;
    }
    // Also where shards, and the folders, are opened again each time.
    for by in [program(), limited("-n 64")] {
        let place = Place::new();
        let payloads = (0..SHARDS).map(|n| noise(200, n));
        let fixture = Fixture::new().v2().payloads(payloads).max_shard_bytes(1);
        let cache = place.cache("below/cache", fixture);
        let point = place.path().join("disk");
        fs::create_dir(&point).unwrap();
        let mut disk =
            FaultyDisk::served_by(worker::disk(&place.path().join("below"), &point), &point);
        let dirs: [PathBuf; 1] = [disk.point.join("cache")];
        let live = place.mount_dirs(by, &dirs);
        let table = cache.read("metadata.arrow");
        for half in [0..SHARDS / 2, 0..SHARDS] {
            disk.renumber();
            for n in half {
                let read = live.read(&format!("samples/0/{n}"));
                assert!(read.unwrap() == noise(200, n), "{n}");
            }
            assert!(live.read("caches/0/metadata.arrow").unwrap() == table);
        }
        drop(live);

        // A file that was put in the place of another, of the same length, is known by its time.
        let live = place.mount_dirs(program(), &dirs);
        let shard = cache.path(&cache.shard_file(3));
        fs::write(cache.path("other"), fs::read(&shard).unwrap()).unwrap();
        fs::rename(cache.path("other"), &shard).unwrap();
        disk.renumber();
        assert_eq!(live.errno("samples/0/3"), EIO);
        assert!(live.read("samples/0/4").unwrap() == noise(200, 4));
        live.assert_sound();
        drop(live);
    }
}

#[test]
fn a_file_system_without_a_ctime_of_its_own_gets_no_receipts() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let fixture = Fixture::new().v2().payloads([noise(2000, 1)]);
    let cache = place.cache("below/cache", fixture);
    let point = place.path().join("disk");
    fs::create_dir(&point).unwrap();
    let _disk = FaultyDisk::served_by(worker::disk(&place.path().join("below"), &point), &point);
    let dirs: [PathBuf; 1] = [point.join("cache")];
    let receipts = place.path().join("receipts");
    // Files that changed a moment ago get no receipt anywhere.
    let shard = cache.path(&cache.shard_file(0));
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    for file in [
        "manifest.json",
        "metadata.arrow",
        "index.bin",
        "shards/000000.bin",
    ] {
        set_modified(&cache.path(file), long_ago);
    }
    let by = || {
        let mut by = program();
        by.args(["--validate-cache", "-v", "--receipts"])
            .arg(&receipts);
        by
    };
    for _ in 0..2 {
        let live = place.mount_dirs(by(), &dirs);
        assert_eq!(live.status()["caches"][0]["validation"], "checksums");
        assert!(live.log().contains("ctime"), "{}", live.log());
        live.stop();
        let left = fs::read_dir(&receipts).map_or(0, Iterator::count);
        assert_eq!(left, 0);
    }
    let mut bytes = fs::read(&shard).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&shard, bytes).unwrap();
    set_modified(&shard, long_ago);
    let mut command = by();
    let output = finish(
        command
            .arg(&dirs[0])
            .arg(place.point())
            .stderr(Stdio::piped()),
    );
    assert_eq!(output.status.code(), Some(1));
}

fn set_modified(path: &Path, at: SystemTime) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(at).unwrap();
}
