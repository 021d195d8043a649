//! Locks and data bases: the kernel keeps the locks, and files that do not exist do not exist.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{FlockOperation, fcntl_lock, flock};

use crate::common::fixture::Fixture;
use crate::common::mount::{can_mount, skip};
use crate::live::{Place, command, run, stdout};

#[test]
fn samples_can_be_locked() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let cache = place.cache("cache", Fixture::tiny().v2());
    let live = place.mount(&[&cache]);
    let open = || File::open(live.path("samples/0/0")).unwrap();
    let (one, two) = (open(), open());
    flock(&one, FlockOperation::NonBlockingLockShared).unwrap();
    flock(&two, FlockOperation::NonBlockingLockShared).unwrap();
    let refused = flock(&two, FlockOperation::NonBlockingLockExclusive).unwrap_err();
    assert_eq!(refused, rustix::io::Errno::WOULDBLOCK, "a lock is a lock");
    flock(&one, FlockOperation::Unlock).unwrap();
    flock(&two, FlockOperation::NonBlockingLockExclusive).unwrap();
    flock(&two, FlockOperation::Unlock).unwrap();
    fcntl_lock(&one, FlockOperation::NonBlockingLockShared).unwrap();
    fcntl_lock(&one, FlockOperation::Unlock).unwrap();
    assert_eq!(live.read("samples/0/0").unwrap(), cache.samples[0].payload);
}

/// Makes the data base and reads it back, by Python's own library.
const MAKE: &str = "
import sqlite3, sys
for name, mode in (('delete.db', 'DELETE'), ('wal.db', 'WAL')):
    c = sqlite3.connect(sys.argv[1] + '/' + name)
    assert c.execute('PRAGMA journal_mode=' + mode).fetchone()[0] == mode.lower()
    c.execute('CREATE TABLE t (n INTEGER)')
    c.executemany('INSERT INTO t VALUES (?)', [(n,) for n in range(1000)])
    c.commit()
    c.close()
";
const READ: &str = "
import sqlite3, sys
c = sqlite3.connect('file:' + sys.argv[1] + '?' + sys.argv[2], uri=True)
print(c.execute('SELECT count(*), sum(n) FROM t').fetchone())
";

fn query(path: &Path, how: &str) -> String {
    let words = ["python3", "-c", READ, path.to_str().unwrap(), how];
    String::from_utf8(stdout(&mut command(&words))).unwrap()
}

#[test]
fn sqlite_reads_data_bases_of_both_kinds() {
    let limit = std::time::Duration::from_secs(20);
    if !can_mount() {
        return;
    }
    if !run(&mut command(&["python3", "-c", "import sqlite3"]), limit)
        .status
        .success()
    {
        skip("no python3 with sqlite3");
        return;
    }
    let place = Place::new();
    stdout(&mut command(&[
        "python3",
        "-c",
        MAKE,
        place.path().to_str().unwrap(),
    ]));
    let data_bases = ["delete.db", "wal.db"].map(|name| fs::read(place.path().join(name)).unwrap());
    for fixture in [Fixture::new().v2(), Fixture::new().v2().lz4()] {
        let name = format!("cache-{}", fs::read_dir(place.path()).unwrap().count());
        let cache = place.cache(&name, fixture.payloads(&data_bases));
        let live = place.mount(&[&cache]);
        let (delete, wal) = (live.path("samples/0/0"), live.path("samples/0/1"));
        assert_eq!(query(&delete, "mode=ro"), "(1000, 499500)\n");
        assert_eq!(query(&delete, "immutable=1"), "(1000, 499500)\n");
        assert_eq!(query(&wal, "immutable=1"), "(1000, 499500)\n");
        for end in ["-wal", "-shm", "-journal"] {
            for path in [&delete, &wal] {
                let mut name = path.clone().into_os_string();
                name.push(end);
                let missing = fs::metadata(name).unwrap_err();
                assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
            }
        }
        live.assert_sound();
    }
}
