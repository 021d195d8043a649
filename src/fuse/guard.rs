//! One request at a time, with its panics kept in.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fuser::{Errno, INodeNo};

use super::errno::{Call, report};
use crate::vfs::{Vfs, VfsError};

/// A [`Vfs`] behind a panic guard.
pub(super) struct Guarded(Arc<Vfs>);

impl Guarded {
    pub(super) fn new(vfs: Arc<Vfs>) -> Self {
        Self(vfs)
    }

    /// Runs one request. fuser has no panic guard: a panic that got through would end the event
    /// thread for good and leave a mount that answers nobody.
    pub(super) fn answer<T>(
        &self,
        name: &'static str,
        ino: INodeNo,
        serve: impl FnOnce(&Vfs) -> Result<T, VfsError>,
    ) -> Result<T, Errno> {
        let call = Call { name, ino };
        match catch_unwind(AssertUnwindSafe(|| serve(&self.0))) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(report(call, &error)),
            Err(panic) => {
                self.0.note_panic();
                log::error!("{call}: internal error: {}", panic_text(panic.as_ref()));
                Err(Errno::EIO)
            }
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("panic without a message")
}
