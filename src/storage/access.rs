//! Who may read a file or search a folder, as its owner, its mode and its POSIX ACL say.

use std::path::Path;

use rustix::io::Errno;

use super::{FileIdentity, stat};
use crate::error::Result;

/// What is asked of a file or folder.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Right {
    /// To read a file.
    Read,
    /// To reach what lies in a folder.
    Search,
}

impl Right {
    /// Its bit of three.
    fn bit(self) -> u32 {
        match self {
            Self::Read => 0o4,
            Self::Search => 0o1,
        }
    }
}

/// Whom a file or folder lets in.
///
/// The questions are about every user who could be meant, because nobody knows here which groups a
/// user is in: the answer is yes only when all of them are let in.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Access {
    owner: (u32, bool),
    group: (u32, bool),
    others: bool,
    /// Of the ACL, by number; the mask is applied.
    users: Vec<(u32, bool)>,
    groups: Vec<(u32, bool)>,
}

impl Access {
    /// Lets nobody in.
    #[must_use]
    pub fn nobody() -> Self {
        Self {
            owner: (0, false),
            group: (0, false),
            others: false,
            users: Vec::new(),
            groups: Vec::new(),
        }
    }

    /// Whose it is: user and group.
    #[must_use]
    pub fn ids(&self) -> (u32, u32) {
        (self.owner.0, self.group.0)
    }

    /// Whether user `uid` is let in, whatever groups that user is in.
    #[must_use]
    pub fn lets_user(&self, uid: u32) -> bool {
        if self.owner.0 == uid {
            return self.owner.1;
        }
        match self.users.iter().find(|(user, _)| *user == uid) {
            Some((_, may)) => *may,
            None => self.lets_any_group() && self.others,
        }
    }

    /// Whether all members of group `gid` but user `uid` are let in.
    #[must_use]
    pub fn lets_group(&self, gid: u32, uid: u32) -> bool {
        // One entry of a user's groups that lets in is enough.
        let mut own = self.all_groups().filter(|(group, _)| *group == gid);
        let members = match own.next() {
            Some((_, true)) => true,
            Some((_, false)) => own.any(|(_, may)| may),
            None => self.lets_any_group() && self.others,
        };
        members && self.lets_users_but(uid)
    }

    /// Whether all users are let in who are neither `uid` nor in group `gid`.
    #[must_use]
    pub fn lets_others(&self, uid: u32, gid: u32) -> bool {
        let mut strange = self.all_groups().filter(|(group, _)| *group != gid);
        self.others && strange.all(|(_, may)| may) && self.lets_users_but(uid)
    }

    /// Whether each user that is named here is let in, but for `uid`.
    fn lets_users_but(&self, uid: u32) -> bool {
        let mut named = std::iter::once(self.owner).chain(self.users.iter().copied());
        named.all(|(user, may)| may || user == uid)
    }

    fn lets_any_group(&self) -> bool {
        self.all_groups().all(|(_, may)| may)
    }

    fn all_groups(&self) -> impl Iterator<Item = (u32, bool)> {
        std::iter::once(self.group).chain(self.groups.iter().copied())
    }
}

/// Who has `right` on `path`, links followed, and which file that is.
///
/// # Errors
/// [`crate::error::Error::Io`]. An ACL that cannot be read or understood is no error: it lets nobody
/// in but the owner.
pub fn access(path: &Path, right: Right) -> Result<(FileIdentity, Access)> {
    let info = stat(path)?;
    let may = |class: u32| (info.mode >> class) & right.bit() != 0;
    let mut access = Access {
        owner: (info.uid, may(6)),
        group: (info.gid, may(3)),
        others: may(0),
        users: Vec::new(),
        groups: Vec::new(),
    };
    let mut few = [0; FEW];
    let acl = match rustix::fs::getxattr(path, ACL, &mut few) {
        Ok(len) => access.apply_acl(few.get(..len).unwrap_or_default(), right),
        // There is none, or the file system has none.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Some(()),
        Err(Errno::RANGE) => {
            let mut many = vec![0; XATTR_MAX];
            let read = rustix::fs::getxattr(path, ACL, &mut many[..]);
            read.ok()
                .and_then(|len| access.apply_acl(many.get(..len).unwrap_or_default(), right))
        }
        Err(_) => None,
    };
    if acl.is_none() {
        (access.group.1, access.others) = (false, false);
        access.users.clear();
        access.groups.clear();
    }
    Ok((info.identity, access))
}

const ACL: &str = "system.posix_acl_access";
/// Most bytes that the kernel gives for an attribute.
const XATTR_MAX: usize = 64 << 10;
/// Room for an ACL of 64 entries.
const FEW: usize = HEADER + 64 * ENTRY;

/// `struct posix_acl_xattr_header` and `struct posix_acl_xattr_entry` of Linux, little endian: a
/// version; then tag, permissions and id of each entry.
const HEADER: usize = 4;
const ENTRY: usize = 8;
const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

