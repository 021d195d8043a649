//! How much memory decoded samples may take when nobody says: a quarter of what this process may
//! have, at most 1 GiB.

use std::fs;
use std::path::Path;

const MOST: u64 = 1 << 30;
/// When nothing tells how much memory there is.
const UNKNOWN: u64 = 256 << 20;

/// The default of `--cache-memory`, in bytes.
pub(in crate::cli) fn default_budget() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.as_deref().and_then(total_of);
    let group = fs::read_to_string("/proc/self/cgroup").ok();
    let group = group
        .as_deref()
        .and_then(|group| group_limit(group, Path::new("/sys/fs/cgroup")));
    match machine.into_iter().chain(group).min() {
        Some(limit) => (limit / 4).min(MOST),
        None => UNKNOWN,
    }
}

/// `MemTotal` of /proc/meminfo, in bytes.
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The smallest limit of this process's control groups and those above them, in bytes.
fn group_limit(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        match controllers {
            // Version 2, with one tree for all.
            "" => smallest(path, root, "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                smallest(path, &root.join("memory"), "memory.limit_in_bytes")
            }
            _ => None,
        }
    });
    limits.min()
}

fn smallest(path: &str, root: &Path, file: &str) -> Option<u64> {
    Path::new(path.trim_start_matches('/'))
        .ancestors()
        .filter_map(|part| fs::read_to_string(root.join(part).join(file)).ok())
        .filter_map(|limit| limit.trim().parse().ok())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_counts() {
        assert_eq!(
            total_of("MemTotal:       24576 kB\nMemFree: 1 kB\n"),
            Some(24 << 20)
        );
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("jobs/one");
        fs::create_dir_all(&inner).unwrap();
        fs::write(root.path().join("jobs/memory.max"), "4096\n").unwrap();
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        assert_eq!(group_limit("0::/jobs/one\n", root.path()), Some(4096));
        fs::write(inner.join("memory.max"), "1024\n").unwrap();
        assert_eq!(
            group_limit("1:cpu:/x\n0::/jobs/one\n", root.path()),
            Some(1024)
        );
        assert_eq!(group_limit("0::/\n", root.path()), None);
        // Version 1 has a tree for each controller.
        let first = root.path().join("memory/jobs");
        fs::create_dir_all(&first).unwrap();
        fs::write(first.join("memory.limit_in_bytes"), "512\n").unwrap();
        assert_eq!(
            group_limit("2:cpu:/jobs\n3:memory,x:/jobs\n0::/jobs\n", root.path()),
            Some(512)
        );
        assert!(default_budget() <= MOST && default_budget() > 0);
    }
}
