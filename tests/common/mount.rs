//! Real mounts for tests: started with the built program, and never left behind.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::fixture::Fixture;
use rustix::process::{Pid, Signal, geteuid, kill_process};

/// No test waits longer than this for anything.
pub const LIMIT: Duration = Duration::from_secs(120);

/// The user that stands for everybody who is not root.
pub const USER: u32 = 1000;

/// A cache to mount, and one sample of it.
pub struct Tiny {
    /// The cache folder.
    pub cache: PathBuf,
    /// A sample's path below the mountpoint.
    pub sample: &'static str,
    /// Its payload.
    pub payload: &'static [u8],
}

impl Tiny {
    /// Makes the cache inside `folder`.
    pub fn make(folder: &Path) -> Self {
        let cache = folder.join("cache");
        let _ = Fixture::new()
            .v2()
            .payloads([b"hello\n", b"other\n"])
            .write(&cache);
        Self {
            cache,
            sample: "samples/0/0",
            payload: b"hello\n",
        }
    }
}

/// Whether mounts can be made here. Says so when not, and fails under CI, where they must be.
pub fn can_mount() -> bool {
    let found = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    let why = match found {
        Ok(_) if which("fusermount3") => return true,
        Ok(_) => "no fusermount3".to_owned(),
        Err(error) => format!("/dev/fuse: {error}"),
    };
    skip(&why)
}

/// Says that a test is skipped; under CI that is a failure.
pub fn skip(why: &str) -> bool {
    assert_ne!(
        std::env::var_os("CI").as_deref(),
        Some(OsStr::new("true")),
        "cannot test: {why}"
    );
    eprintln!("SKIPPED: {why}");
    false
}

/// Whether we are root. Says what is skipped when not: an ordinary user's run is right without it.
pub fn is_root(for_what: &str) -> bool {
    let root = geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: {for_what} takes root");
    }
    root
}

fn which(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Whether tests can become [`USER`], which takes root; lets that user open the FUSE device.
pub fn can_be_user() -> bool {
    if !is_root("becoming another user") {
        return false;
    }
    if !which("setpriv") {
        return skip("no setpriv");
    }
    let mode = fs::metadata("/dev/fuse").unwrap().permissions().mode() & 0o777;
    if mode != 0o666 {
        eprintln!("note: chmod 0666 /dev/fuse (was {mode:o}), as most systems have it");
        fs::set_permissions("/dev/fuse", fs::Permissions::from_mode(0o666)).unwrap();
    }
    true
}

/// The program, as root or whoever runs the tests.
pub fn program() -> Command {
    quiet(Command::new(env!("CARGO_BIN_EXE_datasetrt-mount")))
}

/// The program, which hears SIGHUP also when the tests run under nohup.
pub fn program_that_hears_hangups() -> Command {
    started_with("--default-signal=HUP", program())
}

/// `command`, started with what an option of env(1) makes of its signals.
pub fn started_with(option: &str, command: Command) -> Command {
    let mut by = Command::new("env");
    by.arg(option).arg(command.get_program());
    by.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => by.env(name, value),
            None => by.env_remove(name),
        };
    }
    by.stdin(Stdio::null());
    by
}

/// The tool, as root or whoever runs the tests.
pub fn tool() -> Command {
    quiet(Command::new(env!("CARGO_BIN_EXE_datasetrt")))
}

/// `program` as [`USER`]; a copy lies in `folder`, since the build folder may be closed to others.
pub fn as_user(folder: &Path, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid",
        &USER.to_string(),
        "--regid",
        &USER.to_string(),
        "--clear-groups",
    ]);
    let built = match program {
        "datasetrt-mount" => Some(env!("CARGO_BIN_EXE_datasetrt-mount")),
        "datasetrt" => Some(env!("CARGO_BIN_EXE_datasetrt")),
        _ => None,
    };
    if let Some(built) = built {
        let copy = folder.join(program);
        if !copy.exists() {
            // Not by this process: a program started meanwhile by another thread would hold the
            // copy open for writing, and it could not be run.
            let copied = Command::new("cp").arg(built).arg(&copy).status().unwrap();
            assert!(copied.success());
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        }
        command.arg(copy);
    } else {
        command.arg(program);
    }
    quiet(command)
}

fn quiet(mut command: Command) -> Command {
    command
        .stdin(Stdio::null())
        .env_remove("RUST_LOG")
        .env_remove("NOTIFY_SOCKET")
        // No receipts in the folder of whoever runs the tests.
        .env_remove("XDG_CACHE_HOME")
        .env_remove("HOME");
    command
}

