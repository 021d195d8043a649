//! Receipts: that all checksums of a cache were compared, kept outside it, so that the next mount need
//! not compare them again. A receipt holds as long as the manifest and the length, time stamps, inode
//! and device number of every file are those of then. Anything odd about a receipt makes it void, and
//! nothing about receipts ever fails a mount.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{Dataset, Entry, Validated};
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::format::digest::Sha256Digest;
use crate::format::{INDEX_FILE, MANIFEST_FILE, METADATA_FILE, SHARDS_DIR};
use crate::storage::{self, FileStamp, Place, StampTime};

/// What this program writes; a receipt of another version is void.
const VERSION: u32 = 1;
/// Longest receipt that is read, in bytes: some 100,000 shards.
const MAX_LEN: u64 = 32 << 20;
/// Time stamps of local file systems move in steps of up to 10 ms. A file that changed within this
/// time may change again without showing it.
const STEP: Duration = Duration::from_millis(100);
/// The same for file systems that keep whole seconds or two.
const COARSE_STEP: Duration = Duration::from_secs(3);

/// A folder of receipts.
#[derive(Debug)]
pub struct Receipts {
    dir: PathBuf,
    /// The files of caches that have no receipt yet, as they were before they were hashed, by position.
    before: HashMap<usize, Vec<FileRecord>>,
}

#[derive(Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
struct Receipt {
    receipt_version: u32,
    /// For people; the digest is what counts, since a path need not be UTF-8.
    folder: String,
    folder_sha256: String,
    manifest_sha256: String,
    /// Seconds since 1970.
    checked_at: u64,
    files: Vec<FileRecord>,
}

#[derive(Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileRecord {
    name: String,
    device: u64,
    inode: u64,
    len: u64,
    modified: Time,
    changed: Time,
}

/// Seconds since 1970 and nanoseconds.
type Time = (i64, u32);

impl Receipts {
    /// Receipts in folder `dir`, which need not exist.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_path_buf(),
            before: HashMap::new(),
        }
    }

    /// Marks the caches of `dataset` for which a receipt holds, and looks at the files of the others,
    /// which are to be hashed next.
    pub fn honour(&mut self, dataset: &mut Dataset) {
        for entry in &mut dataset.entries {
            let shown = format!("cache {} ({})", entry.cache_id, entry.cache.dir().display());
            match self.holds(&entry.cache) {
                Ok(at) => {
                    entry.cache.trust(at);
                    entry.validated = Validated::Receipt;
                    log::info!(
                        "{shown}: hashing skipped: no file has changed since all were found right, \
                         {} ago, by the receipt in {}",
                        age(at),
                        self.dir.display()
                    );
                }
                Err(why) => {
                    log::info!("{shown}: all files are to be hashed: {why}");
                    if entry.cache.keeps_ctime()
                        && let Some(files) = files_now(&entry.cache)
                    {
                        self.before.insert(entry.position, files);
                    }
                }
            }
        }
    }

    /// Leaves a receipt for each cache of `dataset` whose files were all hashed and found right, and
    /// did not change meanwhile.
    pub fn leave(&mut self, dataset: &Dataset) {
        let hashed = |entry: &&Entry| entry.validated == Validated::Checksums;
        for entry in dataset.entries.iter().filter(hashed) {
            let Some(files) = self.before.remove(&entry.position) else {
                continue;
            };
            let folder = entry.cache.dir().display();
            if files_now(&entry.cache).as_ref() != Some(&files) {
                log::warn!("{folder}: no receipt: its files changed while they were hashed");
            } else if let Err(error) = self.write(&entry.cache, files) {
                log::warn!("{folder}: no receipt: {}", error.chain());
            }
        }
    }

    /// When the files were hashed that the cache has now; or why nobody knows.
    fn holds(&self, cache: &Cache) -> Result<SystemTime, String> {
        if !cache.keeps_ctime() {
            let why = "its file system is not known to note each change in a time that nobody can set (ctime): \
                       no receipt is taken or left";
            return Err(why.to_owned());
        }
        let (path, folder_sha256) = self.place(cache).map_err(|error| error.chain())?;
        if !storage::exists(&path) {
            return Err("there is no receipt".to_owned());
        }
        let void = |why: &str| format!("the receipt {} is void: {why}", path.display());
        let bytes = storage::read_own(&path, MAX_LEN).map_err(|error| void(&error.chain()))?;
        let receipt: Receipt =
            serde_json::from_slice(&bytes).map_err(|error| void(&error.to_string()))?;
        if receipt.receipt_version != VERSION {
            return Err(void("it is of another version"));
        }
        if receipt.folder_sha256 != folder_sha256 {
            return Err(void("it is for another folder"));
        }
        if receipt.manifest_sha256 != cache.manifest_digest().to_string() {
            return Err(void("the manifest is another one"));
        }
        let Some(now) = files_of(cache) else {
            return Err(void("a file cannot be looked at, or was replaced"));
        };
        if let Some(changed) = first_change(&receipt.files, &now) {
            return Err(void(&changed));
        }
        let at = Duration::from_secs(receipt.checked_at);
        match SystemTime::UNIX_EPOCH.checked_add(at) {
            Some(at) if at <= SystemTime::now() => Ok(at),
            _ => Err(void("it is of a time that has not come yet")),
        }
    }

    fn write(&self, cache: &Cache, files: Vec<FileRecord>) -> Result<()> {
        let (path, folder_sha256) = self.place(cache)?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let receipt = Receipt {
            receipt_version: VERSION,
            folder: cache.dir().to_string_lossy().into_owned(),
            folder_sha256,
            manifest_sha256: cache.manifest_digest().to_string(),
            checked_at: now.map_or(0, |now| now.as_secs()),
            files,
        };
        let text = serde_json::to_vec_pretty(&receipt)
            .map_err(|error| Error::io(&path, "spell", error.into()))?;
        storage::create_private_dirs(&self.dir)?;
        storage::publish_own(&path, &text)
    }

    /// The file of a cache's receipt, and the digest of the cache's folder, which it is called by.
    fn place(&self, cache: &Cache) -> Result<(PathBuf, String)> {
        let folder = cache.folder().real_path();
        let digest = Sha256Digest::of(folder.as_os_str().as_encoded_bytes()).to_string();
        Ok((self.dir.join(format!("{digest}.json")), digest))
    }
}

