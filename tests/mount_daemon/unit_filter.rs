//! The daemon under filters of system calls: the systemd unit's own, and those that keep it from
//! confining itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use crate::common::mount::{MountGuard, USER, can_be_user, can_mount, is_mounted, program, skip};
use crate::systemd::settings;
use crate::{Place, assert_ready, place, text};

/// The calls that a filter could take from the daemon, or leave it.
const CALLS: &[(&str, i64)] = &[
    ("landlock_create_ruleset", libc::SYS_landlock_create_ruleset),
    ("landlock_add_rule", libc::SYS_landlock_add_rule),
    ("landlock_restrict_self", libc::SYS_landlock_restrict_self),
    ("seccomp", libc::SYS_seccomp),
    ("mount", libc::SYS_mount),
    ("umount2", libc::SYS_umount2),
    ("pivot_root", libc::SYS_pivot_root),
    ("chroot", libc::SYS_chroot),
    ("fsopen", libc::SYS_fsopen),
    ("fsconfig", libc::SYS_fsconfig),
    ("fsmount", libc::SYS_fsmount),
    ("fspick", libc::SYS_fspick),
    ("move_mount", libc::SYS_move_mount),
    ("open_tree", libc::SYS_open_tree),
    ("mount_setattr", libc::SYS_mount_setattr),
    ("openat2", libc::SYS_openat2),
    ("statx", libc::SYS_statx),
    ("faccessat2", libc::SYS_faccessat2),
    ("close_range", libc::SYS_close_range),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("clone3", libc::SYS_clone3),
    ("execveat", libc::SYS_execveat),
    ("unshare", libc::SYS_unshare),
    ("setns", libc::SYS_setns),
    ("memfd_create", libc::SYS_memfd_create),
    ("membarrier", libc::SYS_membarrier),
    ("rseq", libc::SYS_rseq),
    ("getrandom", libc::SYS_getrandom),
    ("copy_file_range", libc::SYS_copy_file_range),
    ("name_to_handle_at", libc::SYS_name_to_handle_at),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("epoll_pwait2", libc::SYS_epoll_pwait2),
    ("futex_waitv", libc::SYS_futex_waitv),
    ("process_madvise", libc::SYS_process_madvise),
    ("process_mrelease", libc::SYS_process_mrelease),
    ("ptrace", libc::SYS_ptrace),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("kcmp", libc::SYS_kcmp),
    ("bpf", libc::SYS_bpf),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("userfaultfd", libc::SYS_userfaultfd),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("io_uring_enter", libc::SYS_io_uring_enter),
    ("io_uring_register", libc::SYS_io_uring_register),
    ("fanotify_init", libc::SYS_fanotify_init),
    ("fanotify_mark", libc::SYS_fanotify_mark),
    ("inotify_init1", libc::SYS_inotify_init1),
    ("quotactl", libc::SYS_quotactl),
    ("quotactl_fd", libc::SYS_quotactl_fd),
    ("sethostname", libc::SYS_sethostname),
    ("setdomainname", libc::SYS_setdomainname),
    ("reboot", libc::SYS_reboot),
    ("swapon", libc::SYS_swapon),
    ("swapoff", libc::SYS_swapoff),
    ("init_module", libc::SYS_init_module),
    ("finit_module", libc::SYS_finit_module),
    ("delete_module", libc::SYS_delete_module),
    ("kexec_load", libc::SYS_kexec_load),
    ("syslog", libc::SYS_syslog),
    ("acct", libc::SYS_acct),
    ("settimeofday", libc::SYS_settimeofday),
    ("clock_settime", libc::SYS_clock_settime),
    ("clock_adjtime", libc::SYS_clock_adjtime),
    ("adjtimex", libc::SYS_adjtimex),
    ("vhangup", libc::SYS_vhangup),
    ("keyctl", libc::SYS_keyctl),
    ("add_key", libc::SYS_add_key),
    ("request_key", libc::SYS_request_key),
    ("personality", libc::SYS_personality),
    ("mlock", libc::SYS_mlock),
    ("mlock2", libc::SYS_mlock2),
    ("mlockall", libc::SYS_mlockall),
    ("mincore", libc::SYS_mincore),
    ("mbind", libc::SYS_mbind),
    ("set_mempolicy", libc::SYS_set_mempolicy),
    ("get_mempolicy", libc::SYS_get_mempolicy),
    ("move_pages", libc::SYS_move_pages),
    ("migrate_pages", libc::SYS_migrate_pages),
    ("sched_setaffinity", libc::SYS_sched_setaffinity),
    ("sched_getaffinity", libc::SYS_sched_getaffinity),
    ("ioprio_set", libc::SYS_ioprio_set),
    ("ioprio_get", libc::SYS_ioprio_get),
    ("setpriority", libc::SYS_setpriority),
    ("prlimit64", libc::SYS_prlimit64),
    ("capset", libc::SYS_capset),
    ("capget", libc::SYS_capget),
    ("setresuid", libc::SYS_setresuid),
    ("setresgid", libc::SYS_setresgid),
    ("setgroups", libc::SYS_setgroups),
    ("prctl", libc::SYS_prctl),
    ("preadv2", libc::SYS_preadv2),
    ("pwritev2", libc::SYS_pwritev2),
    ("splice", libc::SYS_splice),
    ("tee", libc::SYS_tee),
    ("vmsplice", libc::SYS_vmsplice),
    ("statfs", libc::SYS_statfs),
    ("fstatfs", libc::SYS_fstatfs),
    ("flock", libc::SYS_flock),
    ("fallocate", libc::SYS_fallocate),
    ("fadvise64", libc::SYS_fadvise64),
    ("readahead", libc::SYS_readahead),
    ("sync_file_range", libc::SYS_sync_file_range),
    ("syncfs", libc::SYS_syncfs),
    ("getxattr", libc::SYS_getxattr),
    ("fgetxattr", libc::SYS_fgetxattr),
    ("setxattr", libc::SYS_setxattr),
    ("fsetxattr", libc::SYS_fsetxattr),
    ("signalfd4", libc::SYS_signalfd4),
    ("eventfd2", libc::SYS_eventfd2),
    ("timerfd_create", libc::SYS_timerfd_create),
    ("rt_sigtimedwait", libc::SYS_rt_sigtimedwait),
    ("renameat2", libc::SYS_renameat2),
    ("sendfile", libc::SYS_sendfile),
];

