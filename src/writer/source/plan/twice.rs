//! Names that occur twice, found with 8 bytes of memory for each name.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use super::super::{Found, Source, refuse};
use crate::error::Result;

/// Hashes of all names of one source.
#[derive(Debug, Default)]
pub(super) struct Names {
    hashes: RandomState,
    seen: Vec<u64>,
}

impl Names {
    pub(super) fn add(&mut self, name: &[u8]) {
        self.seen.push(self.hashes.hash_one(name));
    }

    /// Refuses the source when a name occurs twice. Hashes that are equal may belong to different
    /// names, so those names are then read and compared.
    pub(super) fn refuse_twice(mut self, source: &dyn Source) -> Result<()> {
        self.seen.sort_unstable();
        let suspects: HashSet<u64> = self
            .seen
            .windows(2)
            .filter_map(|pair| match pair {
                [a, b] if a == b => Some(*a),
                _ => None,
            })
            .collect();
        if suspects.is_empty() {
            return Ok(());
        }
        let mut names = HashSet::new();
        source.visit(false, &mut |found| match found {
            Found::Item(item)
                if suspects.contains(&self.hashes.hash_one(&item.name[..]))
                    && !names.insert(item.name.clone()) =>
            {
                let reason = "this member is in the archive twice (the later one would take the \
                              place of the earlier: remove one)";
                Err(refuse(source.path(), &item.place, reason))
            }
            _ => Ok(()),
        })
    }
}
