//! `/.control/verify` without a mount: what the tree answers, and what it tells the kernel to forget.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use datasetrt::vfs::{Attr, SetAttr, Stale, Vfs, VfsError, VfsOptions, Written};

use crate::common::fixture::{Fixture, Sample};
use crate::{look, read, text, tree_of, tree_with};

fn write(vfs: &Arc<Vfs>, word: &str) -> Result<(), VfsError> {
    let attr = look(vfs, ".control/verify").unwrap();
    match vfs.write(attr.ino, word.as_bytes())? {
        Written::All => Ok(()),
        Written::Later(work) => work(),
    }
}

/// The report of this moment. Its length is not compared with what a look-up said: a check that runs
/// changes it at any time.
fn report(vfs: &Vfs) -> serde_json::Value {
    let ino = look(vfs, ".control/verify").unwrap().ino;
    let mut bytes = vec![0; 1 << 20];
    let len = vfs.read(ino, 0, &mut bytes).unwrap();
    serde_json::from_slice(&bytes[..len]).unwrap()
}

fn ended(vfs: &Vfs) -> serde_json::Value {
    loop {
        let report = report(vfs);
        if report["state"] != "running" {
            return report;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Has everything that `word` names checked, and gives the report.
pub(crate) fn checked(vfs: &Arc<Vfs>, word: &str) -> serde_json::Value {
    write(vfs, word).unwrap();
    ended(vfs)
}

#[test]
fn the_file_can_be_cut_and_written_and_its_like_cannot() {
    let cache = Fixture::tiny().v2().build();
    let vfs = tree_of(&[&cache]);
    let attr = look(&vfs, ".control/verify").unwrap();
    assert_eq!(attr.perm, 0o600);
    let cut = SetAttr {
        size: Some(0),
        ..SetAttr::default()
    };
    assert_eq!(vfs.setattr(attr.ino, cut).unwrap().size, attr.size);
    let status: Attr = look(&vfs, ".control/status").unwrap();
    assert!(matches!(
        vfs.setattr(status.ino, cut),
        Err(VfsError::ReadOnly)
    ));
    assert!(matches!(
        vfs.write(status.ino, b"all"),
        Err(VfsError::ReadOnly)
    ));
    for bad in ["", "al", "1", "stop all"] {
        assert!(
            matches!(write(&vfs, bad), Err(VfsError::BadControlWord)),
            "{bad}"
        );
    }
    write(&vfs, "stop").unwrap();
    write(&vfs, "0").unwrap();
    assert_eq!(ended(&vfs)["state"], "done");
}

#[test]
fn exactly_the_samples_of_a_wrong_shard_are_forgotten_and_refused() {
    let payloads = (0..6_u8).map(|n| vec![n; 100]);
    let cache = Fixture::new()
        .v2()
        .max_shard_bytes(250)
        .payloads(payloads)
        .build();
    let good = Fixture::tiny().v2().build();
    let vfs = tree_with(&[&good, &cache], VfsOptions::default());
    let forgotten = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&forgotten);
    vfs.on_forget(move |ino, stale| {
        assert_eq!(stale, Stale::Everything);
        list.lock().unwrap().push(ino);
    });
    cache.flip("shards/000001.bin", -1, 1);
    let inside: Vec<u64> = (0..6)
        .filter(|sample| cache.row(*sample).shard == 1)
        .collect();
    assert!(inside.len() > 1 && inside.len() < 6);
    write(&vfs, "all").unwrap();
    assert_eq!(ended(&vfs)["damage"], 1);
    let inos = inside
        .iter()
        .map(|sample| {
            vfs.lookup(
                look(&vfs, "samples/1").unwrap().ino,
                sample.to_string().as_ref(),
            )
        })
        .map(|attr| attr.unwrap().ino);
    assert_eq!(*forgotten.lock().unwrap(), inos.collect::<Vec<_>>());
    for sample in 0..6 {
        let read = read(&vfs, &format!("samples/1/{sample}"));
        assert_eq!(read.is_err(), inside.contains(&sample), "{sample}");
    }
    assert_eq!(text(&vfs, ".control/damaged").lines().count(), inside.len());
}

#[test]
fn an_attribute_of_each_sample_says_what_was_compared() {
    let samples = (0..3_u8).map(|n| Sample::new(vec![n; 100]).with("text", "value"));
    let cache = Fixture::new()
        .v2()
        .max_shard_bytes(1)
        .samples(samples)
        .build();
    cache.flip("shards/000001.bin", -1, 1);
    // Inside the value: an envelope still, but another one.
    let shard = cache.read("shards/000002.bin");
    let value = shard.windows(5).position(|part| part == b"value").unwrap();
    cache.flip("shards/000002.bin", value as i64, 1);
    let options = VfsOptions {
        xattrs: true,
        ..VfsOptions::default()
    };
    let vfs = tree_with(&[&cache], options);
    let verified = || {
        [0, 1, 2].map(|sample| {
            let ino = look(&vfs, &format!("samples/0/{sample}")).unwrap().ino;
            let list = vfs.listxattr(ino).unwrap();
            let name = b"user.datasetrt.verified";
            assert!(list.windows(name.len()).any(|part| part == name));
            let value = vfs.getxattr(ino, "user.datasetrt.verified".as_ref());
            String::from_utf8(value.unwrap()).unwrap()
        })
    };
    // The payload of the second is wrong, which only its shard's SHA-256 tells.
    assert_eq!(verified(), ["envelope", "envelope", "none"]);
    write(&vfs, "all").unwrap();
    ended(&vfs);
    assert_eq!(verified(), ["shard", "none", "none"]);
}