/// Denies `calls` to this thread and to what it starts.
fn deny(calls: impl IntoIterator<Item = i64>, errno: i32) {
    let rules: BTreeMap<i64, _> = calls.into_iter().map(|call| (call, Vec::new())).collect();
    if rules.is_empty() {
        return;
    }
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(errno.unsigned_abs()),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let filter: BpfProgram = filter.unwrap().try_into().unwrap();
    apply_filter(&filter).unwrap();
}

/// The names that systemd has for `groups` and single calls.
fn expanded(groups: &[&str]) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let mut open: Vec<String> = groups.iter().map(|name| (*name).to_owned()).collect();
    while let Some(name) = open.pop() {
        if !names.insert(name.clone()) || !name.starts_with('@') {
            continue;
        }
        let listed = Command::new("systemd-analyze")
            .args(["syscall-filter", "--no-pager", &name])
            .output()
            .ok()?;
        assert!(listed.status.success(), "{name}: {}", text(&listed));
        let listed = String::from_utf8(listed.stdout).unwrap();
        let words = listed.lines().skip(1).map(str::trim);
        open.extend(
            words
                .filter(|word| !word.starts_with('#'))
                .map(str::to_owned),
        );
    }
    Some(names)
}

/// The program with no more rights than the unit gives, all of whose log goes to `place`.
fn with_the_units_rights(place: &Place) -> Command {
    let rights = settings("CapabilityBoundingSet").join(" ").to_lowercase();
    let rights = rights.split(' ').map(|right| right.replace("cap_", ",+"));
    let mut command = Command::new("setpriv");
    command
        .arg(format!("--bounding-set=-all{}", rights.collect::<String>()))
        .arg("--no-new-privs")
        .arg(program().get_program())
        .env("RUST_LOG", "debug")
        .env_remove("NOTIFY_SOCKET")
        .arg("--log-file")
        .arg(place.folder.path().join("log"));
    command
}

