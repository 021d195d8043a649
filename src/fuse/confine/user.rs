//! Becoming another user than root.

use std::ffi::CString;
use std::io;

use nix::unistd::{self, Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities};

use crate::error::{Error, Result};

/// Somebody whom the daemon can become.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct User {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl User {
    /// The user of this name or number. A number that nobody has stands for itself, with a group of
    /// the same number and no others.
    ///
    /// # Errors
    /// [`Error::Refused`] for root, for an unknown name, and when this process is not root's.
    pub fn find(named: &str) -> Result<Self> {
        let refused = |reason: String| Error::refused("--user", reason);
        if !rustix::process::geteuid().is_root() {
            let reason = "only root can become another user: start it as that user instead";
            return Err(refused(reason.to_owned()));
        }
        let known = match named.parse() {
            Ok(number) => unistd::User::from_uid(Uid::from_raw(number)),
            Err(_) => unistd::User::from_name(named),
        };
        let known = known.map_err(|error| Error::io("--user", "look up", error.into()))?;
        let user = match (known, named.parse()) {
            (Some(known), _) => Self {
                uid: known.uid,
                gid: known.gid,
                groups: groups_of(&known),
            },
            (None, Ok(number)) => Self {
                uid: Uid::from_raw(number),
                gid: Gid::from_raw(number),
                groups: Vec::new(),
            },
            (None, Err(_)) => {
                return Err(refused(format!("there is no user called `{named}`")));
            }
        };
        match user.uid.is_root() {
            true => {
                let reason = "root is whom the daemon is not to be: leave --user out";
                Err(refused(reason.to_owned()))
            }
            false => Ok(user),
        }
    }

    /// Runs `work` with what this user may do: what is opened meanwhile, this user can open later.
    ///
    /// # Errors
    /// When this process may not become the user, or not root again.
    pub fn acting<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        /// Root again, also after a panic.
        struct Back {
            gid: Gid,
            groups: Vec<Gid>,
            done: bool,
        }
        impl Back {
            fn go(&mut self) -> io::Result<()> {
                self.done = true;
                unistd::seteuid(Uid::from_raw(0))?;
                unistd::setegid(self.gid)?;
                Ok(unistd::setgroups(&self.groups)?)
            }
        }
        impl Drop for Back {
            fn drop(&mut self) {
                if !self.done
                    && let Err(error) = self.go()
                {
                    log::error!("cannot become root again: {error}");
                }
            }
        }
        let mut back = Back {
            gid: unistd::getegid(),
            groups: unistd::getgroups()?,
            done: false,
        };
        unistd::setgroups(&self.groups)?;
        unistd::setegid(self.gid)?;
        unistd::seteuid(self.uid)?;
        let result = work();
        back.go().map(|()| result)
    }

    /// Makes the whole process this user's. This thread alone keeps one right of root: to unmount.
    pub(super) fn become_for_good(&self) -> io::Result<()> {
        set_keep_capabilities(true)?;
        unistd::setgroups(&self.groups)?;
        unistd::setresgid(self.gid, self.gid, self.gid)?;
        unistd::setresuid(self.uid, self.uid, self.uid)?;
        set_keep_capabilities(false)?;
        let kept = CapabilitySet::SYS_ADMIN;
        let sets = CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        };
        Ok(set_capabilities(None, sets)?)
    }
}

fn groups_of(user: &unistd::User) -> Vec<Gid> {
    CString::new(user.name.as_bytes())
        .ok()
        .and_then(|name| unistd::getgrouplist(&name, user.gid).ok())
        .unwrap_or_default()
}