impl Access {
    /// Takes what the ACL says in the place of what the mode says; `None` when it makes no sense.
    fn apply_acl(&mut self, acl: &[u8], right: Right) -> Option<()> {
        let (version, entries) = acl.split_first_chunk::<HEADER>()?;
        if u32::from_le_bytes(*version) != VERSION || entries.len() % ENTRY != 0 {
            return None;
        }
        let entries = entries.chunks_exact(ENTRY).map(|entry| {
            let (tag, rest) = entry.split_first_chunk()?;
            let (bits, id) = rest.split_first_chunk()?;
            let may = u32::from(u16::from_le_bytes(*bits)) & right.bit() != 0;
            let id = u32::from_le_bytes(*id.first_chunk()?);
            Some((u16::from_le_bytes(*tag), id, may))
        });
        // An ACL without named entries has no mask.
        let mut mask = true;
        for entry in entries {
            match entry? {
                (USER_OBJ, _, may) => self.owner.1 = may,
                (USER, id, may) => self.users.push((id, may)),
                (GROUP_OBJ, _, may) => self.group.1 = may,
                (GROUP, id, may) => self.groups.push((id, may)),
                (MASK, _, may) => mask = may,
                (OTHER, _, may) => self.others = may,
                _ => return None,
            }
        }
        let masked = self.users.iter_mut().chain(&mut self.groups);
        masked
            .chain(std::iter::once(&mut self.group))
            .for_each(|(_, may)| *may &= mask);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ACL as the kernel gives it.
    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, bits, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(bits.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    /// Of a file of user 1 and group 10, with this mode in all classes, which the ACL replaces.
    fn with_acl(entries: &[(u16, u16, u32)]) -> Access {
        let mut access = Access {
            owner: (1, true),
            group: (10, true),
            others: true,
            ..Access::nobody()
        };
        access.apply_acl(&acl(entries), Right::Read).unwrap();
        access
    }

    const BASE: [(u16, u16, u32); 2] = [(USER_OBJ, 6, u32::MAX), (MASK, 4, u32::MAX)];

    /// Whether a user in these groups is let in, by the algorithm of acl(5).
    fn may(access: &Access, uid: u32, gids: &[u32]) -> bool {
        if uid == access.owner.0 {
            return access.owner.1;
        }
        if let Some((_, may)) = access.users.iter().find(|(user, _)| *user == uid) {
            return *may;
        }
        let mut own = access
            .all_groups()
            .filter(|(group, _)| gids.contains(group));
        match own.next() {
            Some((_, first)) => first || own.any(|(_, may)| may),
            None => access.others,
        }
    }

    #[test]
    fn a_class_is_let_in_only_when_each_user_who_could_be_meant_is() {
        // All lists of two users and two groups of an ACL, beside owner, group and others.
        for bits in 0..1 << 8_u32 {
            let on = |n: u32| bits & (1 << n) != 0;
            let mut access = Access {
                owner: (1, on(0)),
                group: (10, on(1)),
                others: on(2),
                ..Access::nobody()
            };
            if on(3) {
                access.users.push((2, on(4)));
            }
            if on(5) {
                access.groups.push((20, on(6)));
            }
            if on(7) {
                access.groups.push((10, on(4)));
            }
            let all_groups = [10, 20, 30, 0].into_iter();
            let lists = (0..8_u32).map(|list| {
                let own = all_groups.clone().take(3).enumerate();
                let own = own.filter(|(n, _)| list & (1 << n) != 0);
                own.map(|(_, gid)| gid).collect::<Vec<_>>()
            });
            let lists: Vec<_> = lists.collect();
            for shown_uid in [0, 1, 2, 3] {
                let user = lists.iter().all(|gids| may(&access, shown_uid, gids));
                assert!(
                    !access.lets_user(shown_uid) || user,
                    "{access:?} {shown_uid}"
                );
                for shown_gid in [10, 20, 30] {
                    for (uid, gids) in
                        (0..5).flat_map(|uid| lists.iter().map(move |gids| (uid, gids)))
                    {
                        let member = gids.contains(&shown_gid);
                        let shown = match uid == shown_uid {
                            true => access.lets_user(shown_uid),
                            false if member => access.lets_group(shown_gid, shown_uid),
                            false => access.lets_others(shown_uid, shown_gid),
                        };
                        assert!(
                            !shown || may(&access, uid, gids),
                            "{access:?} {uid} {gids:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_mask_is_no_right_of_the_group() {
        let access = with_acl(&[
            BASE[0],
            (USER, 4, 5),
            (GROUP_OBJ, 0, 0),
            BASE[1],
            (OTHER, 0, 0),
        ]);
        assert!(access.lets_user(1) && access.lets_user(5));
        assert!(!access.lets_group(10, 1) && !access.lets_others(1, 10));
        // It takes from named entries and from the group.
        let access = with_acl(&[
            BASE[0],
            (USER, 7, 5),
            (GROUP_OBJ, 7, 0),
            (MASK, 2, 0),
            (OTHER, 4, 0),
        ]);
        assert!(!access.lets_user(5) && !access.lets_group(10, 1));
    }

    #[test]
    fn an_acl_that_makes_no_sense_is_not_guessed_at() {
        let whole = acl(&[BASE[0], (GROUP_OBJ, 4, 0), (OTHER, 4, 0)]);
        for len in 0..whole.len() {
            let cut = Access::nobody().apply_acl(&whole[..len], Right::Read);
            assert_eq!(
                cut.is_some(),
                len >= HEADER && (len - HEADER).is_multiple_of(ENTRY),
                "{len}"
            );
        }
        let mut strange = whole.clone();
        strange[0] = 3;
        assert!(Access::nobody().apply_acl(&strange, Right::Read).is_none());
        let strange = acl(&[(0x40, 7, 0)]);
        assert!(Access::nobody().apply_acl(&strange, Right::Read).is_none());
    }
}
