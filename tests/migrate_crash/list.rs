//! A list of caches that is migrated, looked at and put back, many times.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::files::*;

pub(crate) struct List {
    pub(crate) caches: Vec<PathBuf>,
    manifests: Vec<Vec<u8>>,
    content: BTreeMap<(u64, u64), Vec<u8>>,
    _folder: TempDir,
}

impl List {
    pub(crate) fn new(count: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let caches = v2_caches(folder.path(), count);
        Self {
            manifests: caches.iter().map(|cache| read_manifest(cache)).collect(),
            content: payloads(&open(&caches)),
            caches,
            _folder: folder,
        }
    }

    /// Makes all of it format 2 again, without what was left behind.
    pub(crate) fn reset(&self) {
        for (cache, manifest) in self.caches.iter().zip(&self.manifests) {
            for left in temporary_files(cache) {
                fs::remove_file(left).unwrap();
            }
            fs::write(manifest_path(cache), manifest).unwrap();
        }
    }

    /// `datasetrt migrate --to 3` of the whole list.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_datasetrt"));
        command.args(["migrate", "--to", "3"]).args(&self.caches);
        command.env_remove("DATASETRT_TEST_STEP");
        command
    }

    /// Checks that a stopped migration has lost nothing, finishes it, and checks the end. Gives how
    /// many manifests were of format 3 before.
    pub(crate) fn check_and_finish(&self) -> usize {
        let done = self.check_whole();
        let left: Vec<_> = self.left_behind();
        let output = self.command().output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(self.check_whole(), self.caches.len());
        assert_eq!(self.left_behind(), left, "what others left behind stays");
        done
    }

    /// Every manifest is the old one or the new one to the byte, and the list has its identities
    /// and samples. Gives the number of new ones.
    pub(crate) fn check_whole(&self) -> usize {
        let mut done = 0;
        for (n, (cache, old)) in self.caches.iter().zip(&self.manifests).enumerate() {
            let found = read_manifest(cache);
            if found != *old {
                let old = String::from_utf8(old.clone()).unwrap();
                let new = format!("\"format_version\": 3,\n  \"cache_id\": {n},");
                let new = old.replacen("\"format_version\": 2,", &new, 1);
                assert_eq!(String::from_utf8_lossy(&found), new);
                done += 1;
            }
        }
        assert!(payloads(&open(&self.caches)) == self.content);
        done
    }

    fn left_behind(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let left = self.caches.iter().flat_map(|cache| temporary_files(cache));
        left.map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect()
    }

    pub(crate) fn left_count(&self) -> usize {
        self.left_behind().len()
    }
}

pub(crate) fn text(output: &Output) -> String {
    format!(
        "{}: {}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
