//! SIGBUS that somebody sends.

use std::fs::{self, OpenOptions};

use rustix::process::Signal;

use crate::common::fixture::Fixture;
use crate::common::mount::{MountGuard, can_mount, program, within};
use crate::place;

const EIO: i32 = 5;

#[test]
fn a_signal_that_was_sent_leaves_the_guard_of_mapped_files_in_place() {
    if !can_mount() {
        return;
    }
    let place = place();
    let payloads = (0..2000).map(|n| format!("sample {n}"));
    let fixture = Fixture::new().cache_id(5).payloads(payloads);
    let cache = fixture.write(&place.point("caches").join("cache"));
    let mut guard = MountGuard::at(place.point("m"));
    guard.foreground(program(), &cache.dir);
    let pid = guard.pid().as_raw_nonzero();
    for _ in 0..3 {
        guard.signal(Signal::BUS);
        // Taken by now: it is not among the pending ones of the process.
        let taken = || {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
            pending.is_some_and(|set| u64::from_str_radix(set.trim(), 16) == Ok(0))
        };
        assert!(within(taken), "it ended, or takes no signal");
        assert_eq!(guard.read("samples/5/0").unwrap(), b"sample 0");
    }
    let index = OpenOptions::new().write(true).open(cache.path("index.bin"));
    index.unwrap().set_len(0).unwrap();
    let error = guard.read("samples/5/1999").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(EIO), "{error}");
    assert!(guard.read(".control/status").is_ok());
}
