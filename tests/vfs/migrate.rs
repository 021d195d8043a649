//! `/.control/migrate` without a mount: words, one run at a time, the result, the new manifest.

use std::sync::Arc;

use datasetrt::vfs::{SetAttr, Vfs, VfsError, Written};

use crate::common::fixture::{Fixture, TestCache};
use crate::model::walk;
use crate::{look, read, status, text, tree_of};

const CONTROL: &str = ".control/migrate";

fn caches() -> [TestCache; 3] {
    [
        Fixture::tiny().name("first").v2().build(),
        Fixture::tiny().name("second").cache_id(40).build(),
        Fixture::tiny().name("third").v2().lz4().build(),
    ]
}

fn write(vfs: &Arc<Vfs>, word: &[u8]) -> Result<Written, VfsError> {
    let ino = look(vfs, CONTROL).unwrap().ino;
    vfs.write(ino, word)
}

/// Writes and waits.
fn run(vfs: &Arc<Vfs>) -> Result<(), VfsError> {
    match write(vfs, b"3\n")? {
        Written::Later(work) => work(),
        Written::All => panic!("nothing was started"),
    }
}

fn result(vfs: &Vfs) -> serde_json::Value {
    serde_json::from_str(&text(vfs, CONTROL)).unwrap()
}

fn entries(caches: &[TestCache; 3], status: [&str; 3]) -> serde_json::Value {
    let entry = |n: usize, id: u64| {
        let path = caches[n].path("manifest.json");
        serde_json::json!({"path": path.to_str().unwrap(), "cache_id": id, "id": id.to_string(), "status": status[n]})
    };
    serde_json::json!([entry(0, 0), entry(1, 40), entry(2, 2)])
}

