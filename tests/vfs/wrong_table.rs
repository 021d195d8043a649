//! A metadata.arrow that was found wrong gives no value any more, whichever way leads to it.

use std::sync::{Arc, Mutex};

use datasetrt::error::FaultKind;
use datasetrt::vfs::{Stale, Vfs, VfsError, VfsOptions};

use crate::common::fixture::{Fixture, Sample, TestCache};
use crate::model::list;
use crate::scrub::checked;
use crate::{look, read, tree_with};

fn cache(id: u64, labels: [&str; 2]) -> TestCache {
    let samples = labels.map(|label| Sample::new(label).with("label", label));
    Fixture::new().cache_id(id).samples(samples).build()
}

fn kind<T: std::fmt::Debug>(result: Result<T, VfsError>) -> FaultKind {
    match result {
        Err(VfsError::Damaged(error)) => error.fault().expect("a fault").kind,
        other => panic!("{other:?}"),
    }
}

fn names(vfs: &Vfs, path: &str) -> Vec<String> {
    let folder = look(vfs, path).unwrap().ino;
    let entries = list(vfs, folder, 0, usize::MAX).into_iter();
    let names = entries.map(|entry| entry.name.into_string().unwrap());
    names.filter(|name| !name.starts_with('.')).collect()
}

fn xattr(vfs: &Vfs, id: u64, name: &str) -> Result<Vec<u8>, VfsError> {
    let ino = look(vfs, &format!("samples/{id}/0")).unwrap().ino;
    vfs.getxattr(ino, name.as_ref())
}

const FILES: [&str; 3] = [
    "caches/7/metadata.arrow",
    "metadata.arrow",
    "views/by-label/metadata.jsonl",
];
const XATTRS: [&str; 2] = ["user.datasetrt.metadata", "user.datasetrt.meta.label"];

#[test]
fn no_way_leads_to_the_values_of_a_table_that_was_found_wrong() {
    let (bad, good) = (cache(7, ["a", "both"]), cache(8, ["both", "z"]));
    let options = VfsOptions {
        xattrs: true,
        view_metadata: datasetrt::vfs::ViewMetadata::On,
        ..VfsOptions::default()
    };
    let vfs = tree_with(&[&bad, &good], options);
    let forgotten = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&forgotten);
    vfs.on_forget(move |ino, stale| {
        assert_eq!(stale, Stale::Everything);
        list.lock().unwrap().push(ino);
    });
    let served = |vfs: &Vfs| {
        for file in FILES {
            read(vfs, file).unwrap();
        }
        for name in XATTRS {
            xattr(vfs, 7, name).unwrap();
        }
        let label = names(vfs, "views/by-label");
        assert_eq!(label, ["metadata.jsonl", "a", "both", "z"]);
        assert_eq!(names(vfs, "views/by-label/both").len(), 2);
        assert_eq!(read(vfs, "samples/7/0").unwrap(), b"a");
    };
    served(&vfs);
    let inos = FILES.map(|file| look(&vfs, file).unwrap().ino);
    // A byte of padding, which no reader looks at.
    let at = 7;
    bad.flip("metadata.arrow", at, 1);
    assert_eq!(checked(&vfs, "all")["state"], "done");
    for (file, ino) in FILES.into_iter().zip(inos) {
        assert!(forgotten.lock().unwrap().contains(&ino), "{file}");
        assert_eq!(kind(read(&vfs, file)), FaultKind::Checksum, "{file}");
        let mut room = [0; 8];
        assert_eq!(
            kind(vfs.read(ino, 0, &mut room)),
            FaultKind::Checksum,
            "{file}"
        );
    }
    for name in XATTRS {
        assert_eq!(kind(xattr(&vfs, 7, name)), FaultKind::Checksum, "{name}");
        xattr(&vfs, 8, name).unwrap();
    }
    assert_eq!(xattr(&vfs, 7, "user.datasetrt.verified").unwrap(), b"none");
    assert_eq!(
        names(&vfs, "views/by-label"),
        ["metadata.jsonl", "both", "z"]
    );
    assert_eq!(names(&vfs, "views/by-label/both").len(), 1);
    assert_eq!(kind(look(&vfs, "views/by-label/a")), FaultKind::Checksum);
    assert_eq!(kind(read(&vfs, "samples/7/0")), FaultKind::Checksum);
    // The other cache goes on.
    read(&vfs, "caches/8/metadata.arrow").unwrap();
    assert_eq!(read(&vfs, "samples/8/1").unwrap(), b"z");
    let z = names(&vfs, "views/by-label/z").remove(0);
    assert_eq!(read(&vfs, &format!("views/by-label/z/{z}")).unwrap(), b"z");
    // As soon as it is right, all is as before.
    bad.flip("metadata.arrow", at, 1);
    checked(&vfs, "7");
    served(&vfs);
}
