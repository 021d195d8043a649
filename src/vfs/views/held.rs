//! The index of one view: built at the first use by one thread, while others wait, dropped when nobody
//! uses it, and built again the same.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwapOption;

use super::index::ViewIndex;
use crate::error::Error;

/// What a build must give again: the kernel knows folders by their numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Shape {
    folders: u32,
    sum: u64,
}

impl Shape {
    fn of(index: &ViewIndex) -> Self {
        let mut hasher = DefaultHasher::new();
        index.folders.hash_shape(&mut hasher);
        (&index.files, &index.suffixed, index.has_lines).hash(&mut hasher);
        Self {
            folders: u32::try_from(index.folders.len()).unwrap_or(u32::MAX),
            sum: hasher.finish(),
        }
    }
}

/// Why a view cannot be shown.
#[derive(Debug)]
pub(super) enum Unbuilt {
    /// What failed at first stays so.
    Failed(Arc<Error>),
    /// It was built before, and what it is made of has changed since.
    Changed,
}

#[derive(Debug, Default)]
pub(super) struct HeldIndex {
    index: ArcSwapOption<ViewIndex>,
    /// Held while it is built.
    building: Mutex<()>,
    failed: OnceLock<Arc<Error>>,
    first: OnceLock<Shape>,
    /// When it was last used.
    used: AtomicU64,
}

impl HeldIndex {
    /// The index if it is here, for a use at `now`.
    pub(super) fn get(&self, now: u64) -> Option<Arc<ViewIndex>> {
        self.used.store(now, Ordering::Relaxed);
        self.index.load_full()
    }

    /// The index if it is here, for a look at it.
    pub(super) fn peek(&self) -> Option<Arc<ViewIndex>> {
        self.index.load_full()
    }

    pub(super) fn failure(&self) -> Option<&Arc<Error>> {
        self.failed.get()
    }

    /// Whether it was built and dropped.
    pub(super) fn is_evicted(&self) -> bool {
        self.first.get().is_some()
    }

    /// Folders that anybody may have heard of, at least the top one.
    pub(super) fn folder_count(&self) -> u32 {
        self.first.get().map_or(1, |shape| shape.folders)
    }

    /// The index, which `build` builds if it is not here.
    pub(super) fn get_or_build(
        &self,
        now: u64,
        build: impl FnOnce() -> Result<ViewIndex, Error>,
    ) -> Result<Arc<ViewIndex>, Unbuilt> {
        let _turn = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = self.get(now) {
            return Ok(index);
        }
        if let Some(error) = self.failed.get() {
            return Err(Unbuilt::Failed(Arc::clone(error)));
        }
        match build() {
            Ok(index) => self.keep(index),
            Err(_) if self.is_evicted() => Err(Unbuilt::Changed),
            Err(error) => {
                let error = self.failed.get_or_init(|| Arc::new(error));
                Err(Unbuilt::Failed(Arc::clone(error)))
            }
        }
    }

    /// Takes an index that was built.
    pub(super) fn keep(&self, index: ViewIndex) -> Result<Arc<ViewIndex>, Unbuilt> {
        let shape = Shape::of(&index);
        if *self.first.get_or_init(|| shape) != shape {
            return Err(Unbuilt::Changed);
        }
        let index = Arc::new(index);
        self.index.store(Some(Arc::clone(&index)));
        Ok(index)
    }

    /// When it was last used, and its bytes, if it is here.
    pub(super) fn held(&self) -> Option<(u64, usize)> {
        let index = self.peek()?;
        Some((self.used.load(Ordering::Relaxed), index.memory()))
    }

    /// Drops it; who uses it at the moment keeps it that long.
    pub(super) fn evict(&self) {
        self.index.store(None);
    }
}
