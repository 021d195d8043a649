//! What a tree should show, as a plain map from paths to content; and what it does show.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use datasetrt::vfs::{Attr, FileKind, Ino, Vfs};

use crate::common::fixture::TestCache;
use crate::read_node;

/// A node as the model has it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Shown {
    Folder,
    File(Vec<u8>),
    /// A file whose text changes.
    Control,
    Link(String),
}

/// Paths, and what lies there.
pub(crate) type Model = BTreeMap<OsString, Shown>;

/// The tree over caches with these identities and `/by-name` entries.
pub(crate) fn model(caches: &[(u64, Option<&str>, &TestCache)]) -> Model {
    let mut model = Model::new();
    for folder in ["/.control", "/by-name", "/caches", "/samples"] {
        model.insert(folder.into(), Shown::Folder);
    }
    let control = [
        "caches",
        "damaged",
        "log",
        "log-level",
        "metrics",
        "migrate",
        "prefetch",
        "status",
        "verify",
    ];
    for file in control {
        model.insert(format!("/.control/{file}").into(), Shown::Control);
    }
    for (id, link, cache) in caches {
        model.insert(format!("/samples/{id}").into(), Shown::Folder);
        for (sample, expected) in cache.samples.iter().enumerate() {
            let file = Shown::File(expected.payload.clone());
            model.insert(format!("/samples/{id}/{sample}").into(), file);
        }
        model.insert(format!("/caches/{id}").into(), Shown::Folder);
        for file in ["manifest.json", "metadata.arrow"] {
            let shown = Shown::File(cache.read(file));
            model.insert(format!("/caches/{id}/{file}").into(), shown);
        }
        if let Some(link) = link {
            let target = Shown::Link(format!("../samples/{id}"));
            model.insert(format!("/by-name/{link}").into(), target);
        }
    }
    model
}

/// A name in a folder.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Listed {
    pub(crate) name: OsString,
    pub(crate) ino: Ino,
    pub(crate) kind: FileKind,
    pub(crate) next: u64,
}

/// Up to `most` names of a folder from `offset` on.
pub(crate) fn list(vfs: &Vfs, folder: Ino, offset: u64, most: usize) -> Vec<Listed> {
    let mut listed = Vec::new();
    vfs.readdir(folder, offset, &mut |entry| {
        listed.push(Listed {
            name: entry.name.to_owned(),
            ino: entry.ino,
            kind: entry.kind,
            next: entry.next_offset,
        });
        listed.len() < most
    })
    .unwrap();
    listed
}

/// Everything below the root by listing, each name looked up as well: paths, content and attributes.
pub(crate) fn walk(vfs: &Vfs) -> (Model, BTreeMap<OsString, Attr>) {
    let (mut model, mut attrs) = (Model::new(), BTreeMap::new());
    let root = vfs.getattr(Ino::ROOT).unwrap();
    attrs.insert("/".into(), root);
    let mut folders = vec![(OsString::new(), root.ino, root.ino)];
    while let Some((path, folder, parent)) = folders.pop() {
        let listed = list(vfs, folder, 0, usize::MAX);
        assert_eq!((&*listed[0].name, listed[0].ino), (OsStr::new("."), folder));
        assert_eq!(
            (&*listed[1].name, listed[1].ino),
            (OsStr::new(".."), parent)
        );
        for entry in &listed[2..] {
            let mut at = path.clone();
            at.push("/");
            at.push(&entry.name);
            // The tests of views have models of their own for these.
            if at == "/views" || at == "/metadata.arrow" {
                continue;
            }
            let attr = vfs.lookup(folder, &entry.name).unwrap();
            let shown = show(vfs, attr, &at);
            assert_eq!(attr.kind, entry.kind, "{at:?}");
            if shown != Shown::Control {
                assert_eq!(attr.ino, entry.ino, "{at:?}");
                assert_eq!(vfs.getattr(attr.ino).unwrap(), attr, "{at:?}");
                assert_eq!(vfs.entry_attr(entry.ino), Some(attr), "{at:?}");
            }
            if shown == Shown::Folder {
                folders.push((at.clone(), attr.ino, folder));
            }
            assert!(model.insert(at.clone(), shown).is_none(), "{at:?} twice");
            attrs.insert(at, attr);
        }
    }
    (model, attrs)
}

fn show(vfs: &Vfs, attr: Attr, path: &OsStr) -> Shown {
    match attr.kind {
        FileKind::Directory => Shown::Folder,
        FileKind::Symlink => {
            let target = vfs.readlink(attr.ino).unwrap();
            assert_eq!(target.len() as u64, attr.size);
            Shown::Link(String::from_utf8(target).unwrap())
        }
        FileKind::File => {
            let bytes = read_node(vfs, attr).unwrap();
            match path.as_bytes().starts_with(b"/.control/") {
                true => Shown::Control,
                false => Shown::File(bytes),
            }
        }
    }
}

/// Fails with the first difference in sight.
pub(crate) fn assert_same(shown: &Model, expected: &Model) {
    let paths = |model: &Model| model.keys().cloned().collect::<Vec<_>>();
    assert_eq!(paths(shown), paths(expected));
    for (path, node) in expected {
        assert_eq!(&shown[path], node, "{path:?}");
    }
}

/// Fails when two paths share a number; links have numbers of their own.
pub(crate) fn assert_unique(attrs: &BTreeMap<OsString, Attr>) {
    let mut seen = HashMap::new();
    for (path, attr) in attrs {
        assert!(attr.ino.0 > 0);
        if let Some(other) = seen.insert(attr.ino, path) {
            panic!("{path:?} and {other:?} have the same inode number");
        }
    }
}
