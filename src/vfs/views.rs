//! `/views`: the samples under names made of their metadata. A file of a view is the sample's own
//! node, so that nothing is copied and pages are shared.

mod build;
mod collisions;
mod corpus;
mod evict;
mod folders;
mod held;
mod index;
mod lines;
mod listing;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;

use self::corpus::Corpus;
use self::folders::TOP;
use self::held::{HeldIndex, Unbuilt};
use self::index::{Named, Names, ViewIndex};
use super::access::Permissions;
use super::caches::Caches;
use super::generated::Generated;
use super::in_flight::takes_long;
use super::inodes::MAX_VIEWS;
use super::node::Node;
use super::{Attr, FileKind, Ino, Vfs, VfsError, VfsOptions, ViewMetadata};
use crate::dataset::Entry;
use crate::error::{Error, Result};
use crate::parallel::in_parallel;
use crate::view::{OnCollision, Subject, View, automatic};

/// The file at the top of each view that tells loaders the metadata.
pub(super) const LINES_FILE: &str = "metadata.jsonl";

/// The views of one mount.
#[derive(Debug)]
pub(super) struct Views {
    budget: usize,
    /// Counts the ticks.
    clock: AtomicU64,
    /// Views that were built or dropped.
    changes: AtomicU64,
    corpus: Corpus,
    list: Vec<ShownView>,
    by_name: HashMap<String, usize>,
    lines: ViewMetadata,
}

#[derive(Debug)]
struct ShownView {
    view: View,
    permissions: ArcSwap<Permissions>,
    index: HeldIndex,
    lines: Generated,
}

/// A view with its index.
struct Built<'a> {
    shown: &'a ShownView,
    index: Arc<ViewIndex>,
}

impl Views {
    /// The views asked for, and those that are there without. Views that could be refused by what
    /// the metadata holds are built now.
    ///
    /// # Errors
    /// [`Error::View`] for a view that was asked for and cannot be shown.
    pub(super) fn new(caches: &Caches, options: &VfsOptions) -> Result<Self> {
        let entries: Vec<Entry> = caches.iter().map(|mounted| mounted.entry.clone()).collect();
        let corpus = match Corpus::new(entries) {
            Some(corpus) => corpus,
            None => match options.views.first() {
                Some(spec) => {
                    return Err(Error::View {
                        view: spec.name().to_owned(),
                        reason: format!("expected fewer than {} samples, found more", u32::MAX),
                    });
                }
                None => {
                    log::warn!("no views are shown: there are {} samples or more", u32::MAX);
                    Corpus::none()
                }
            },
        };
        let entries = corpus.entries();
        let mut taken = HashSet::new();
        let mut views = Vec::new();
        for spec in &options.views {
            if !taken.insert(spec.name()) {
                return Err(Error::View {
                    view: spec.name().to_owned(),
                    reason: "expected each view's name once, found it twice".to_owned(),
                });
            }
            views.push(View::bind(spec.clone(), entries, options.on_collision)?);
        }
        let asked = views.len();
        if options.auto_views {
            views.extend(automatic(entries, &taken));
        }
        if views.len() > MAX_VIEWS {
            log::warn!(
                "only the first {MAX_VIEWS} of {} views are shown",
                views.len()
            );
            views.truncate(MAX_VIEWS);
        }
        let list: Vec<_> = views
            .into_iter()
            .map(|view| ShownView {
                permissions: ArcSwap::from_pointee(shown_permissions(&view, caches, options)),
                view,
                index: HeldIndex::default(),
                lines: Generated::default(),
            })
            .collect();
        let by_name = list.iter().enumerate();
        let views = Self {
            budget: evict::budget(options.cache_memory),
            clock: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            by_name: by_name
                .map(|(n, shown)| (shown.view.name().to_owned(), n))
                .collect(),
            corpus,
            list,
            lines: options.view_metadata,
        };
        views.refuse_what_fails(asked)?;
        Ok(views)
    }

