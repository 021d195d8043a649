//! `datasetrt umount`: takes a mount away, or says who uses it.

mod holders;

use std::env;
use std::path::{self, Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::output::{count, plain};
use super::tool::PROGRAM;
use super::{EXIT_REFUSED, refuse, say};
use crate::error::{Error, Result};
use crate::fuse::{self, Answer, MountEntry, Unmount};
use holders::{Holders, Uses};

// One line a paragraph: clap breaks lines where the terminal ends.
const DETAILS: &str = "\
The daemon ends by itself once its mount is gone. A dead mount, whose daemon was killed, is \
unmounted just so.

Where programs use the mount, nothing is changed and each of them is named: its process id, user and \
command, and the file or folder that it has open, mapped, or works in. Other users' processes can \
be seen by root only.

Exit status: 0 unmounted; 1 in use, not mounted, or refused, with the reason on stderr; 2 wrong usage.

Examples:
  datasetrt umount /mnt/data
  datasetrt umount --lazy /mnt/data
      Take it out of sight now; what is open can be read on until it is closed";

/// How long a mount may take to show that it is dead.
const LOOK: Duration = Duration::from_secs(2);

/// How long an unseen user may be one that looks in passing, and how often that is tried.
const PASSING: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

/// Unmount, or name the processes that use the mount
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub struct Args {
    /// Where it is mounted
    mountpoint: PathBuf,

    /// Unmount although it is in use: nobody finds it any more, and it ends when the last user does
    #[arg(short, long)]
    lazy: bool,

    /// Succeed also when nothing is mounted there
    #[arg(long)]
    if_mounted: bool,
}

impl Args {
    /// Runs the command.
    #[must_use]
    pub fn run(&self) -> ExitCode {
        match self.unmount() {
            Ok(code) => code,
            Err(error) => refuse(PROGRAM, &error.chain(), false),
        }
    }

    fn unmount(&self) -> Result<ExitCode> {
        let at = path::absolute(&self.mountpoint)
            .map_err(|e| Error::io(&self.mountpoint, "make this an absolute path", e))?;
        let Some(mount) = find(&at)? else {
            fuse::clear_control_of(&fuse::resolve(&at).unwrap_or_else(|_| at.clone()))?;
            if self.if_mounted {
                return Ok(ExitCode::SUCCESS);
            }
            return Err(Error::refused(at, "nothing is mounted here"));
        };
        let at = mount.mountpoint.as_path();
        if !mount.is_ours() {
            let what = mount.fstype.to_string_lossy();
            let reason =
                format!("a mount of type {what} lies here, not a datasetrt-mount: see umount(8)");
            return Err(Error::refused(at, reason));
        }
        // Whoever calls this from inside the mount is one of its users, and we are not to be another.
        env::set_current_dir("/").map_err(|e| Error::io("/", "change to this folder", e))?;
        let users = self.lazy.then(|| holders::of(&mount));
        let dead = fuse::answer(at, LOOK) == Answer::Dead;
        match self.take_away(&mount)? {
            Unmount::Done => {
                if dead {
                    // A daemon that lives unmounts them itself.
                    fuse::clear_control_of(at)?;
                }
                if let Some(users) = users.filter(|users| !users.found.is_empty()) {
                    let still = processes(users.found.len() as u64);
                    say(format_args!(
                        "{PROGRAM}: {}: unmounted; still in use by {still}:",
                        at.display()
                    ));
                    list(&users);
                }
                Ok(ExitCode::SUCCESS)
            }
            Unmount::Busy => {
                busy(at, &holders::of(&mount));
                Ok(ExitCode::from(EXIT_REFUSED))
            }
        }
    }

    /// Unmounts. A look by another program, such as a monitor, makes the mount busy for a moment, and
    /// nobody can be seen who does: that is waited for.
    fn take_away(&self, mount: &MountEntry) -> Result<Unmount> {
        let until = Instant::now() + PASSING;
        loop {
            let result = fuse::unmount(&mount.mountpoint, self.lazy)?;
            let is_passing = || {
                let users = holders::of(mount);
                users.found.is_empty() && users.mounts.is_empty()
            };
            match result {
                Unmount::Busy if Instant::now() < until && is_passing() => sleep(PAUSE),
                result => return Ok(result),
            }
        }
    }
}

/// The mount at `path`, which is absolute. A mount that hangs is found by its name alone.
fn find(path: &Path) -> Result<Option<MountEntry>> {
    if let Some(mount) = fuse::top_at(path)? {
        return Ok(Some(mount));
    }
    match fuse::resolve(path) {
        Ok(resolved) => fuse::top_at(&resolved),
        Err(_) if path.symlink_metadata().is_err() => Ok(None),
        Err(error) => Err(error),
    }
}

fn busy(at: &Path, users: &Holders) {
    let shown = at.display();
    if users.found.is_empty() && users.mounts.is_empty() {
        say(format_args!(
            "{PROGRAM}: error: {shown}: in use, but nobody can be seen that uses it"
        ));
    } else {
        say(format_args!("{PROGRAM}: error: {shown}: in use:"));
    }
    list(users);
    say(format_args!(
        "{PROGRAM}: end these first, or unmount lazily: {PROGRAM} umount --lazy {}",
        fuse::quoted(at)
    ));
}

fn list(users: &Holders) {
    for holder in &users.found {
        let how = match holder.uses {
            Uses::Folder => "works in",
            Uses::Root => "has as its root",
            Uses::Program => "runs",
            Uses::Open => "has open",
            Uses::Mapped => "has mapped",
        };
        say(format_args!(
            "  process {} ({}, user {}) {how} {}",
            holder.pid,
            plain(&holder.command),
            plain(&holder.user),
            plain(&holder.path.to_string_lossy())
        ));
    }
    for mount in &users.mounts {
        say(format_args!(
            "  another mount lies in it: {}",
            plain(&mount.to_string_lossy())
        ));
    }
    if users.hidden > 0 {
        say(format_args!(
            "  {} of other users could not be looked at: run this as root to see them",
            processes(users.hidden)
        ));
    }
}

fn processes(number: u64) -> String {
    let plural = if number == 1 { "" } else { "es" };
    format!("{} process{plural}", count(number))
}
