//! What the kernel keeps, and is not right any more.

use fuser::INodeNo;

use crate::vfs::{Ino, Stale};

/// Tells the kernel to forget what it keeps of a file.
#[derive(Clone, Debug)]
pub struct Notifier {
    all: fuser::Notifier,
    control: Option<fuser::Notifier>,
}

impl Notifier {
    /// For the mount of all files, and that of the control files, where they have one.
    pub(super) fn new(all: fuser::Notifier, control: Option<fuser::Notifier>) -> Self {
        Self { all, control }
    }

    /// Drops what the kernel keeps of `ino` and is `stale`. Pages are not to be dropped by whoever is
    /// serving a request about the same inode: the kernel may wait for that request.
    pub fn forget(&self, ino: Ino, stale: Stale) {
        // From a negative offset on there are no pages.
        let offset = match stale {
            Stale::Attributes => -1,
            Stale::Everything => 0,
        };
        for mount in std::iter::once(&self.all).chain(&self.control) {
            if let Err(error) = mount.inval_inode(INodeNo(ino.0), offset, 0) {
                log::debug!("the kernel did not drop inode {}: {error}", ino.0);
            }
        }
    }
}
