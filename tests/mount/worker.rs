//! Work of other processes: this program runs itself again with its orders in the environment.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::faulty;
use crate::common::noise::noise;

const ORDERS: &str = "DATASETRT_TEST_ORDERS";

/// A process that works at this order, which [`obey`] reads.
fn start(orders: &str) -> Child {
    own_program(orders).spawn().unwrap()
}

fn own_program(orders: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "worker::a_process_of_its_own_does_as_it_is_told"])
        .args(["--nocapture", "--quiet"])
        .env(ORDERS, orders)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// A process that serves `folder` at `point` as a disk that fails on command.
pub(crate) fn disk(folder: &Path, point: &Path) -> Child {
    let orders = format!("disk\n{}\n{}", folder.display(), point.display());
    let mut command = own_program(&orders);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Processes that all must succeed. Ended when dropped, so that none is left behind.
pub(crate) struct Workers(Vec<Child>);

impl Workers {
    /// One process for each of `orders`.
    pub(crate) fn start(orders: impl IntoIterator<Item = String>) -> Self {
        Self(orders.into_iter().map(|orders| start(&orders)).collect())
    }

    pub(crate) fn running(&mut self) -> bool {
        self.0
            .iter_mut()
            .any(|child| child.try_wait().unwrap().is_none())
    }

    pub(crate) fn finish(mut self) {
        for mut child in self.0.drain(..) {
            let status = child.wait().unwrap();
            assert!(status.success(), "a reader failed: {status}");
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The order to read `count` pieces at random places of a file that holds `noise(len, seed)`.
pub(crate) fn pieces(path: &Path, len: usize, seed: u64, count: usize, salt: u64) -> String {
    format!("pieces\n{}\n{len}\n{seed}\n{count}\n{salt}", path.display())
}

/// The order to read all files `0` up to `count` of a folder, each of which holds its own number,
/// beginning with `first`.
pub(crate) fn numbers(folder: &Path, count: u64, first: u64) -> String {
    format!("numbers\n{}\n{count}\n{first}", folder.display())
}

/// The order to write `word` to a file once somebody opens the named pipe `go` for writing. When
/// all of it was taken, `done` is made; to hear that the file is busy is fine as well.
pub(crate) fn writer(path: &Path, word: &str, go: &Path, done: &Path) -> String {
    let [path, go, done] = [path, go, done].map(|path| path.display());
    format!("writer\n{path}\n{word}\n{go}\n{done}")
}

/// The order to read files `0` up to `count` of a folder of equal ones until `stop` exists.
pub(crate) fn reader(folder: &Path, count: u64, stop: &Path) -> String {
    format!("reader\n{}\n{count}\n{}", folder.display(), stop.display())
}

fn obey(orders: &str) {
    // Nobody is left behind by a test that is stopped.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    let words: Vec<&str> = orders.split('\n').collect();
    let number = |n: usize| words[n].parse::<u64>().unwrap();
    match words[0] {
        "pieces" => {
            let whole = noise(number(2) as usize, number(3));
            let file = File::open(words[1]).unwrap();
            assert_eq!(file.metadata().unwrap().len(), whole.len() as u64);
            let mut random = number(5) | 1;
            let mut next = |below: usize| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                (random % below as u64) as usize
            };
            for _ in 0..number(4) {
                let start = next(whole.len());
                let len = (next(200_000) + 1).min(whole.len() - start);
                let mut piece = vec![0; len];
                file.read_exact_at(&mut piece, start as u64).unwrap();
                assert!(piece == whole[start..start + len], "{len} at {start}");
            }
        }
        "numbers" => {
            let count = number(2);
            for n in 0..count {
                let n = (n + number(3)) % count;
                let read = fs::read(Path::new(words[1]).join(n.to_string())).unwrap();
                assert_eq!(read, n.to_string().as_bytes());
            }
        }
        "writer" => {
            // A pipe: the opening waits for its other end, in no time that a test would burn.
            drop(File::open(words[3]).unwrap());
            let mut file = OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(words[1])
                .unwrap();
            match file.write(words[2].as_bytes()) {
                Ok(taken) => {
                    assert_eq!(taken, words[2].len());
                    fs::write(words[4], "").unwrap();
                }
                Err(error) => assert_eq!(error.raw_os_error(), Some(16), "{error}"),
            }
        }
        "reader" => {
            let file = |n| Path::new(words[1]).join(format!("{n}"));
            let expected: Vec<_> = (0..number(2)).map(|n| fs::read(file(n)).unwrap()).collect();
            while !Path::new(words[3]).exists() {
                for (n, expected) in expected.iter().enumerate() {
                    let file = File::open(file(n as u64)).unwrap();
                    assert_eq!(file.metadata().unwrap().len(), expected.len() as u64);
                    // Past what the kernel keeps.
                    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
                    let mut bytes = vec![0; expected.len()];
                    file.read_exact_at(&mut bytes, 0).unwrap();
                    assert!(bytes == *expected);
                }
            }
        }
        "disk" => faulty::serve(Path::new(words[1]), Path::new(words[2])),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_process_of_its_own_does_as_it_is_told() {
    if let Ok(orders) = std::env::var(ORDERS) {
        obey(&orders);
    }
}