/// A mount, or an attempt at one. Dropping it unmounts and ends its daemon.
pub struct MountGuard {
    /// The mountpoint.
    pub point: PathBuf,
    child: Option<Child>,
}

impl MountGuard {
    /// Takes care of `point`, where nothing is mounted yet.
    pub fn at(point: impl Into<PathBuf>) -> Self {
        Self {
            point: point.into(),
            child: None,
        }
    }

    /// Mounts `cache` in the background with `command`, and gives what the command said.
    pub fn background(&self, mut command: Command, cache: &Path) -> Output {
        finish(
            command
                .arg(cache)
                .arg(&self.point)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        )
    }

    /// Mounts `cache` in the foreground with `command`, and returns when it says that it is ready.
    pub fn foreground(&mut self, mut command: Command, cache: &Path) {
        let mut child = command
            .args(["-f", "--ready-fd", "1"])
            .arg(cache)
            .arg(&self.point)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        self.child = Some(child);
        let (sender, heard) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut word = [0; 8];
            let ready = stdout.read_exact(&mut word).is_ok() && word == *b"READY=1\n";
            // Nobody listens any more after the time is over.
            let _ = sender.send(ready);
        });
        assert_eq!(heard.recv_timeout(LIMIT), Ok(true), "not mounted");
    }

    /// The daemon's process id.
    pub fn pid(&self) -> Pid {
        match &self.child {
            Some(child) => Pid::from_child(child),
            None => *daemons(&self.point).first().expect("no daemon"),
        }
    }

    /// Sends `signal` to the daemon.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for the daemon in the foreground to end.
    pub fn status(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("not in the foreground");
        ended(&mut child).expect("the daemon did not end in time")
    }

    /// The sample's bytes as the mount gives them.
    pub fn read(&self, path: &str) -> std::io::Result<Vec<u8>> {
        fs::read(self.point.join(path))
    }

    /// Whether no mount and no process is left.
    pub fn is_gone(&self) -> bool {
        within(|| !is_mounted(&self.point) && daemons(&self.point).is_empty())
    }
}

impl Drop for MountGuard {
    fn drop(&mut self) {
        while is_mounted(&self.point) {
            let done = Command::new("umount").arg("-l").arg(&self.point).status();
            let done = done.is_ok_and(|status| status.success())
                || Command::new("fusermount3")
                    .args(["-u", "-z", "--"])
                    .arg(&self.point)
                    .status()
                    .is_ok_and(|s| s.success());
            if !done {
                break;
            }
        }
        for pid in daemons(&self.point) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a command that must end by itself in time.
pub fn finish(command: &mut Command) -> Output {
    let mut child = command.spawn().unwrap();
    if ended(&mut child).is_none() {
        child.kill().unwrap();
        panic!("{command:?} did not end in time");
    }
    child.wait_with_output().unwrap()
}

fn ended(child: &mut Child) -> Option<ExitStatus> {
    within(|| child.try_wait().unwrap().is_some());
    child.try_wait().unwrap()
}

/// Whether `condition` comes true in time.
pub fn within(mut condition: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + LIMIT;
    while Instant::now() < until {
        if condition() {
            return true;
        }
        sleep(Duration::from_millis(10));
    }
    false
}

/// Whether anything is mounted at `point`.
pub fn is_mounted(point: &Path) -> bool {
    mount_options(point).is_some()
}

/// The options of the mount at `point` as the mount table has them.
pub fn mount_options(point: &Path) -> Option<String> {
    let table = fs::read("/proc/self/mounts").unwrap();
    let escaped = escape(point.as_os_str());
    table.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        (fields.nth(1)? == escaped)
            .then(|| String::from_utf8_lossy(fields.nth(1).unwrap_or_default()).into_owned())
    })
}

fn escape(path: &OsStr) -> Vec<u8> {
    let mut escaped = Vec::new();
    for byte in path.as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").bytes()),
            _ => escaped.push(*byte),
        }
    }
    escaped
}

/// Living processes of our program that have `point` on their command line.
pub fn daemons(point: &Path) -> Vec<Pid> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // Empty for one that has ended and was not waited for.
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<OsString> = line
            .split(|b| *b == 0)
            .map(|word| OsStr::from_bytes(word).to_owned())
            .collect();
        let ours = words
            .first()
            .is_some_and(|word| word.as_bytes().ends_with(b"datasetrt-mount"));
        if ours && words.iter().any(|word| word == point.as_os_str()) {
            found.extend(Pid::from_raw(pid));
        }
    }
    found
}
