//! The machine: device, helper programs, kernel, limits, leftovers.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, geteuid, getrlimit};

use super::Check;
use crate::cli::mount::default_budget;
use crate::cli::output::bytes;
use crate::fuse::{self, Answer};

/// Kernel versions that brought what we use; a mount works without, but slower.
const FEATURES: [((u32, u32), &str); 3] = [
    ((3, 15), "samples opened without a request"),
    ((4, 7), "look-ups in one folder side by side"),
    ((4, 20), "symbolic links kept by the kernel"),
];
/// Before this one, an ordinary user of a container could not mount at all.
const USER_NAMESPACES: (u32, u32) = (4, 18);

/// The PATH that mount(8) gives to the programs it runs.
const MOUNT_PATH: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];
const PROFILE: &str = "/etc/apparmor.d/fusermount3";
/// Where Ubuntu's profile lets users mount, beside their home.
const PROFILE_FOLDERS: [&str; 4] = ["/mnt", "/media", "/tmp", "/run/user"];

const WANTED_FILES: u64 = 1024;
/// Less than whoever waits for a mount has.
const ANSWER: Duration = Duration::from_secs(3);

pub(super) fn checks(mountpoint: Option<&Path>) -> Vec<Check> {
    let mut checks = vec![device(), kernel()];
    checks.extend(helper());
    checks.push(others());
    checks.extend(mountpoint.and_then(apparmor));
    checks.push(fstab());
    checks.push(files());
    checks.extend(memory());
    checks.extend(mounts());
    checks
}

fn is_root() -> bool {
    geteuid().is_root()
}

fn device() -> Check {
    match fuse::check_device() {
        Ok(()) => Check::ok("device", "/dev/fuse can be opened"),
        Err(error) => {
            let text = error.chain();
            let (found, fix) = text.split_once(": ").unwrap_or(("/dev/fuse", &text));
            Check::fail("device", format!("{found} cannot be used"), fix)
        }
    }
}

