//! What the daemon may do: less than whoever started it.
//!
//! Rights are taken from the threads that serve requests, before there are any: whatever they start
//! later has no more. The main thread reads nothing of a cache and keeps what unmounting takes: as
//! an ordinary user the right to run fusermount3, which is set-user-id; as root, that of umount(2).

mod calls;
mod user;

use std::io;
use std::path::PathBuf;

use landlock::{
    ABI, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, path_beneath_rules,
};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

pub use user::User;

/// The newest Landlock whose rules we know; an older kernel enforces what it knows of them.
const LANDLOCK: ABI = ABI::V5;

/// What is taken from the daemon.
#[derive(Clone, Debug, Default)]
pub struct Confinement {
    /// Whom it becomes once it has mounted as root.
    pub user: Option<User>,
    /// Folders below which its threads may change files, if not everywhere. Those that do not exist do
    /// not matter.
    pub writable: Option<Vec<PathBuf>>,
    /// Whether its threads may use only the calls of the system that serving takes.
    pub filter_calls: bool,
    /// Whether it is an error when the system cannot do this.
    pub must_hold: bool,
}

impl Confinement {
    /// Confines the process, to be called by its main thread once everything is open. Only the right to
    /// unmount is kept by this thread.
    pub(super) fn confine_process(&self) -> io::Result<()> {
        match &self.user {
            Some(user) => user.become_for_good(),
            None => Ok(()),
        }
    }

    /// Confines this thread and all that it will start.
    ///
    /// # Errors
    /// When rights cannot be given up; with [`Self::must_hold`] also when the system cannot confine it.
    pub fn confine_thread(&self) -> io::Result<()> {
        rustix::thread::set_no_new_privs(true)?;
        if self.user.is_some() {
            let none = CapabilitySet::empty();
            set_capabilities(
                None,
                CapabilitySets {
                    effective: none,
                    permitted: none,
                    inheritable: none,
                },
            )?;
        }
        if let Some(writable) = &self.writable {
            match restrict_files(writable) {
                Ok(RulesetStatus::NotEnforced) => self.lacks(
                    "no Landlock here: the kernel lacks it (5.13 has it), or a filter of calls forbids it",
                )?,
                Ok(status) => log::debug!("sandbox: Landlock is {status:?}"),
                Err(error) => self.lacks(&format!("no Landlock: {error}"))?,
            }
        }
        if self.filter_calls {
            match calls::restrict() {
                Ok(()) => log::debug!("sandbox: calls of the system are filtered"),
                Err(error) => {
                    self.lacks(&format!("calls of the system are not filtered: {error}"))?;
                }
            }
        }
        Ok(())
    }

    /// Says what the system cannot do, or fails because of it.
    fn lacks(&self, what: &str) -> io::Result<()> {
        if self.must_hold {
            return Err(io::Error::other(format!("--sandbox=full: {what}")));
        }
        log::warn!("sandbox: {what}");
        Ok(())
    }
}

/// From now on this thread reads files as before, and makes, changes or removes them below `writable`
/// alone.
fn restrict_files(writable: &[PathBuf]) -> Result<RulesetStatus, landlock::RulesetError> {
    let change = AccessFs::from_write(LANDLOCK);
    let enforced = Ruleset::default()
        .handle_access(change | AccessFs::Execute)?
        .create()?
        .add_rules(path_beneath_rules(writable, change))?
        .restrict_self()?;
    Ok(enforced.ruleset)
}

/// As root nothing that this thread starts may gain rights by running a program: unmounting takes none
/// then, as it does for an ordinary user. To be called before other threads are started.
pub(super) fn gain_nothing() -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        rustix::thread::set_no_new_privs(true)?;
    }
    Ok(())
}

/// Whether this thread may call mount(2) and umount(2).
pub(super) fn may_mount() -> bool {
    rustix::process::geteuid().is_root()
        || capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpListener;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_confined_thread_reads_everything_writes_where_it_may_and_does_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("inside"), dir.path().join("outside"));
        for folder in [&inside, &outside] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("file"), "text").unwrap();
        }
        let confinement = Confinement {
            user: None,
            writable: Some(vec![inside.clone(), "/does/not/exist".into()]),
            filter_calls: true,
            must_hold: false,
        };
        let denied = |result: io::Result<()>, errno| {
            assert_eq!(result.unwrap_err().raw_os_error(), Some(errno));
        };
        std::thread::scope(|scope| {
            let confined = scope.spawn(|| {
                let files = restrict_files(confinement.writable.as_ref().unwrap());
                confinement.confine_thread().unwrap();
                for folder in [&inside, &outside] {
                    assert_eq!(fs::read(folder.join("file")).unwrap(), b"text");
                    assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
                }
                fs::write(inside.join("new"), "text").unwrap();
                fs::rename(inside.join("new"), inside.join("file")).unwrap();
                let nosys = rustix::io::Errno::NOSYS.raw_os_error();
                let access = rustix::io::Errno::ACCESS.raw_os_error();
                denied(TcpListener::bind("127.0.0.1:0").map(drop), nosys);
                assert!(Command::new("/bin/true").status().is_err());
                if !matches!(files, Ok(RulesetStatus::FullyEnforced)) {
                    eprintln!("SKIPPED: no Landlock here: {files:?}");
                    return;
                }
                denied(fs::write(outside.join("new"), "text"), access);
                denied(fs::write(outside.join("file"), "text"), access);
                denied(fs::remove_file(outside.join("file")), access);
                // Also in threads that are started later.
                let later = std::thread::spawn(move || fs::write(outside.join("new"), "text"));
                denied(later.join().unwrap(), access);
            });
            confined.join().unwrap();
        });
        // Nobody else is concerned.
        fs::write(dir.path().join("new"), "text").unwrap();
        assert!(Command::new("/bin/true").status().unwrap().success());
    }
}