fn errno(result: Result<(), VfsError>) -> Option<i32> {
    match result {
        Err(VfsError::Migration(error)) => error.errno,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_word_runs_a_migration_and_the_file_then_says_what_was_done() {
    let caches = caches();
    let vfs = tree_of(&[&caches[0], &caches[1], &caches[2]]);
    let attr = look(&vfs, CONTROL).unwrap();
    assert_eq!((attr.perm, attr.size), (0o600, 0));
    assert_eq!(text(&vfs, CONTROL), "", "empty before the first run");
    run(&vfs).unwrap();
    let done = entries(&caches, ["updated", "unchanged", "updated"]);
    assert_eq!(result(&vfs), serde_json::json!({"Ok": {"entries": done}}));
    let after = look(&vfs, CONTROL).unwrap();
    assert!(
        after.mtime > attr.mtime,
        "the kernel drops its pages by the time"
    );
    run(&vfs).unwrap();
    let kept = entries(&caches, ["unchanged"; 3]);
    assert_eq!(result(&vfs), serde_json::json!({"Ok": {"entries": kept}}));
    assert!(look(&vfs, CONTROL).unwrap().mtime > after.mtime);
}

#[test]
fn a_migration_changes_the_manifest_and_nothing_else_of_the_tree() {
    let caches = caches();
    let vfs = tree_of(&[&caches[0], &caches[1], &caches[2]]);
    let (mut before, attrs_before) = walk(&vfs);
    let manifest = look(&vfs, "caches/0/manifest.json").unwrap();
    let old = read(&vfs, "caches/0/manifest.json").unwrap();
    run(&vfs).unwrap();
    for id in [0, 2] {
        let path = format!("/caches/{id}/manifest.json");
        let now = caches[id as usize].read("manifest.json");
        before.insert(path.into(), crate::model::Shown::File(now));
    }
    let (after, attrs_after) = walk(&vfs);
    crate::model::assert_same(&after, &before);
    for (path, attr) in &attrs_before {
        let path_text = path.to_str().unwrap();
        if !path_text.starts_with("/.control") && !path_text.ends_with("manifest.json") {
            assert_eq!(&attrs_after[path], attr, "{path:?}");
        }
    }
    // The new manifest is another file, as after a rename; the old one can still be read.
    let new = look(&vfs, "caches/0/manifest.json").unwrap();
    assert_ne!(new.ino, manifest.ino);
    assert_eq!(new.mtime, manifest.mtime, "time stays that of the index");
    assert_eq!(crate::read_node(&vfs, manifest).unwrap(), old);
    let status = status(&vfs);
    for n in 0..3 {
        assert_eq!(status["caches"][n]["format_version"], 3);
    }
    assert_eq!(status["caches"][2]["cache_id"], 2);
}

#[test]
fn what_is_not_the_word_is_refused_and_does_nothing() {
    let caches = caches();
    let vfs = tree_of(&[&caches[0], &caches[1], &caches[2]]);
    let before = caches[0].read("manifest.json");
    let long = vec![b'3'; 1 << 20];
    for word in [
        &b""[..],
        b"\n",
        b"2",
        b"4",
        b"G",
        b"3\0",
        b"33",
        b"3 3",
        b"+3",
        b"03",
        b"\xff",
        &long,
    ] {
        let refused = write(&vfs, word);
        assert!(
            matches!(refused, Err(VfsError::BadControlWord)),
            "{:?}",
            &word[..word.len().min(9)]
        );
    }
    assert_eq!(caches[0].read("manifest.json"), before);
    assert_eq!(text(&vfs, CONTROL), "");
    for word in [&b"3"[..], b" 3", b"3\r\n", b"\t3 \n"] {
        assert!(
            matches!(write(&vfs, word), Ok(Written::Later(_))),
            "{word:?}"
        );
    }
    assert_eq!(
        caches[0].read("manifest.json"),
        before,
        "work that was dropped did not run"
    );
}

#[test]
fn one_run_at_a_time_and_the_next_writer_hears_it() {
    let caches = caches();
    let vfs = tree_of(&[&caches[0], &caches[1], &caches[2]]);
    let quiet = look(&vfs, CONTROL).unwrap().ino;
    let Ok(Written::Later(work)) = write(&vfs, b"3") else {
        panic!("not started")
    };
    // Another node meanwhile: the kernel lets one writer at a time at a file.
    let busy = look(&vfs, CONTROL).unwrap();
    assert_ne!(busy.ino, quiet);
    assert_eq!(busy.perm, 0o600);
    for ino in [quiet, busy.ino] {
        assert!(matches!(vfs.write(ino, b"3"), Err(VfsError::Busy)));
        assert!(matches!(
            vfs.write(ino, b"x"),
            Err(VfsError::BadControlWord)
        ));
    }
    assert_eq!(text(&vfs, CONTROL), "");
    work().unwrap();
    assert_eq!(look(&vfs, CONTROL).unwrap().ino, quiet);
    assert_eq!(
        vfs.getattr(busy.ino).unwrap().size,
        look(&vfs, CONTROL).unwrap().size
    );
    // The node of the run goes on to work for whoever has it open.
    let Ok(Written::Later(work)) = vfs.write(busy.ino, b"3") else {
        panic!("not started")
    };
    work().unwrap();
}

#[test]
fn a_control_file_can_be_cut_and_touched_but_not_chmodded() {
    let caches = caches();
    let vfs = tree_of(&[&caches[0], &caches[1], &caches[2]]);
    run(&vfs).unwrap();
    let attr = look(&vfs, CONTROL).unwrap();
    for change in [
        SetAttr {
            size: Some(0),
            ..SetAttr::default()
        },
        SetAttr {
            times: true,
            ..SetAttr::default()
        },
    ] {
        assert_eq!(
            vfs.setattr(attr.ino, change).unwrap(),
            attr,
            "nothing changes"
        );
    }
    for change in [
        SetAttr {
            mode: Some(0o666),
            ..SetAttr::default()
        },
        SetAttr {
            uid: Some(1),
            ..SetAttr::default()
        },
        SetAttr {
            gid: Some(1),
            ..SetAttr::default()
        },
    ] {
        assert!(matches!(
            vfs.setattr(attr.ino, change),
            Err(VfsError::ReadOnly)
        ));
    }
}

#[test]
fn a_run_that_fails_says_so_and_keeps_what_was_done() {
    let caches = caches();
    let vfs = tree_of(&[&caches[0], &caches[1], &caches[2]]);
    let before = read(&vfs, "caches/0/manifest.json").unwrap();
    caches[2].append("manifest.json", b" ");
    assert_eq!(errno(run(&vfs)), Some(116), "ESTALE");
    let said = result(&vfs);
    assert_eq!(
        said["Err"]["path"],
        caches[2].path("manifest.json").to_str().unwrap()
    );
    assert_eq!(said["Err"]["entries"], serde_json::json!([]));
    assert!(!said["Err"]["message"].as_str().unwrap().is_empty());
    assert_eq!(read(&vfs, "caches/0/manifest.json").unwrap(), before);
    assert_eq!(
        caches[0].read("manifest.json"),
        before,
        "all are checked before the first"
    );
    assert_eq!(status(&vfs)["caches"][0]["format_version"], 2);
    // Put right, the same word does the rest.
    caches[2].truncate("manifest.json", -1);
    run(&vfs).unwrap();
    assert_eq!(status(&vfs)["caches"][0]["format_version"], 3);
}

#[test]
fn a_manifest_that_somebody_else_wrote_is_never_shown() {
    let source_name = |vfs: &Vfs, id: u64| {
        let manifest = read(vfs, &format!("caches/{id}/manifest.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        manifest["source_name"].clone()
    };
    let list = caches();
    let vfs = tree_of(&[&list[0], &list[1], &list[2]]);
    list[1].set_manifest("source_name", "another");
    assert_eq!(errno(run(&vfs)), Some(116), "ESTALE");
    assert_eq!(source_name(&vfs, 40), "second");
    // One of format 3 that happens to have the identity of a place in the list.
    let list = caches();
    let vfs = tree_of(&[&list[0], &list[1], &list[2]]);
    list[0].set_manifest("format_version", 3);
    list[0].set_manifest("cache_id", 0);
    list[0].set_manifest("source_name", "another");
    assert_eq!(errno(run(&vfs)), Some(116), "ESTALE");
    assert_eq!(source_name(&vfs, 0), "first");
    assert_eq!(status(&vfs)["caches"][0]["format_version"], 2);
}

#[test]
fn a_manifest_keeps_its_bytes_once_its_new_form_is_shown() {
    let list = caches();
    let vfs = tree_of(&[&list[0], &list[1], &list[2]]);
    run(&vfs).unwrap();
    let path = "caches/0/manifest.json";
    let (attr, shown) = (look(&vfs, path).unwrap(), read(&vfs, path).unwrap());
    // The same manifest by another spelling: its node has told the kernel that it never changes.
    list[0].append("manifest.json", b"\n\n");
    run(&vfs).unwrap();
    assert_eq!(look(&vfs, path).unwrap(), attr);
    assert_eq!(read(&vfs, path).unwrap(), shown);
}

#[test]
fn the_end_of_the_mount_stops_a_run_before_its_first_manifest() {
    let caches = caches();
    let vfs = tree_of(&[&caches[0], &caches[1], &caches[2]]);
    let before = caches[0].read("manifest.json");
    vfs.stop_migration();
    assert_eq!(errno(run(&vfs)), Some(4), "EINTR");
    assert_eq!(caches[0].read("manifest.json"), before);
}
