//! What df and stat see.

use std::os::unix::fs::MetadataExt;

use rustix::fs::statvfs;

use crate::common::fixture::Fixture;
use crate::common::mount::can_mount;
use crate::common::noise::noise;
use crate::live::{Place, command, stdout};

#[test]
fn df_shows_all_bytes_and_files_and_nothing_free() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let payloads = (0..40).map(|n| noise(100_000, n));
    let cache = place.cache("cache", Fixture::new().v2().lz4().payloads(payloads));
    let live = place.mount(&[&cache]);
    for path in ["", "samples/0", "samples/0/7", ".control/status"] {
        let found = statvfs(live.path(path)).unwrap();
        let bytes = found.f_frsize * found.f_blocks;
        assert!((4_000_000..8_000_000).contains(&bytes), "{path}: {bytes}");
        assert!(found.f_files >= 40, "{path}");
        assert_eq!((found.f_bfree, found.f_bavail, found.f_ffree), (0, 0, 0));
        assert!(found.f_bsize > 0 && found.f_namemax >= 20);
    }
    let point = live.guard.point.to_str().unwrap();
    let df = String::from_utf8(stdout(&mut command(&["df", "-P", point]))).unwrap();
    let line = df.lines().nth(1).unwrap();
    assert!(line.contains("100%") && line.ends_with(point), "{df}");
    let inodes = String::from_utf8(stdout(&mut command(&["df", "-Pi", point]))).unwrap();
    assert!(inodes.contains("100%"), "{inodes}");
    let shown = String::from_utf8(stdout(&mut command(&["stat", "-f", point]))).unwrap();
    assert!(shown.contains("Namelen: 255"), "{shown}");
    let script = "import shutil,sys; u=shutil.disk_usage(sys.argv[1]); print(u.total, u.free)";
    let usage = stdout(&mut command(&["python3", "-c", script, point]));
    let usage = String::from_utf8(usage).unwrap();
    let (total, free) = usage.trim().split_once(' ').unwrap();
    assert!(total.parse::<u64>().unwrap() >= 4_000_000);
    assert_eq!(free, "0");
}

#[test]
fn a_time_before_1970_is_shown_as_it_is() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = place.cache("cache", Fixture::tiny().v2());
    let index = std::fs::File::options()
        .write(true)
        .open(cache.path("index.bin"));
    let early = std::time::SystemTime::UNIX_EPOCH - std::time::Duration::from_millis(86_400_250);
    index.unwrap().set_modified(early).unwrap();
    let live = place.mount(&[&cache]);
    for path in [
        "samples/0/0",
        "samples/0",
        "samples",
        "by-name",
        "caches/0/metadata.arrow",
        "",
    ] {
        let found = std::fs::metadata(live.path(path)).unwrap();
        let times = (found.mtime(), found.mtime_nsec());
        assert_eq!(times, (-86_401, 750_000_000), "{path}");
    }
}
