//! Nobody reads through the mount what they could not read from the cache: asked as other users.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::getxattr;
use rustix::io::Errno;
use rustix::thread::{Gid, Uid, set_thread_gid, set_thread_groups, set_thread_uid};

use crate::common::acl::{ACCESS, set_acl};
use crate::common::fixture::{Fixture, Sample, TestCache};
use crate::common::mount::{MountGuard, can_be_user, can_mount, finish, program, within};
use crate::{place, text};

/// Users and all their groups.
const USERS: [(u32, &[u32]); 6] = [
    (1000, &[1000]),
    (1001, &[1001, 2000]),
    (1002, &[1002, 2000, 2001]),
    (1003, &[2001]),
    (1004, &[1004]),
    (65534, &[65534]),
];

/// What is done to a cache that everybody may read. A path, `mode`, `owner` or `acl`, and to what.
type Change = (&'static str, &'static str, &'static str);

const VARIATIONS: &[&[Change]] = &[
    &[],
    &[("shards/000001.bin", "mode", "600")],
    &[("shards/000001.bin", "mode", "604")],
    &[("shards", "mode", "700")],
    &[("shards", "mode", "744")],
    &[("metadata.arrow", "mode", "600")],
    &[("manifest.json", "mode", "600")],
    &[
        ("manifest.json", "mode", "404"),
        ("manifest.json", "owner", "1001:2000"),
    ],
    &[
        ("index.bin", "mode", "640"),
        ("index.bin", "owner", "0:2000"),
    ],
    &[("", "mode", "700")],
    &[("", "mode", "754"), ("", "owner", "0:2001")],
    &[("", "mode", "705"), ("", "owner", "0:2001")],
    &[
        ("", "owner", "1000:1000"),
        ("shards/000001.bin", "owner", "1001:1001"),
    ],
    &[
        ("", "owner", "1000:1000"),
        ("", "mode", "700"),
        ("shards/000001.bin", "owner", "1001:1001"),
        ("shards/000001.bin", "mode", "600"),
        ("index.bin", "owner", "1001:1001"),
    ],
    &[
        ("shards/000001.bin", "owner", "1001:2000"),
        ("shards/000001.bin", "mode", "044"),
    ],
    &[(
        "shards/000001.bin",
        "acl",
        "u::rw-,u:1001:---,g::r--,m::r--,o::r--",
    )],
    &[(
        "shards/000001.bin",
        "acl",
        "u::rw-,u:1001:r--,g::---,m::r--,o::---",
    )],
    &[(
        "shards/000001.bin",
        "acl",
        "u::rw-,g::r--,g:2000:---,m::r--,o::r--",
    )],
    &[(
        "shards/000001.bin",
        "acl",
        "u::rw-,u:1001:r--,g::r--,m::-w-,o::r--",
    )],
    &[
        ("index.bin", "owner", "0:2000"),
        ("index.bin", "acl", "u::rw-,u:1004:r--,g::---,m::r--,o::---"),
    ],
    &[(
        "metadata.arrow",
        "acl",
        "u::rw-,g::---,g:2001:r--,m::r--,o::---",
    )],
    &[("", "acl", "u::rwx,u:1004:r--,g::r-x,m::r-x,o::r-x")],
    &[("shards", "acl", "u::rwx,g::r-x,g:2001:rw-,m::rwx,o::r-x")],
];

/// What a node is made of.
const MANIFEST: &[&str] = &["manifest.json"];
const METADATA: &[&str] = &["metadata.arrow"];
const FIRST: &[&str] = &[
    "manifest.json",
    "metadata.arrow",
    "index.bin",
    "shards/000000.bin",
];
const SECOND: &[&str] = &[
    "manifest.json",
    "metadata.arrow",
    "index.bin",
    "shards/000001.bin",
];
const ALL: &[&str] = &[
    "manifest.json",
    "metadata.arrow",
    "index.bin",
    "shards/000000.bin",
    "shards/000001.bin",
];

/// One sample in each of two shards; `field` is a name that only this cache has.
fn cache(dir: &Path, field: &str) -> TestCache {
    let samples = ["one", "two"].map(|payload| Sample::new(payload).with(field, "secret-value"));
    let fixture = Fixture::new().v2().name(field).samples(samples);
    let cache = fixture.max_shard_bytes(1).write(dir);
    for (name, mode) in [("", 0o755), ("shards", 0o755)] {
        fs::set_permissions(cache.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    for name in ALL {
        fs::set_permissions(cache.path(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    cache
}

/// Whether it could be done: not every file system has ACLs.
fn change(cache: &TestCache, (name, what, to): Change) -> bool {
    let path = cache.path(name);
    match what {
        "mode" => {
            let mode = u32::from_str_radix(to, 8).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        "owner" => {
            let (uid, gid) = to.split_once(':').unwrap();
            chown(path, uid.parse().ok(), gid.parse().ok()).unwrap();
        }
        _ => return set_acl(&path, ACCESS, to),
    }
    true
}

/// Which of `paths` the user can open and read.
fn readable(user: (u32, &[u32]), paths: &[PathBuf]) -> BTreeMap<PathBuf, bool> {
    let (uid, gids) = user;
    let groups: Vec<_> = gids.iter().map(u32::to_string).collect();
    let script =
        "for f; do if head -c 1 -- \"$f\" >/dev/null 2>&1; then echo y; else echo n; fi; done";
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &uid.to_string(), "--regid", &groups[0]])
        .args(["--groups", &groups.join(",")])
        .args(["sh", "-c", script, "sh"])
        .args(paths)
        .stdout(Stdio::piped());
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let may = said.lines().map(|line| line == "y");
    let found: BTreeMap<_, _> = paths.iter().cloned().zip(may).collect();
    assert_eq!(found.len(), paths.len());
    found
}

/// The second sample of cache `n` in the view of its field.
fn in_view(point: &Path, n: usize) -> String {
    let folder = format!("views/by-field{n}/secret-value");
    let names = fs::read_dir(point.join(&folder)).unwrap();
    let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let second = names.find(|name| name.starts_with(&format!("{n}-1")));
    format!("{folder}/{}", second.unwrap())
}

#[test]
fn nobody_reads_through_the_mount_what_they_cannot_read_from_the_cache() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = place();
    let caches = place.point("caches");
    let list: Vec<TestCache> = VARIATIONS
        .iter()
        .enumerate()
        .map(|(n, changes)| {
            let cache = cache(&caches.join(format!("c{n:02}")), &format!("field{n}"));
            for one in *changes {
                let _ = change(&cache, *one);
            }
            cache
        })
        .collect();
    let mut guard = MountGuard::at(place.point("m"));
    let mut command = program();
    command.args(["--allow-other", "--view-metadata=on"]);
    guard.foreground(command, &caches);
    let mut nodes: Vec<(PathBuf, Vec<PathBuf>)> = Vec::new();
    for (n, cache) in list.iter().enumerate() {
        for (node, sources) in [
            (format!("caches/{n}/manifest.json"), MANIFEST),
            (format!("caches/{n}/metadata.arrow"), METADATA),
            (format!("samples/{n}/0"), FIRST),
            (format!("samples/{n}/1"), SECOND),
            (format!("views/by-field{n}/metadata.jsonl"), ALL),
            (in_view(&guard.point, n), SECOND),
        ] {
            let sources = sources.iter().map(|name| cache.path(name));
            nodes.push((guard.point.join(node), sources.collect()));
        }
    }
    let all = list
        .iter()
        .flat_map(|cache| ALL.iter().map(|name| cache.path(name)));
    let all: Vec<PathBuf> = all.collect();
    nodes.push((guard.point.join("metadata.arrow"), all.clone()));
    nodes.push((guard.point.join(".control/status"), all.clone()));
    nodes.push((guard.point.join(".control/log"), all));
    let mut asked: Vec<PathBuf> = nodes
        .iter()
        .flat_map(|(_, sources)| sources.clone())
        .collect();
    asked.extend(nodes.iter().map(|(node, _)| node.clone()));
    asked.sort();
    asked.dedup();
    let (mut both, mut neither, mut fewer) = (0, 0, 0);
    for user in USERS {
        let may = readable(user, &asked);
        for (node, sources) in &nodes {
            let from_cache = sources.iter().all(|path| may[path]);
            assert!(
                from_cache || !may[node],
                "user {} reads {}",
                user.0,
                node.display()
            );
            match (from_cache, may[node]) {
                (true, true) => both += 1,
                (true, false) => fewer += 1,
                _ => neither += 1,
            }
        }
    }
    // Neither is everything closed, nor open.
    assert!(both > 300 && neither > 300, "{both} {neither} {fewer}");
    // Root reads what anybody may, and whoever may read all caches reads what is about all.
    for (node, _) in &nodes {
        fs::read(node).unwrap_or_else(|error| panic!("{}: {error}", node.display()));
    }
}

#[test]
fn permissions_that_change_are_honoured_at_the_next_look() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = place();
    let cache = cache(&place.point("cache"), "field0");
    let mut guard = MountGuard::at(place.point("m"));
    let mut command = program();
    command.arg("--allow-other");
    guard.foreground(command, &cache.dir);
    let view = in_view(&guard.point, 0);
    let nodes: Vec<PathBuf> = [
        "samples/0/0",
        "samples/0/1",
        "caches/0/metadata.arrow",
        "metadata.arrow",
        &view,
        ".control/status",
    ]
    .map(|node| guard.point.join(node))
    .to_vec();
    let may = || {
        let found = readable(USERS[0], &nodes);
        nodes.iter().map(|node| found[node]).collect::<Vec<_>>()
    };
    let look = || fs::write(guard.point.join(".control/caches"), "rescan").unwrap();
    // The kernel keeps attributes and pages of all of them from here on.
    assert_eq!(may(), [true; 6]);
    for (change, expected) in [
        (
            ("shards/000001.bin", "mode", "600"),
            [true, false, true, false, false, false],
        ),
        (("metadata.arrow", "mode", "600"), [false; 6]),
    ] {
        let before = fs::metadata(cache.path(change.0)).unwrap().permissions();
        assert!(self::change(&cache, change));
        look();
        assert!(within(|| may() == expected), "{change:?}: {:?}", may());
        fs::set_permissions(cache.path(change.0), before).unwrap();
        look();
        assert!(within(|| may() == [true; 6]), "{change:?}: {:?}", may());
    }
    // Another file in the place of a private one does not open what was read from that.
    let before = fs::read(cache.path("metadata.arrow")).unwrap();
    assert!(change(&cache, ("metadata.arrow", "mode", "600")));
    look();
    fs::rename(cache.path("metadata.arrow"), cache.path("aside")).unwrap();
    fs::write(cache.path("metadata.arrow"), before).unwrap();
    assert!(change(&cache, ("metadata.arrow", "mode", "644")));
    look();
    assert_eq!(may(), [false; 6]);
}

#[test]
fn texts_about_private_caches_are_not_for_others() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = place();
    let caches = place.point("caches");
    let open = cache(&caches.join("open"), "open");
    let told = [
        "status",
        "damaged",
        "log",
        "caches",
        "verify",
        "prefetch",
        "migrate",
        "log-level",
    ];
    let mut guard = MountGuard::at(place.point("m"));
    let control = |name: &str| guard.point.join(".control").join(name);
    let paths: Vec<PathBuf> = told.map(control).to_vec();
    let names = [
        guard.point.join("by-name/open/0"),
        guard.point.join("by-name/secret-name/0"),
    ];
    let mut command = program();
    let log = place.folder.path().join("log");
    command.arg("--allow-other").arg("--log-file").arg(&log);
    guard.foreground(command, &caches);
    let mode = fs::metadata(&log).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the log on disk tells the same");
    let may = readable(USERS[0], &paths);
    assert_eq!(
        paths.iter().filter(|path| may[*path]).count(),
        3,
        "status, damaged, log"
    );
    // A private cache joins, one of its samples is damaged, and somebody reads that.
    let secret = Sample::new("x").with("secret-name", "secret-value");
    let fixture = Fixture::new().name("secret-name").cache_id(7);
    let private = fixture
        .samples([secret.clone(), secret])
        .write(&caches.join("private"));
    private.set_json(1, r#"{"secret-name":"secret-found"}"#);
    assert!(change(&private, ("shards", "mode", "700")));
    fs::write(guard.point.join(".control/caches"), "rescan").unwrap();
    assert!(guard.read("samples/7/1").is_err());
    let damaged = fs::read_to_string(guard.point.join(".control/damaged")).unwrap();
    assert!(damaged.starts_with("7/1: "), "{damaged}");
    let may = readable(USERS[0], &paths);
    assert!(paths.iter().all(|path| !may[path]), "{may:?}");
    let mut list = Command::new("setpriv");
    list.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "ls"])
        .args(["by-name", "views"].map(|name| guard.point.join(name)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let said = finish(&mut list);
    let names_said = String::from_utf8_lossy(&said.stdout).contains("secret");
    assert!(!said.status.success() && !names_said, "{}", text(&said));
    let may = readable(USERS[0], &names);
    assert_eq!(names.each_ref().map(|name| may[name]), [true, false]);
    let metrics = guard.read(".control/metrics").unwrap();
    assert!(!String::from_utf8(metrics).unwrap().contains("secret"));
    drop(open);
}

#[test]
fn attributes_of_private_samples_are_not_for_others() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = place();
    let cache = cache(&place.point("cache"), "field");
    assert!(change(&cache, ("shards/000001.bin", "mode", "600")));
    let mut guard = MountGuard::at(place.point("m"));
    let mut command = program();
    command.args(["--allow-other", "--xattrs"]);
    guard.foreground(command, &cache.dir);
    let paths = ["samples/0/0", "samples/0/1"].map(|name| guard.point.join(name));
    let ask = move || {
        // Of this thread alone.
        let (uid, gid) = (Uid::from_raw(1000), Gid::from_raw(1000));
        set_thread_groups(&[]).unwrap();
        set_thread_gid(gid).unwrap();
        set_thread_uid(uid).unwrap();
        paths.map(|path| {
            let mut value = [0; 100];
            let found = getxattr(path, "user.datasetrt.metadata", &mut value);
            found.map(|len| value[..len].to_vec())
        })
    };
    let [open, private] = std::thread::spawn(ask).join().unwrap();
    assert_eq!(open.unwrap(), br#"{"field":"secret-value"}"#);
    assert_eq!(private, Err(Errno::ACCESS));
}

#[test]
fn what_is_said_of_a_cache_that_was_refused_is_for_who_mounted() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = place();
    let caches = place.point("caches");
    let _open = cache(&caches.join("open"), "open");
    let refused = cache(&caches.join("refused"), "secret-name");
    refused.put("manifest.json", r#"{"version":2,"secret":"#);
    let mut guard = MountGuard::at(place.point("m"));
    let mut command = program();
    command.args(["--allow-other", "--skip-invalid"]);
    guard.foreground(command, &caches);
    let status = guard.point.join(".control/status");
    assert!(!readable(USERS[0], std::slice::from_ref(&status))[&status]);
    assert!(fs::read_to_string(status).unwrap().contains("refused"));
}
