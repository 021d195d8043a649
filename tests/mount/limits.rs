//! Limits of the process (`ulimit`): a start that they stop is refused and leaves no dead mount; a daemon
//! that has started gives right bytes, or an error for the sample alone.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

use rustix::io::Errno;

use crate::common::fixture::{Fixture, TestCache};
use crate::common::mount::{
    MountGuard, USER, as_user, can_be_user, can_mount, is_mounted, program,
};
use crate::common::noise::noise;
use crate::live::{Place, limited};

const LARGE: usize = 40 << 20;

fn payloads() -> [Vec<u8>; 2] {
    [noise(LARGE, 1), noise(1000, 2)]
}

/// A piece of a file. Opening may fail as well: the length of a sample is asked for then.
fn piece(path: &Path, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut piece = vec![0; len];
    File::open(path)?.read_exact_at(&mut piece, offset)?;
    Ok(piece)
}

/// What holds after each attempt to mount, whatever came of it. Says whether it was mounted.
fn assert_sound(guard: &MountGuard, said: &Output, what: &str) -> bool {
    let payloads = payloads();
    let samples = guard.point.join("samples/7");
    if !said.status.success() {
        assert!(!is_mounted(&guard.point), "{what}: {said:?}");
        return false;
    }
    let allowed = [Errno::IO, Errno::NOMEM, Errno::NOSPC].map(Errno::raw_os_error);
    let reads = [
        ("1", 0, 1000),
        ("0", 30 << 20, 1 << 20),
        ("0", 5, 100),
        ("1", 0, 1000),
    ];
    for (sample, offset, len) in reads {
        match piece(&samples.join(sample), offset as u64, len) {
            Ok(found) => {
                let payload = &payloads[usize::from(sample == "1")];
                assert!(found == payload[offset..][..len], "{what}: {sample}");
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap();
                assert!(allowed.contains(&errno), "{what}: {sample}: {error}");
            }
        }
    }
    true
}

fn cache(place: &Place) -> TestCache {
    let fixture = Fixture::new().cache_id(7).lz4().payloads(payloads());
    place.cache("cache", fixture)
}

#[test]
fn no_limit_on_memory_leaves_a_dead_mount_or_a_wrong_byte() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = cache(&place);
    let mut mounted = Vec::new();
    for limit in [
        "-v 30000",
        "-v 60000",
        "-v 100000",
        "-v 130000",
        "-v 160000",
        "-v 190000",
        "-v 220000",
        "-v 260000",
        "-v 320000",
        "-v 400000",
        "-v 600000",
        "-v 2000000",
        "-d 30000",
        "-d 60000",
        "-d 90000",
        "-d 130000",
        "-d 200000",
        "-d 2000000",
        "-s 64",
        "-s 256",
        "-s 1024",
    ] {
        let guard = MountGuard::at(place.point());
        let said = guard.background(limited(limit), &cache.dir);
        if assert_sound(&guard, &said, limit) {
            mounted.push(limit);
        }
    }
    assert!(mounted.contains(&"-v 2000000"), "{mounted:?}");
    assert!(mounted.contains(&"-d 2000000"), "{mounted:?}");
}

#[test]
fn a_large_sample_is_served_where_there_is_no_memory_for_it() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let payload = noise(300 << 20, 3);
    let fixture = Fixture::new().cache_id(7).lz4().payloads([&payload]);
    let cache = place.cache("cache", fixture);
    // Less than the sample and what it is stored as, and more than the daemon needs.
    let live = place.mount_by(limited("-v 600000"), &[&cache]);
    let found = piece(&live.path("samples/7/0"), 200 << 20, 1 << 20).unwrap();
    assert!(found == payload[200 << 20..][..1 << 20]);
    assert!(live.damaged().is_empty());
    live.stop();
}

#[test]
fn no_limit_on_threads_leaves_a_dead_mount() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = Place::new();
    let cache = cache(&place);
    for most in [1, 2, 4, 6, 8, 10, 12, 16, 24, 200] {
        let point = place.point();
        std::os::unix::fs::chown(&point, Some(USER), Some(USER)).unwrap();
        let guard = MountGuard::at(point);
        let user = as_user(place.path(), "datasetrt-mount");
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit -u {most} && exec \"$0\" \"$@\"")])
            .arg(user.get_program())
            .args(user.get_args())
            .arg("--allow-other");
        let said = guard.background(command, &cache.dir);
        assert_sound(&guard, &said, &format!("-u {most}"));
    }
}

#[test]
fn a_limit_on_the_length_of_files_ends_no_daemon() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let payloads = (0..3000_u32).map(|n| n.to_string());
    let fixture = Fixture::new().cache_id(7).payloads(payloads);
    let cache = place.cache("cache", fixture);
    // With a log file, which may not grow either.
    let live = place.mount_by(limited("-f 1"), &[&cache]);
    let table = live.path("metadata.arrow");
    let len = std::fs::metadata(&table).unwrap().len();
    assert!(len > 4096, "{len}");
    let refused = std::fs::read(&table).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    assert_eq!(live.read("samples/7/2999").unwrap(), b"2999");
    live.stop();
    // Without a limit it is there.
    let live = place.mount_by(program(), &[&cache]);
    assert_eq!(live.read("metadata.arrow").unwrap().len() as u64, len);
    live.stop();
}
