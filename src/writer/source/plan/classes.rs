//! Whether the folders of a source are classes.

use super::Labels;

/// Learns from all names.
#[derive(Debug, Default)]
pub(super) struct Classes {
    /// A source or a name said no.
    refuted: bool,
    /// The folder that all classes of the current source lie in.
    root: Option<Vec<u8>>,
    first: Option<Vec<u8>>,
    several: bool,
}

impl Classes {
    pub(super) fn next_source(&mut self, has_folders: bool) {
        self.refuted |= !has_folders;
        self.root = None;
    }

    pub(super) fn add(&mut self, name: &[u8]) {
        if self.refuted {
            return;
        }
        let Some((root, class)) = split(name) else {
            self.refuted = true;
            return;
        };
        match &self.root {
            Some(known) => self.refuted |= known != root,
            None => self.root = Some(root.to_vec()),
        }
        match &self.first {
            Some(known) => self.several |= known != class,
            None => self.first = Some(class.to_vec()),
        }
    }

    /// Whether samples are to have labels.
    pub(super) fn labels(&self, choice: Labels) -> bool {
        match choice {
            Labels::Auto => !self.refuted && self.several,
            Labels::Yes => true,
            Labels::No => false,
        }
    }
}

/// The name of the folder that `name` lies in.
pub(super) fn parent(name: &[u8]) -> Option<&[u8]> {
    split(name).map(|(_, parent)| parent)
}

/// What stands before the folder that `name` lies in, and that folder's own name.
fn split(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = |name: &[u8]| name.iter().rposition(|&byte| byte == b'/');
    let folder = name.get(..slash(name)?)?;
    Some(match slash(folder) {
        Some(cut) => folder.split_at_checked(cut + 1)?,
        None => (b"", folder),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auto(sources: &[&[&str]]) -> bool {
        let mut classes = Classes::default();
        for names in sources {
            classes.next_source(true);
            names.iter().for_each(|name| classes.add(name.as_bytes()));
        }
        classes.labels(Labels::Auto)
    }

    #[test]
    fn classes_are_sister_folders_that_hold_all_files() {
        assert!(auto(&[&["cat/1", "cat/2", "dog/1"]]));
        assert!(auto(&[&["set/cat/1", "set/dog/1"]]));
        assert!(auto(&[&["cat/1"], &["x/dog/1"]]));
        assert!(!auto(&[&["cat/1", "cat/2"]]), "one folder is no choice");
        assert!(!auto(&[&["cat/1", "dog/1", "README"]]));
        assert!(!auto(&[&["cat/1", "dog/old/1"]]));
        assert!(!auto(&[&["a/cat/1", "b/dog/1"]]));
        assert!(!auto(&[&["1", "2"]]));
        assert_eq!(parent(b"a/b/c"), Some(&b"b"[..]));
        assert_eq!(parent(b"c"), None);
    }
}
