//! Stopped at each step of each target, counted.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::AtomicBool;

use datasetrt::migrate::{ManifestStatus, update_manifests_with};
use datasetrt::storage::Step;
use rustix::io::Errno;

use crate::files::*;
use crate::list::{List, text};

use ManifestStatus::{DurabilityUnknown, Unchanged, Updated};

const TARGETS: usize = 3;
const STEPS: [Step; 6] = [
    Step::CreateTemp,
    Step::Write,
    Step::CopyMode,
    Step::SyncFile,
    Step::Rename,
    Step::SyncDir,
];

#[test]
fn a_failing_step_ends_the_run_there_and_a_retry_does_the_rest() {
    let list = List::new(TARGETS);
    for failing in 0..TARGETS * STEPS.len() {
        list.reset();
        let dataset = open(&list.caches);
        let target = failing / STEPS.len();
        let mut taken = Vec::new();
        let mut hook = |step| {
            taken.push(step);
            match taken.len() == failing + 1 {
                true => Err(Errno::NOSPC.into()),
                false => Ok(()),
            }
        };
        let never = AtomicBool::new(false);
        let error = update_manifests_with(&dataset, 3, &never, &mut hook).unwrap_err();
        assert_eq!(
            taken,
            STEPS.repeat(TARGETS)[..=failing],
            "all steps in order"
        );
        assert_eq!(error.errno, Some(Errno::NOSPC.raw_os_error()));
        assert_eq!(error.path, Some(manifest_path(&list.caches[target])));
        let synced = taken.last() != Some(&Step::SyncDir);
        let mut expected: Vec<_> = (0..target)
            .map(|n| entry(&list.caches[n], n as u64, Updated))
            .collect();
        if !synced {
            expected.push(entry(
                &list.caches[target],
                target as u64,
                DurabilityUnknown,
            ));
        }
        assert_eq!(error.entries, expected);
        assert_eq!(list.check_whole(), expected.len());
        assert_eq!(list.left_count(), 0, "its own temporary file is gone");

        let report = dataset.update_manifests(3).unwrap();
        for (n, entry) in report.entries.iter().enumerate() {
            let status = if n < expected.len() {
                Unchanged
            } else {
                Updated
            };
            assert_eq!((entry.cache_id, entry.status), (n as u64, status));
        }
        assert_eq!(list.check_whole(), TARGETS);
    }
}

#[test]
fn an_unchanged_manifest_whose_folder_cannot_be_synced_ends_the_run() {
    let list = List::new(TARGETS);
    let dataset = open(&list.caches);
    dataset.update_manifests(3).unwrap();
    let mut taken = 0;
    let mut hook = |step| {
        assert_eq!(step, Step::SyncDir, "nothing else happens to it");
        taken += 1;
        if taken == 2 {
            Err(io::Error::from(Errno::IO))
        } else {
            Ok(())
        }
    };
    let never = AtomicBool::new(false);
    let error = update_manifests_with(&dataset, 3, &never, &mut hook).unwrap_err();
    assert_eq!(error.errno, Some(Errno::IO.raw_os_error()));
    assert_eq!(error.entries, [entry(&list.caches[0], 0, Unchanged)]);
    assert_eq!(list.check_and_finish(), TARGETS);
}

#[test]
fn a_kill_at_any_step_loses_nothing() {
    let list = List::new(TARGETS);
    for step in 0..=TARGETS * STEPS.len() {
        list.reset();
        let script = format!("kill:{}:9", step + 1);
        let mut command = list.command();
        let output = command.env("DATASETRT_TEST_STEP", script).output().unwrap();
        let all = step == TARGETS * STEPS.len();
        assert_eq!(
            output.status.signal(),
            (!all).then_some(9),
            "{}",
            text(&output)
        );

        let (target, in_target) = (step / STEPS.len(), step % STEPS.len());
        let renamed = target + usize::from(STEPS[in_target] == Step::SyncDir);
        let temporary = (1..5).contains(&in_target);
        assert_eq!(list.left_count(), usize::from(temporary && !all), "{step}");
        assert_eq!(list.check_and_finish(), renamed, "{step}");
    }
}

#[test]
fn a_run_that_is_killed_again_and_again_gets_through_in_the_end() {
    let list = List::new(TARGETS);
    // Each run comes one target further, as the unchanged ones take one step each.
    let mut kills = 0;
    loop {
        let mut command = list.command();
        command.env("DATASETRT_TEST_STEP", format!("kill:{}:9", 6 + kills));
        if command.output().unwrap().status.success() {
            break;
        }
        kills += 1;
        assert_eq!(list.check_whole(), kills);
    }
    assert_eq!((kills, list.check_and_finish()), (TARGETS, TARGETS));
}

#[test]
fn a_real_process_reports_a_failing_step() {
    let list = List::new(TARGETS);
    let mut command = list.command();
    command.env("DATASETRT_TEST_STEP", "fail:8:28");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("cannot write its new content: No space left"),
        "{error}"
    );
    assert_eq!(list.left_count(), 0);
    assert_eq!(list.check_and_finish(), 1);
}
