//! A control group with a hard bound on memory, where the system lets us make one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// A group that dies with this value; its processes must have ended.
pub struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// A group that may use `limit` bytes and no swap. `None`, with a word on stderr, where there is no
    /// memory controller that we may use.
    pub fn new(limit: u64) -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("datasetrt-test-{}-{n}", std::process::id());
        let unified = Path::new("/sys/fs/cgroup");
        let first = unified.join("memory").join(&name);
        let second = unified.join(&name);
        let text = limit.to_string();
        if unified.join("memory/memory.limit_in_bytes").exists() && fs::create_dir(&first).is_ok() {
            let group = Self(first);
            if fs::write(group.0.join("memory.limit_in_bytes"), &text).is_ok() {
                // Absent where swap is not counted.
                let _ = fs::write(group.0.join("memory.memsw.limit_in_bytes"), &text);
                return Some(group);
            }
        } else if fs::create_dir(&second).is_ok() {
            let group = Self(second);
            if fs::write(group.0.join("memory.max"), &text).is_ok() {
                let _ = fs::write(group.0.join("memory.swap.max"), "0");
                return Some(group);
            }
        }
        eprintln!(
            "note: no memory control group here; only the daemon's own numbers are looked at"
        );
        None
    }

    /// Our program with its words, inside the group.
    pub fn program(&self) -> Command {
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                "echo $$ > \"$1/cgroup.procs\" && shift && exec \"$@\"",
                "sh",
            ])
            .arg(&self.0)
            .arg(env!("CARGO_BIN_EXE_datasetrt-mount"))
            .env_remove("RUST_LOG")
            .env_remove("NOTIFY_SOCKET")
            .env_remove("XDG_CACHE_HOME")
            .env_remove("HOME");
        command
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        super::mount::within(|| fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}