fn kernel() -> Check {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy().into_owned();
    let Some(version) = version(&release) else {
        return Check::warn(
            "kernel",
            format!("Linux {release} is of an unknown version"),
            "any from 4.20 on has all that is used",
        );
    };
    let missing: Vec<&str> = FEATURES
        .iter()
        .filter(|(since, _)| version < *since)
        .map(|(_, what)| *what)
        .chain((version < USER_NAMESPACES).then_some("mounts in user namespaces"))
        .collect();
    if missing.is_empty() {
        return Check::ok("kernel", format!("Linux {release} has all that is used"));
    }
    let found = format!("Linux {release} lacks: {}", missing.join(", "));
    Check::warn(
        "kernel",
        found,
        "it works, but slower; any kernel from 4.20 on has these",
    )
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn helper() -> Vec<Check> {
    let name = "fusermount3";
    let install = "install the package fuse3";
    let program = match fuse::find_helper() {
        Ok(program) => program,
        Err(_) if is_root() => {
            let found = "not found: root can mount, ordinary users cannot";
            return vec![Check::warn(name, found, install)];
        }
        Err(_) => return vec![Check::fail(name, "not found", install)],
    };
    let shown = program.display();
    let works =
        fs::metadata(&program).is_ok_and(|found| found.uid() == 0 && found.mode() & 0o4000 != 0);
    if works {
        return vec![Check::ok(name, format!("{shown}, set-user-id root"))];
    }
    // Capabilities of the file do as well.
    if rustix::fs::getxattr(&program, "security.capability", &mut [0_u8; 64]).is_ok() {
        return vec![Check::ok(name, format!("{shown}, with capabilities"))];
    }
    let found = format!("{shown} is not set-user-id root: ordinary users cannot mount");
    let remedy = format!("chown root {shown}; chmod 4755 {shown}");
    vec![match is_root() {
        true => Check::warn(name, found, remedy),
        false => Check::fail(name, found, remedy),
    }]
}

fn others() -> Check {
    let name = "other users";
    let config = fuse::HELPER_CONFIG;
    match fuse::others_allowed() {
        Some(true) => Check::ok(name, format!("--allow-other is permitted ({config})")),
        Some(false) if is_root() => Check::ok(
            name,
            format!("--allow-other is permitted to root only ({config} has no user_allow_other)"),
        ),
        Some(false) => Check::warn(
            name,
            "only you will see your mounts, not even root: --allow-other is refused",
            format!("add the line user_allow_other to {config} (as root)"),
        ),
        None => Check::warn(
            name,
            format!("{config} cannot be read, so --allow-other may be refused"),
            format!("chmod a+r {config} (as root)"),
        ),
    }
}

/// Ubuntu's profile for fusermount3, which refuses mountpoints at unusual places.
fn apparmor(mountpoint: &Path) -> Option<Check> {
    let name = "apparmor";
    let on =
        fs::read("/sys/module/apparmor/parameters/enabled").is_ok_and(|on| on.starts_with(b"Y"));
    if !on || !Path::new(PROFILE).exists() || is_root() {
        return None;
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let mut folders = PROFILE_FOLDERS.iter().map(Path::new).chain(home.as_deref());
    if folders.any(|folder| mountpoint.starts_with(folder)) {
        return Some(Check::ok(name, format!("{PROFILE} lets users mount there")));
    }
    Some(Check::warn(
        name,
        format!("{PROFILE} may refuse this mountpoint with `Permission denied`"),
        "mount below your home, /mnt, /media or /tmp, or add the place to /etc/apparmor.d/local/fusermount3",
    ))
}

fn fstab() -> Check {
    let name = "mount(8)";
    let there = |file: &str| {
        MOUNT_PATH
            .iter()
            .any(|folder| Path::new(folder).join(file).exists())
    };
    if !there("mount.fuse") && !there("mount.fuse3") {
        let found = "fstab lines and `mount -t fuse.datasetrt-mount` do not work: no mount.fuse3";
        return Check::warn(name, found, "install the package fuse3");
    }
    if there("datasetrt-mount") {
        return Check::ok(name, "fstab lines and `mount -t fuse.datasetrt-mount` work");
    }
    Check::warn(
        name,
        "fstab lines and `mount -t fuse.datasetrt-mount` will not find datasetrt-mount",
        "install it to /usr/local/bin or /usr/bin",
    )
}

fn files() -> Check {
    let name = "open files";
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    if most >= WANTED_FILES {
        return Check::ok(name, format!("up to {most}; half of them for shards"));
    }
    Check::warn(
        name,
        format!("only {most}: shards will be closed and opened again all the time"),
        format!("ulimit -Hn {WANTED_FILES}, or LimitNOFILE= in the unit"),
    )
}

/// Whether there is room for what a mount holds when nobody says how much.
fn memory() -> Option<Check> {
    let name = "memory";
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let free = line.split_ascii_whitespace().next()?.parse::<u64>().ok()? << 10;
    let budget = default_budget();
    let found = format!(
        "{} free; a mount holds up to {} of decoded samples",
        bytes(free),
        bytes(budget)
    );
    if free / 2 >= budget {
        return Some(Check::ok(name, found));
    }
    Some(Check::warn(
        name,
        found,
        "give mounts less: --cache-memory 64MiB",
    ))
}

fn ask(at: PathBuf) -> (PathBuf, Answer) {
    let answer = fuse::answer(&at, ANSWER);
    (at, answer)
}

/// A check for each mount of ours, or one that says that there is none.
fn mounts() -> Vec<Check> {
    let name = "mounts";
    let ours = match fuse::mounts() {
        Ok(table) => table.into_iter().filter(|mount| mount.is_ours()),
        Err(error) => return vec![Check::warn(name, error.chain(), "mount /proc")],
    };
    // All at once: each that hangs costs its whole time.
    let asked: Vec<_> = ours
        .map(|mount| thread::spawn(move || ask(mount.mountpoint)))
        .collect();
    let answers = asked.into_iter().filter_map(|asked| asked.join().ok());
    let checks: Vec<Check> = answers
        .map(|(at, answer)| {
            let shown = at.display();
            let quoted = fuse::quoted(&at);
            match answer {
                Answer::Alive => Check::ok(name, format!("{shown} answers")),
                Answer::Dead => Check::fail(
                    name,
                    format!("{shown} is dead: its daemon was killed"),
                    format!("datasetrt umount {quoted}, or mount there again"),
                ),
                Answer::Hung => Check::fail(
                    name,
                    format!("{shown} does not answer: its daemon is stopped or waits for a disk"),
                    format!("datasetrt umount --lazy {quoted}"),
                ),
            }
        })
        .collect();
    if checks.is_empty() {
        return vec![Check::ok(name, "none of datasetrt-mount")];
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions_of_kernels_are_read() {
        assert_eq!(version("6.8.0-31-generic"), Some((6, 8)));
        assert_eq!(version("4.18"), Some((4, 18)));
        assert_eq!(version("odd"), None);
    }
}