    /// Builds those of the first `asked` views that could be refused, so that they are refused now.
    fn refuse_what_fails(&self, asked: usize) -> Result<()> {
        let failures = in_parallel(asked, |n| {
            let shown = self.list.get(n)?;
            let view = &shown.view;
            let may_fail = view.depends_on_values(self.corpus.entries())
                || view.template().starts_with(LINES_FILE);
            if view.on_collision() == OnCollision::Suffix || !may_fail {
                return None;
            }
            let (built, _) = build(self, shown);
            match built {
                Ok(index) => {
                    // It is the first one.
                    let _ = shown.index.keep(index);
                    None
                }
                Err(error) => Some(error),
            }
        });
        match failures.into_iter().flatten().next() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn names<'a>(&'a self, shown: &'a ShownView) -> Names<'a> {
        Names::new(&shown.view, &self.corpus)
    }

    /// In how many views the sample is shown.
    pub(super) fn links(&self, cache: usize, sample: u64) -> u32 {
        let Some(entry) = self.corpus.entries().get(cache) else {
            return 0;
        };
        let subject = Subject {
            cache,
            entry,
            sample,
        };
        let shown = self.list.iter().filter(|shown| shown.view.shows(subject));
        u32::try_from(shown.count()).unwrap_or(u32::MAX - 1)
    }

    /// Most folders that each view can have.
    pub(super) fn folder_bounds(&self) -> Vec<u64> {
        let entries = self.corpus.entries();
        let bounds = self.list.iter();
        bounds
            .map(|shown| shown.view.folder_bound(entries))
            .collect()
    }

    pub(super) fn permissions(&self, view: u32) -> Option<Permissions> {
        Some(**self.shown(view)?.permissions.load())
    }

    /// Takes what the caches show now.
    pub(super) fn take_permissions(&self, caches: &Caches, options: &VfsOptions) {
        for shown in &self.list {
            let now = shown_permissions(&shown.view, caches, options);
            shown.permissions.store(Arc::new(now));
        }
    }

    fn shown(&self, view: u32) -> Option<&ShownView> {
        self.list.get(usize::try_from(view).ok()?)
    }

    /// For `/.control/status`: name, template, filter and state of each view.
    pub(super) fn status(&self) -> Vec<serde_json::Value> {
        let status = self.list.iter().map(|shown| {
            let spec = shown.view.spec();
            let mut status = serde_json::json!({
                "name": spec.name(),
                "template": spec.template().text(),
                "filter": spec.filter().map(|filter| filter.text().trim()),
            });
            let (state, facts) = match (shown.index.peek(), shown.index.failure()) {
                (None, None) if shown.index.is_evicted() => ("evicted", serde_json::json!({})),
                (None, None) => ("not built yet", serde_json::json!({})),
                (None, Some(error)) => ("failed", serde_json::json!({ "error": error.chain() })),
                (Some(index), _) => (
                    "built",
                    serde_json::json!({
                        "files": index.files.len(),
                        "folders": index.folders.len(),
                        "suffixed": index.suffixed.len(),
                        "memory_bytes": index.memory(),
                    }),
                ),
            };
            if let (Some(status), serde_json::Value::Object(facts)) =
                (status.as_object_mut(), facts)
            {
                status.insert("state".to_owned(), state.into());
                status.extend(facts);
            }
            status
        });
        status.collect()
    }
}

/// Builds a view and says how many names that took.
fn build(views: &Views, shown: &ShownView) -> (Result<ViewIndex>, u64) {
    let names = views.names(shown);
    let built = build::build(&names, views.lines);
    (built, names.made())
}

/// Who may read names and metadata of a view.
fn shown_permissions(view: &View, caches: &Caches, options: &VfsOptions) -> Permissions {
    caches.shared_permissions(options, |cache| view.shows_cache(cache))
}

impl Vfs {
    fn built(&self, view: u32) -> Result<Built<'_>, VfsError> {
        let shown = self.views.shown(view).ok_or(VfsError::NotFound)?;
        let now = self.views.now();
        if let Some(index) = shown.index.get(now) {
            return Ok(Built { shown, index });
        }
        if let Some(error) = shown.index.failure() {
            return Err(VfsError::Damaged(Arc::clone(error)));
        }
        takes_long()?;
        let built = shown.index.get_or_build(now, || {
            let (built, made) = build(&self.views, shown);
            self.counters.note_names(made);
            built.inspect_err(|error| log::error!("{}", error.chain()))
        });
        self.views.note_change();
        self.views.evict_others(view);
        match built {
            Ok(index) => Ok(Built { shown, index }),
            Err(Unbuilt::Failed(error)) => Err(VfsError::Damaged(error)),
            Err(Unbuilt::Changed) => {
                let reason = "what it is made of has changed since it was first built";
                let view = shown.view.name().to_owned();
                let reason = reason.to_owned();
                Err(VfsError::Damaged(Arc::new(Error::View { view, reason })))
            }
        }
    }

    /// The view called `name`.
    pub(super) fn find_view(&self, name: &OsStr) -> Option<Node> {
        let view = *self.views.by_name.get(name.to_str()?)?;
        Some(Node::ViewDir(u32::try_from(view).ok()?, TOP))
    }