/// What the log at `place` says about the sandbox.
fn sandboxed(place: &Place) -> BTreeSet<String> {
    let log = fs::read_to_string(place.folder.path().join("log")).unwrap();
    let said = log.lines().filter_map(|line| line.split_once("sandbox: "));
    said.map(|(_, what)| what.to_owned()).collect()
}

/// Runs `test` in a thread of its own: a filter stays with its thread for good.
fn apart(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(test).join().unwrap());
}

#[test]
fn under_the_units_filter_and_rights_the_daemon_serves_and_confines_itself() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let unit: Vec<&str> = settings("SystemCallFilter")
        .iter()
        .flat_map(|line| line.split(' '))
        .collect();
    let (Some(allowed), Some(known)) = (expanded(&unit), expanded(&["@known"])) else {
        skip("no systemd-analyze");
        return;
    };
    let denied = |is_known: bool| {
        let calls = CALLS.iter().filter(|(name, _)| !allowed.contains(*name));
        calls
            .filter(|(name, _)| known.contains(*name) == is_known)
            .map(|(_, call)| *call)
            .collect::<Vec<i64>>()
    };
    assert!(denied(true).contains(&libc::SYS_bpf));
    let user = USER.to_string();
    for options in [
        &["--sandbox=files"][..],
        &["--sandbox=full", "--validate-cache=access"],
        &["--sandbox=full", "--allow-other", "--user", &user],
    ] {
        let without_filter = {
            let place = place();
            let guard = MountGuard::at(place.point("m"));
            let mut command = with_the_units_rights(&place);
            command.args(options);
            assert_ready(&guard.background(command, &place.tiny.cache));
            sandboxed(&place)
        };
        apart(|| {
            // What systemd does not know is ENOSYS under it, so that the C library falls back.
            deny(denied(false), libc::ENOSYS);
            deny(denied(true), libc::EPERM);
            let place = place();
            let guard = MountGuard::at(place.point("m"));
            let mut command = with_the_units_rights(&place);
            command.args(options);
            assert_ready(&guard.background(command, &place.tiny.cache));
            assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);
            let under_filter = sandboxed(&place);
            assert_eq!(under_filter, without_filter, "{options:?}");
            assert!(!under_filter.is_empty());
        });
    }
}

#[test]
fn a_confinement_that_a_filter_forbids_is_a_warning_and_an_error_if_it_was_asked_for() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let landlock = libc::SYS_landlock_create_ruleset;
    for errno in [libc::ENOSYS, libc::EPERM] {
        for calls in [
            &[landlock][..],
            &[libc::SYS_seccomp],
            &[landlock, libc::SYS_seccomp],
        ] {
            apart(|| {
                deny(calls.iter().copied(), errno);
                let place = place();
                let guard = MountGuard::at(place.point("m"));
                let mut command = with_the_units_rights(&place);
                command.arg("--sandbox=full");
                let output = guard.background(command, &place.tiny.cache);
                let said = text(&output);
                assert_eq!(output.status.code(), Some(1), "{said}");
                assert!(said.contains("--sandbox=full"), "{said}");
                assert!(guard.is_gone() && !is_mounted(&guard.point));

                let command = with_the_units_rights(&place);
                assert_ready(&guard.background(command, &place.tiny.cache));
                assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);
                let log = fs::read_to_string(place.folder.path().join("log")).unwrap();
                let warned = log
                    .lines()
                    .any(|line| line.contains(" warn ") && line.contains("no Landlock"));
                assert!(warned || !calls.contains(&landlock), "{log}");
            });
        }
    }
}