/// All files of the cache, unless one of them changed so lately that it may change again unseen.
pub(super) fn files_now(cache: &Cache) -> Option<Vec<FileRecord>> {
    let files = files_of(cache)?;
    let now = SystemTime::now();
    let stamps = || files.iter().flat_map(|file| [file.modified, file.changed]);
    let whole_seconds = stamps().all(|(_, nanos)| nanos == 0);
    let step = if whole_seconds { COARSE_STEP } else { STEP };
    let latest = now
        .checked_sub(step)?
        .duration_since(SystemTime::UNIX_EPOCH)
        .ok()?;
    let latest = (i64::try_from(latest.as_secs()).ok()?, latest.subsec_nanos());
    stamps().all(|stamp| stamp < latest).then_some(files)
}

/// All files of the cache as they are now. `None` when one cannot be looked at, or is not the one that
/// was opened.
pub(super) fn files_of(cache: &Cache) -> Option<Vec<FileRecord>> {
    let shards = &cache.manifest().shards;
    let mut files = Vec::with_capacity(shards.len() + 3);
    let opened = |name: &str, place: &Place| {
        let stamp = place.stamp().ok()?;
        let same = place.info().identity.is(&stamp.identity);
        same.then(|| record(name, &stamp))
    };
    let manifest = cache.manifest_place().stamp().ok()?;
    files.push(record(MANIFEST_FILE, &manifest));
    files.push(opened(METADATA_FILE, cache.metadata_place())?);
    files.push(opened(INDEX_FILE, cache.index_place())?);
    for (n, shard) in shards.iter().enumerate() {
        let name = format!("{SHARDS_DIR}/{}", shard.name.as_str());
        files.push(opened(&name, cache.shard_place(n)?)?);
    }
    Some(files)
}

fn record(name: &str, stamp: &FileStamp) -> FileRecord {
    let time = |time: StampTime| (time.seconds, time.nanos);
    FileRecord {
        name: name.to_owned(),
        device: stamp.identity.device,
        inode: stamp.identity.inode,
        len: stamp.identity.len,
        modified: time(stamp.modified),
        changed: time(stamp.changed),
    }
}

/// What differs first, in words.
fn first_change(then: &[FileRecord], now: &[FileRecord]) -> Option<String> {
    if then.len() != now.len() {
        return Some(format!("it lists {} files of {}", then.len(), now.len()));
    }
    let (then, now) = then.iter().zip(now).find(|(then, now)| then != now)?;
    let name = &now.name;
    Some(if then.name != *name {
        format!("it does not list {name}")
    } else if (then.device, then.inode) != (now.device, now.inode) {
        format!("{name} is another file")
    } else if then.len != now.len {
        format!("{name} has another length")
    } else {
        format!("{name} was touched")
    })
}

/// How long ago `at` was, in the largest unit that there are two of.
fn age(at: SystemTime) -> String {
    let seconds = at.elapsed().unwrap_or_default().as_secs();
    let units = [(86_400, "days"), (3_600, "hours"), (60, "minutes")];
    match units.iter().find(|(len, _)| seconds / len >= 2) {
        Some((len, unit)) => format!("{} {unit}", seconds / len),
        None => format!("{seconds} seconds"),
    }
}
