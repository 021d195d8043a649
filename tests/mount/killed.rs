//! A daemon that ends suddenly leaves nobody waiting, whatever was being asked.

use std::fs;
use std::time::Duration;

use crate::common::fixture::Fixture;
use crate::common::mount::{MountGuard, can_mount, daemons, is_mounted, program, within};
use crate::live::{Place, Watchdog, command, run};

/// How long anything here may take. Then those who still wait get an error.
const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn a_daemon_that_is_killed_at_its_own_first_look_ends() {
    if !can_mount() {
        return;
    }
    for request in ["getattr", "statfs"] {
        for words in [&[][..], &["-f"]] {
            let place = Place::new();
            let cache = place.cache("cache", Fixture::tiny().v2());
            let guard = MountGuard::at(place.point());
            let _watchdog = Watchdog::start(&guard.point, LIMIT);
            let mut by = program();
            by.env("DATASETRT_TEST_KILL_AT_REQUEST", request);
            by.args(words).arg(&cache.dir).arg(&guard.point);
            let output = run(&mut by, LIMIT);
            assert!(!output.status.success(), "{request}: {}", output.status);
            assert!(within(|| daemons(&guard.point).is_empty()), "{request}");
            // Where the mount is made in one step it is there by then, and dead: the next start clears it.
            let look = run(command(&["stat", "-f"]).arg(&guard.point), LIMIT);
            assert_eq!(look.status.success(), !is_mounted(&guard.point));
            let again = guard.background(program(), &cache.dir);
            assert!(again.status.success(), "{request}");
            assert_eq!(guard.read("samples/0/0").unwrap(), cache.samples[0].payload);
        }
    }
}

#[test]
fn whoever_waits_for_a_daemon_that_is_killed_gets_an_error() {
    if !can_mount() {
        return;
    }
    for (request, words) in [("lookup", "stat"), ("read", "cat"), ("readdirplus", "ls")] {
        let place = Place::new();
        let cache = place.cache("cache", Fixture::tiny().v2());
        let guard = MountGuard::at(place.point());
        let _watchdog = Watchdog::start(&guard.point, LIMIT);
        let mut by = program();
        by.env("DATASETRT_TEST_KILL_AT_REQUEST", request);
        assert!(guard.background(by, &cache.dir).status.success());
        let path = match request {
            "readdirplus" => guard.point.clone(),
            _ => guard.point.join("samples/0/0"),
        };
        let output = run(command(&[words]).arg(&path), LIMIT);
        assert!(!output.status.success(), "{request}");
        assert!(within(|| daemons(&guard.point).is_empty()), "{request}");
        assert!(is_mounted(&guard.point), "dead, but there");
        assert!(fs::read_dir(&guard.point).is_err());
    }
}
