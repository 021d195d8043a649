//! The folders of a view, in about thirty bytes each: no name is kept. A folder's name is that
//! component of the path of the first sample in it.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

/// Number of the view's own folder.
pub(super) const TOP: u32 = 0;

/// Folders by number, numbered in the order in which the samples lead to them.
#[derive(Debug)]
pub(super) struct Folders {
    hasher: RandomState,
    folders: Vec<Folder>,
    /// Open addressing by `hash`: a folder's number plus one, 0 for a free place.
    table: Vec<u32>,
    /// Subfolders of all folders, by parent; see `children_end`.
    children: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Folder {
    parent: u32,
    /// Ordinal of a sample below it.
    sample: u32,
    hash: u32,
    /// Ends of its subfolders in `children` and of its files in the view's list.
    children_end: u32,
    files_end: u32,
    /// Number of components of its path.
    depth: u16,
}

impl Folders {
    pub(super) fn new(hasher: RandomState) -> Self {
        let top = Folder {
            parent: TOP,
            sample: 0,
            hash: 0,
            children_end: 0,
            files_end: 0,
            depth: 0,
        };
        Self {
            hasher,
            folders: vec![top],
            table: vec![0; 16],
            children: Vec::new(),
        }
    }

    /// Hashes what the folders are, by number, and how they lie; not how they are looked up.
    pub(super) fn hash_shape(&self, hasher: &mut impl Hasher) {
        for folder in &self.folders {
            let ends = (folder.children_end, folder.files_end);
            (folder.parent, folder.sample, folder.depth, ends).hash(hasher);
        }
        self.children.hash(hasher);
    }

    /// Number of folders, the top one included.
    pub(super) fn len(&self) -> usize {
        self.folders.len()
    }

    fn get(&self, folder: u32) -> Option<&Folder> {
        self.folders.get(usize::try_from(folder).ok()?)
    }

    pub(super) fn exists(&self, folder: u32) -> bool {
        self.get(folder).is_some()
    }

    pub(super) fn parent(&self, folder: u32) -> u32 {
        self.get(folder).map_or(TOP, |folder| folder.parent)
    }

    /// The sample whose path leads through the folder, and how many components of it the folder's
    /// own path has.
    pub(super) fn path(&self, folder: u32) -> Option<(u32, usize)> {
        let folder = self.get(folder)?;
        Some((folder.sample, usize::from(folder.depth)))
    }

    /// A number for `name` in `folder`: the same for the same two, and hard to foresee.
    pub(super) fn hash(&self, folder: u32, name: &[u8]) -> u32 {
        let hash = self.hasher.hash_one((folder, name));
        u32::try_from(hash >> 32).unwrap_or(0)
    }

    /// The folder called `name` in `parent`. `is_called` says whether the folder with a number,
    /// which is in `parent`, is called so.
    pub(super) fn find(
        &self,
        parent: u32,
        name: &[u8],
        mut is_called: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        let hash = self.hash(parent, name);
        self.candidates(hash).find(|number| {
            self.get(*number)
                .is_some_and(|folder| folder.hash == hash && folder.parent == parent)
                && is_called(*number)
        })
    }

    /// Numbers of the folders from the place of `hash` up to the first free one.
    fn candidates(&self, hash: u32) -> impl Iterator<Item = u32> {
        let mask = self.table.len() - 1;
        let first = usize::try_from(hash).unwrap_or(0);
        (0..self.table.len())
            .map(move |step| self.table.get((first + step) & mask).copied().unwrap_or(0))
            .map_while(|place| place.checked_sub(1))
    }

    /// A new folder called `name` in `parent`, on the path of `sample`; `None` when there are too
    /// many.
    pub(super) fn add(&mut self, parent: u32, name: &[u8], sample: u32) -> Option<u32> {
        let number = u32::try_from(self.folders.len())
            .ok()
            .filter(|number| *number < u32::MAX)?;
        let folder = Folder {
            parent,
            sample,
            hash: self.hash(parent, name),
            children_end: 0,
            files_end: 0,
            depth: self.get(parent)?.depth.checked_add(1)?,
        };
        self.folders.push(folder);
        // At most three quarters of the places are taken, so that a free one is always near.
        if self.folders.len() * 4 > self.table.len() * 3 {
            self.table = vec![0; self.table.len() * 2];
            for number in 1..=number {
                self.place(number);
            }
        } else {
            self.place(number);
        }
        Some(number)
    }

    fn place(&mut self, number: u32) {
        let hash = self.get(number).map_or(0, |folder| folder.hash);
        let mask = self.table.len() - 1;
        let mut at = usize::try_from(hash).unwrap_or(0) & mask;
        while self.table.get(at).is_some_and(|place| *place != 0) {
            at = (at + 1) & mask;
        }
        if let Some(place) = self.table.get_mut(at) {
            *place = number + 1;
        }
    }

    /// Ends the building: subfolders are sorted by parent, and `file_counts` says how many files
    /// each folder has.
    pub(super) fn finish(&mut self, file_counts: &[u32]) {
        self.folders.shrink_to_fit();
        let mut counts = vec![0_u32; self.folders.len()];
        for folder in self.folders.iter().skip(1) {
            if let Some(count) = at_mut(&mut counts, folder.parent) {
                *count += 1;
            }
        }
        let (mut children, mut files) = (0, 0);
        let counts_of = counts.iter().zip(file_counts);
        for (folder, (subfolders, count)) in self.folders.iter_mut().zip(counts_of) {
            children += subfolders;
            files += count;
            (folder.children_end, folder.files_end) = (children, files);
        }
        self.children = vec![0; self.folders.len().saturating_sub(1)];
        // `counts` becomes what is still to be placed of each folder's children.
        for (number, folder) in (0..).zip(&self.folders).skip(1) {
            let end = self
                .get(folder.parent)
                .map_or(0, |parent| parent.children_end);
            if let Some(left) = at_mut(&mut counts, folder.parent) {
                if let Some(place) = at_mut(&mut self.children, end - *left) {
                    *place = number;
                }
                *left -= 1;
            }
        }
    }

    /// Subfolders of a folder, in the order of their numbers.
    pub(super) fn children(&self, folder: u32) -> &[u32] {
        let range = self.range(folder, |folder| folder.children_end);
        self.children.get(range).unwrap_or_default()
    }

    /// Where the files of a folder stand in the view's list of files.
    pub(super) fn files(&self, folder: u32) -> std::ops::Range<usize> {
        self.range(folder, |folder| folder.files_end)
    }

    /// Bytes held.
    pub(super) fn memory(&self) -> usize {
        self.folders.capacity() * size_of::<Folder>()
            + (self.table.capacity() + self.children.capacity()) * size_of::<u32>()
    }

    fn range(&self, folder: u32, end: impl Fn(&Folder) -> u32) -> std::ops::Range<usize> {
        let end_of = |folder: &Folder| usize::try_from(end(folder)).unwrap_or(0);
        let before = folder.checked_sub(1).and_then(|before| self.get(before));
        before.map_or(0, end_of)..self.get(folder).map_or(0, end_of)
    }
}

/// The element with number `n`.
pub(super) fn at_mut<T>(list: &mut [T], n: u32) -> Option<&mut T> {
    list.get_mut(usize::try_from(n).ok()?)
}
