//! One mount by the daemon, with what tests ask of it. It cannot hang a test: a watchdog ends the
//! daemon when the time is up, and whoever waits for it then gets an error.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;
use tempfile::TempDir;

use crate::common::fixture::{Fixture, TestCache};
use crate::common::mount::{MountGuard, daemons, program};

pub(crate) const EIO: i32 = 5;

/// A command that has not ended by then hangs: no measure of speed, whatever else the machine does.
pub(crate) const HANGS_AFTER: Duration = Duration::from_secs(900);
/// How long one mount of a test may live.
const LIFE: Duration = Duration::from_secs(1200);

/// A folder that everybody may enter, for caches and mountpoints.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a cache into this folder.
    pub(crate) fn cache(&self, name: &str, fixture: Fixture) -> TestCache {
        fixture.write(&self.path().join(name))
    }

    /// A new folder to mount at.
    pub(crate) fn point(&self) -> PathBuf {
        let used = fs::read_dir(self.path()).unwrap().count();
        let point = self.path().join(format!("mount-{used}"));
        fs::create_dir(&point).unwrap();
        point
    }

    /// Mounts these caches.
    pub(crate) fn mount(&self, caches: &[&TestCache]) -> Live {
        self.mount_by(program(), caches)
    }

    /// Mounts these caches with a command that ends in our program and its options.
    pub(crate) fn mount_by(&self, command: Command, caches: &[&TestCache]) -> Live {
        let dirs: Vec<_> = caches.iter().map(|cache| cache.dir.clone()).collect();
        self.mount_dirs(command, &dirs)
    }

    /// As [`Place::mount_by`], by the folders.
    pub(crate) fn mount_dirs(&self, mut command: Command, dirs: &[PathBuf]) -> Live {
        let point = self.point();
        let log = point.with_extension("log");
        let (last, others) = dirs.split_last().expect("a cache");
        // Not to stderr, which nobody reads while a test runs.
        command.arg("--log-file").arg(&log).args(others);
        let watchdog = Watchdog::start(&point, LIFE);
        let mut guard = MountGuard::at(point);
        guard.foreground(command, last);
        Live {
            guard,
            log,
            _watchdog: watchdog,
        }
    }

    /// Tries to mount, which is to fail: what the program said.
    pub(crate) fn refused(&self, caches: &[&TestCache]) -> String {
        self.refused_by(program(), caches)
    }

    /// [`Place::refused`] with a command that ends in our program and its options.
    pub(crate) fn refused_by(&self, mut command: Command, caches: &[&TestCache]) -> String {
        let guard = MountGuard::at(self.point());
        command.args(caches.iter().map(|cache| &cache.dir));
        let output = run(command.arg(&guard.point), Duration::from_secs(60));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(guard.is_gone());
        said
    }
}

/// A mount.
pub(crate) struct Live {
    pub(crate) guard: MountGuard,
    log: PathBuf,
    _watchdog: Watchdog,
}

impl Live {
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.guard.point.join(path)
    }

    pub(crate) fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.guard.read(path)
    }

    /// The error number of a read that must fail.
    pub(crate) fn errno(&self, path: &str) -> i32 {
        let read = self.read(path).map(|bytes| bytes.len());
        read.expect_err(path).raw_os_error().expect("a number")
    }

    pub(crate) fn text(&self, path: &str) -> String {
        String::from_utf8(self.read(path).unwrap()).unwrap()
    }

    /// `.control/status`.
    pub(crate) fn status(&self) -> Json {
        serde_json::from_str(&self.text(".control/status")).unwrap()
    }

    /// The lines of `.control/damaged`.
    pub(crate) fn damaged(&self) -> Vec<String> {
        let text = self.text(".control/damaged");
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn pid(&self) -> i32 {
        self.guard.pid().as_raw_nonzero().get()
    }

    /// How many descriptors the daemon has open.
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .unwrap()
            .count()
    }

    /// A value of the daemon's `/proc/PID/status`, in bytes: `VmRSS`, `VmHWM`.
    pub(crate) fn memory(&self, key: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .expect(key);
        let number = line
            .trim_start_matches(':')
            .trim()
            .trim_end_matches("kB")
            .trim();
        number.parse::<u64>().unwrap() << 10
    }

    /// What the daemon has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Nothing was wrong with the daemon itself.
    pub(crate) fn assert_sound(&self) {
        assert_eq!(self.status()["counters"]["panics"], 0);
        assert!(!self.log().contains("internal error"), "{}", self.log());
    }

    /// Ends the daemon as an administrator does.
    pub(crate) fn stop(mut self) {
        self.guard.signal(Signal::TERM);
        assert_eq!(self.guard.status().code(), Some(0), "{}", self.log());
    }
}

/// Ends the mount at a mountpoint when the time is up, unless dropped before.
pub(crate) struct Watchdog(Option<Sender<()>>);

impl Watchdog {
    pub(crate) fn start(point: &Path, life: Duration) -> Self {
        let (sender, ended) = mpsc::channel::<()>();
        let point = point.to_path_buf();
        std::thread::spawn(move || {
            if ended.recv_timeout(life) == Err(RecvTimeoutError::Timeout) {
                eprintln!("TIME IS UP: ending the mount at {}", point.display());
                // First those who wait for it, should it not end by itself.
                let _ = Command::new("umount").arg("-f").arg(&point).status();
                for pid in daemons(&point) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
        });
        Self(Some(sender))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

/// Runs a command that must end by itself in time; its output must fit into a pipe.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Output {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let pid = Pid::from_child(&child);
    let (sender, ended) = mpsc::channel::<()>();
    let started = Instant::now();
    let watchdog = std::thread::spawn(move || {
        if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            let _ = kill_process(pid, Signal::KILL);
        }
    });
    // The pipes are drained by threads of their own, so a long output is no obstacle either.
    let drain = |pipe: Box<dyn io::Read + Send>| std::thread::spawn(move || drained(pipe));
    let stdout = drain(Box::new(child.stdout.take().unwrap()));
    let stderr = drain(Box::new(child.stderr.take().unwrap()));
    let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
    drop(sender);
    watchdog.join().unwrap();
    let status = child.wait().unwrap();
    assert!(started.elapsed() < limit, "{command:?} did not end in time");
    Output {
        status,
        stdout,
        stderr,
    }
}

fn drained(mut pipe: Box<dyn io::Read + Send>) -> Vec<u8> {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes).unwrap();
    bytes
}

/// [`run`], and it must succeed: its standard output.
pub(crate) fn stdout(command: &mut Command) -> Vec<u8> {
    let output = run(command, HANGS_AFTER);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    output.stdout
}

/// `words` as a command line.
pub(crate) fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

/// Our program under `ulimit` with these words.
pub(crate) fn limited(ulimit: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit {ulimit} && exec \"$0\" \"$@\"")])
        .arg(env!("CARGO_BIN_EXE_datasetrt-mount"))
        .stdin(Stdio::null())
        .env_remove("RUST_LOG")
        .env_remove("NOTIFY_SOCKET")
        .env_remove("XDG_CACHE_HOME")
        .env_remove("HOME");
    command
}

/// What `datasetrt verify` says of these caches, and its exit status.
pub(crate) fn verify(caches: &[&TestCache]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_datasetrt"));
    command
        .arg("verify")
        .args(caches.iter().map(|cache| &cache.dir));
    let output = run(&mut command, HANGS_AFTER);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.code().unwrap_or(-1), said)
}
