//! What data loaders do: worker processes, forked and spawned, that read each sample of each epoch and
//! hold files while the mount ends.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use datasetrt::format::digest::Sha256Digest;

use crate::common::fixture::Fixture;
use crate::common::mount::{can_mount, skip};
use crate::common::noise::noise;
use crate::live::{Place, command, run};

/// As torchvision's `ImageFolder` finds files whose names have no ending, and `DataLoader` reads them. A
/// line for each sample of each epoch, then one when all workers hold files, until stdin ends.
const LOADER: &str = r"
import hashlib, mmap, multiprocessing, os, sys

root = sys.argv[1]
held = []

def load(sample):
    label, path = sample
    file = open(path, 'rb')
    view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    held.append((file, view))
    assert view[:] == file.read()
    return f'{label} {os.path.basename(path)} {hashlib.sha256(view).hexdigest()}'

if __name__ == '__main__':
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    samples = []
    for label, name in enumerate(classes):
        for folder, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True)):
            samples += [(label, os.path.join(folder, file)) for file in sorted(files)]
    for method in ('fork', 'fork', 'spawn'):
        pool = multiprocessing.get_context(method).Pool(4)
        for line in pool.imap(load, samples, 8):
            print(line)
        print('epoch', flush=True)
    print('holding', flush=True)
    sys.stdin.read()
    pool.terminate()
";

const COUNT: u64 = 32;

#[test]
fn loaders_with_forked_and_spawned_workers_read_each_sample_and_let_the_mount_end() {
    let limit = std::time::Duration::from_secs(60);
    let python = ["python3", "-c", "import multiprocessing"];
    if !can_mount() {
        return;
    }
    if !run(&mut command(&python), limit).status.success() {
        skip("no python3");
        return;
    }
    let place = Place::new();
    let payload = |id: u64, n: u64| noise(2000 + n as usize, id * COUNT + n);
    let caches = [2, 10].map(|id| {
        let payloads = (0..COUNT).map(|n| payload(id, n));
        let fixture = Fixture::new().lz4().cache_id(id).payloads(payloads);
        place.cache(&format!("cache-{id}"), fixture)
    });
    let live = place.mount(&[&caches[0], &caches[1]]);
    let program = place.path().join("loader.py");
    std::fs::write(&program, LOADER).unwrap();
    let mut child = command(&["python3", program.to_str().unwrap()])
        .arg(live.path("samples"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut epochs, mut epoch) = (Vec::new(), Vec::new());
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        match line.unwrap().as_str() {
            "holding" => break,
            "epoch" => epochs.push(std::mem::take(&mut epoch)),
            sample => epoch.push(sample.to_owned()),
        }
    }
    // Classes are in the order of their names as text: 10 comes before 2.
    let expected: Vec<String> = [(0, 10), (1, 2)]
        .into_iter()
        .flat_map(|(label, id)| {
            let mut numbers: Vec<u64> = (0..COUNT).collect();
            numbers.sort_by_key(u64::to_string);
            numbers.into_iter().map(move |n| {
                let digest = Sha256Digest::of(&payload(id, n));
                format!("{label} {n} {digest}")
            })
        })
        .collect();
    assert_eq!(epochs.len(), 3);
    for epoch in epochs {
        assert_eq!(epoch, expected);
    }
    assert_eq!(live.damaged(), [""; 0]);
    live.assert_sound();
    // With files open and mapped in all workers.
    live.stop();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}
