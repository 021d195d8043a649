//! A walk through a tree by listings and look-ups, as the kernel does it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use datasetrt::dataset::Dataset;
use datasetrt::error::Error;
use datasetrt::vfs::{Attr, FileKind, Ino, Vfs, VfsError, VfsOptions, ViewMetadata};
use datasetrt::view::{OnCollision, ViewSpec};

/// Options that show no views but those in `specs`.
pub(crate) fn options(specs: &[&str]) -> VfsOptions {
    VfsOptions {
        views: specs
            .iter()
            .map(|spec| ViewSpec::parse(spec).unwrap())
            .collect(),
        auto_views: false,
        view_metadata: ViewMetadata::On,
        ..VfsOptions::default()
    }
}

pub(crate) fn suffixing(specs: &[&str]) -> VfsOptions {
    VfsOptions {
        on_collision: OnCollision::Suffix,
        ..options(specs)
    }
}

pub(crate) fn vfs(dataset: &Dataset, options: VfsOptions) -> Vfs {
    try_vfs(dataset, options).unwrap()
}

/// A tree over the same caches, opened anew.
pub(crate) fn try_vfs(dataset: &Dataset, options: VfsOptions) -> Result<Vfs, Error> {
    let caches = dataset.entries().iter();
    let dirs: Vec<_> = caches
        .map(|entry| entry.cache.dir().to_path_buf())
        .collect();
    Vfs::new(Dataset::open(&dirs).unwrap(), options)
}

/// The node at a path from the root.
pub(crate) fn at(vfs: &Vfs, path: &str) -> Result<Attr, VfsError> {
    let mut attr = vfs.getattr(Ino::ROOT)?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        attr = vfs.lookup(attr.ino, OsStr::new(name))?;
    }
    Ok(attr)
}

/// One name of a listing: number, kind, name and the offset after it.
pub(crate) type Listed = (Ino, FileKind, Vec<u8>, u64);

/// The entries of a folder from `offset` on, at most `most` of them.
pub(crate) fn list(vfs: &Vfs, ino: Ino, offset: u64, most: usize) -> Vec<Listed> {
    let mut entries: Vec<Listed> = Vec::new();
    vfs.readdir(ino, offset, &mut |entry| {
        let name = entry.name.as_bytes().to_vec();
        entries.push((entry.ino, entry.kind, name, entry.next_offset));
        entries.len() < most
    })
    .unwrap();
    entries
}

/// Every file below `folder` with its number. Listings are compared with themselves, resumed from
/// every offset in small folders, and with look-ups; names of one folder must be distinct.
pub(crate) fn walk(vfs: &Vfs, folder: Ino) -> BTreeMap<String, Ino> {
    let mut found = BTreeMap::new();
    let parent = vfs.getattr(folder).unwrap().ino;
    assert_eq!(parent, folder);
    walk_into(vfs, folder, Path::new(""), &mut found);
    found
}

fn walk_into(vfs: &Vfs, folder: Ino, path: &Path, found: &mut BTreeMap<String, Ino>) {
    let whole = list(vfs, folder, 0, usize::MAX);
    assert_eq!(whole[0].2, b".");
    assert_eq!(whole[0].0, folder);
    assert_eq!(whole[1].2, b"..");
    let step = if whole.len() < 200 {
        1
    } else {
        whole.len() / 7
    };
    for resumed in (0..=whole.len()).step_by(step) {
        let offset = resumed.checked_sub(1).map_or(0, |last| whole[last].3);
        assert_eq!(
            list(vfs, folder, offset, 5),
            whole[resumed..].iter().take(5).cloned().collect::<Vec<_>>()
        );
    }
    let mut subfolders = 0;
    for (ino, kind, name, _) in &whole[2..] {
        assert!(!name.is_empty() && name.len() <= 255 && name != b"." && name != b"..");
        assert!(!name.contains(&b'/') && !name.contains(&0));
        let attr = vfs.lookup(folder, OsStr::from_bytes(name)).unwrap();
        assert_eq!((attr.ino, attr.kind), (*ino, *kind), "{name:?}");
        let path = path.join(OsStr::from_bytes(name));
        match kind {
            FileKind::Directory => {
                subfolders += 1;
                assert_eq!(list(vfs, *ino, 1, 1)[0].0, folder, "the parent");
                walk_into(vfs, *ino, &path, found);
            }
            _ => {
                let path = path.to_str().unwrap().to_owned();
                assert_eq!(found.insert(path, *ino), None, "twice: {name:?}");
            }
        }
    }
    let nlink = vfs.getattr(folder).unwrap().nlink;
    assert!(
        nlink == 1 || nlink == 2 + subfolders,
        "{nlink} links, {subfolders} subfolders"
    );
}

/// All bytes of a file.
pub(crate) fn read(vfs: &Vfs, ino: Ino) -> Vec<u8> {
    let size = usize::try_from(vfs.getattr(ino).unwrap().size).unwrap();
    let mut bytes = vec![0; size + 10];
    let n = vfs.read(ino, 0, &mut bytes).unwrap();
    assert_eq!(n, size, "true length");
    bytes.truncate(n);
    bytes
}
