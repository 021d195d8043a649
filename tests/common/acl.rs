//! POSIX ACLs, as the kernel takes them.

use std::path::Path;

use rustix::fs::{XattrFlags, setxattr};

/// The ACL that lets in who has access.
pub const ACCESS: &str = "system.posix_acl_access";
/// The ACL that new files of a folder get.
pub const DEFAULT: &str = "system.posix_acl_default";

/// Gives `path` the ACL `text`, as setfacl(1) spells entries: `u::rw-,u:1000:r--,g::---,m::r--,o::---`,
/// ordered as here and with numbers. Says why not where the file system has none.
pub fn set_acl(path: &Path, kind: &str, text: &str) -> bool {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for entry in text.split(',') {
        let [what, id, bits] = entry.split(':').collect::<Vec<_>>()[..] else {
            panic!("no entry: {entry}");
        };
        let tag: u16 = match (what, id.is_empty()) {
            ("u", true) => 0x01,
            ("u", false) => 0x02,
            ("g", true) => 0x04,
            ("g", false) => 0x08,
            ("m", true) => 0x10,
            ("o", true) => 0x20,
            _ => panic!("no entry: {entry}"),
        };
        let bits = ["r", "w", "x"].map(|letter| u16::from(bits.contains(letter)));
        let bits = bits[0] << 2 | bits[1] << 1 | bits[2];
        let id: u32 = id.parse().unwrap_or(u32::MAX);
        bytes.extend(tag.to_le_bytes());
        bytes.extend(bits.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    match setxattr(path, kind, &bytes, XattrFlags::empty()) {
        Ok(()) => true,
        Err(error) => {
            eprintln!("SKIPPED: no ACLs on {}: {error}", path.display());
            false
        }
    }
}
