use std::fs::OpenOptions;
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::*;

const READ: usize = 1 << 20;
const CUT: usize = 10_000;

#[test]
fn a_file_that_is_cut_while_it_is_read_gives_its_bytes_or_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let whole: Vec<u8> = (0..4_u32 << 20).map(|n| (n % 251) as u8 | 1).collect();
    fs::write(&path, &whole).unwrap();
    let file = StoredFile::open(&path).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let start = whole.len() - READ;
                let mut found = vec![0; READ];
                while !ended.load(Ordering::Relaxed) {
                    if file.read_exact_at(&mut found, start as u64).is_ok() {
                        assert!(found == whole[start..], "bytes that the file never had");
                    }
                }
            });
        }
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until {
            let mut change = OpenOptions::new().append(true).open(&path).unwrap();
            let len = whole.len() - CUT;
            change.set_len(len as u64).unwrap();
            change.write_all(&whole[len..]).unwrap();
        }
        ended.store(true, Ordering::Relaxed);
    });
}