    /// Number of views.
    pub(super) fn view_count(&self) -> u64 {
        self.views.list.len() as u64
    }

    /// The folders of a view that anybody may have looked up, and its `metadata.jsonl`.
    pub(super) fn view_nodes(&self, view: u32) -> Vec<Node> {
        let shown = self.views.shown(view);
        let count = shown.map_or(1, |shown| shown.index.folder_count());
        let folders = (0..count).map(|folder| Node::ViewDir(view, folder));
        folders.chain([Node::ViewLines(view)]).collect()
    }

    /// Number and name of view number `at`.
    pub(super) fn view_entry(&self, at: usize) -> Option<(Node, &OsStr)> {
        let shown = self.views.list.get(at)?;
        let node = Node::ViewDir(u32::try_from(at).ok()?, TOP);
        Some((node, OsStr::new(shown.view.name())))
    }

    /// What is called `name` in a folder of a view.
    pub(super) fn find_in_view(
        &self,
        view: u32,
        folder: u32,
        name: &OsStr,
    ) -> Result<Option<Node>, VfsError> {
        let built = self.built(view)?;
        if !built.index.folders.exists(folder) {
            return Err(VfsError::NotFound);
        }
        if folder == TOP && name == LINES_FILE && built.index.has_lines {
            return Ok(Some(Node::ViewLines(view)));
        }
        let names = self.views.names(built.shown);
        let found = built.index.find(&names, folder, name.as_bytes());
        self.counters.note_names(names.made());
        Ok(match found {
            Some(Named::Folder(folder)) => Some(Node::ViewDir(view, folder)),
            Some(Named::File(ordinal)) => self.sample_node(ordinal),
            None => {
                // It is not there for now; the kernel must not remember that.
                self.trusted_tables(built.shown)?;
                None
            }
        })
    }

    /// Refuses as long as the metadata of a cache in the view is known to be wrong.
    fn trusted_tables(&self, shown: &ShownView) -> Result<(), VfsError> {
        let entries = self.views.corpus.entries().iter().enumerate();
        for (_, entry) in entries.filter(|(cache, _)| shown.view.shows_cache(*cache)) {
            let trusted = entry.cache.table();
            trusted.map_err(|error| VfsError::Damaged(Arc::new(error)))?;
        }
        Ok(())
    }

    fn sample_node(&self, ordinal: u32) -> Option<Node> {
        let subject = self.views.corpus.subject(ordinal)?;
        Some(Node::Sample(subject.entry.position as u64, subject.sample))
    }

    /// Attributes of a folder of a view. The view's own folder has one link, which says that its
    /// subfolders were not counted: that would build the view for whoever lists `/views`.
    pub(super) fn view_dir_attr(&self, view: u32, folder: u32) -> Result<Attr, VfsError> {
        let permissions = self.views.permissions(view).ok_or(VfsError::NotFound)?;
        let nlink = match folder {
            TOP => 1,
            _ => {
                let built = self.built(view)?;
                let folders = &built.index.folders;
                if !folders.exists(folder) {
                    return Err(VfsError::NotFound);
                }
                let subfolders = u32::try_from(folders.children(folder).len());
                subfolders.unwrap_or(0).saturating_add(2)
            }
        };
        let ino = self.ino(Node::ViewDir(view, folder));
        Ok(Attr {
            perm: permissions.dir(&self.options),
            uid: permissions.uid,
            gid: permissions.gid,
            nlink,
            ..self.plain(ino, FileKind::Directory, 0, self.newest)
        })
    }

    /// Builds the view that folder `ino` is of, so that no listing has to wait for it.
    ///
    /// # Errors
    /// [`VfsError::NotFound`], and [`VfsError::Damaged`] for a view that cannot be shown.
    pub fn opendir(&self, ino: Ino) -> Result<(), VfsError> {
        match self.node(ino)? {
            Node::ViewDir(view, _) => self.built(view).map(drop),
            _ => Ok(()),
        }
    }

    /// Whether a file over many samples has to be made before it has attributes.
    pub(super) fn is_unmade(&self, ino: Ino) -> bool {
        match self.inodes.node(ino) {
            Some(Node::JoinedTable) => !self.is_counted(&self.joined),
            Some(Node::ViewLines(view)) => self
                .views
                .shown(view)
                .is_some_and(|shown| !self.is_counted(&shown.lines)),
            _ => false,
        }
    }
}
