//! What the command line means: absolute paths, the list of caches, resolved choices.

use std::env;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::{self, Path, PathBuf};

use clap::CommandFactory;
use clap::error::ErrorKind;

use super::args::{Args, Collision, Lines, Sandbox, Validate};
use super::memory::default_budget;
use crate::cli::cache_list::read_list;
use crate::cli::{LogFormat, Verbosity};
use crate::error::{Error, Result};
use crate::storage::{self, take_inherited};
use crate::vfs::ViewMetadata;
use crate::view::{OnCollision, ViewSpec};

/// One mount as asked for.
#[derive(Clone, Debug)]
pub struct MountConfig {
    /// The given folders in order, absolute: caches, or folders of caches.
    pub caches: Vec<PathBuf>,
    caches_from: Option<PathBuf>,
    /// The mountpoint, absolute.
    pub mountpoint: PathBuf,
    /// Where the control files have a mount of their own, absolute.
    pub control_at: Option<PathBuf>,
    /// Leave out caches that cannot be opened.
    pub skip_invalid: bool,
    /// When to compare checksums, if at all.
    pub validate: Option<Validate>,
    /// Folder of receipts, absolute; `None` for no receipts.
    pub receipts: Option<PathBuf>,
    /// Bytes per second that a check behind the mount may read; 0 without a limit.
    pub scrub_rate: u64,
    /// Seconds between looks for new caches.
    pub watch: Option<NonZeroU32>,
    /// Bytes for decoded samples.
    pub cache_memory: u64,
    /// Bytes for temporary files.
    pub temp_disk: u64,
    /// Views to show beside those that need no template.
    pub views: Vec<ViewSpec>,
    /// What happens to samples that a view would call the same.
    pub on_collision: OnCollision,
    /// Show the views that need no template.
    pub auto_views: bool,
    /// Which views have a metadata.jsonl.
    pub view_metadata: ViewMetadata,
    /// Answer extended attributes.
    pub xattrs: bool,
    /// Stay in the foreground.
    pub foreground: bool,
    /// Let other users in.
    pub allow_other: bool,
    /// Refuse to run programs from the mount.
    pub noexec: bool,
    /// Let nobody write, not even to control files.
    pub read_only: bool,
    /// Change the mount that is there, instead of mounting.
    pub remount: bool,
    /// What the mount table shows as the source: the first cache as it was given, or the list of them.
    pub source: OsString,
    /// Words of `-o` that mean nothing here.
    pub(super) ignored_words: Vec<OsString>,
    /// Event threads.
    pub threads: usize,
    /// Owner of all files, instead of that of each cache.
    pub uid: Option<u32>,
    /// Group of all files, instead of that of each cache.
    pub gid: Option<u32>,
    /// Bits to take away from 0444.
    pub umask: Option<u16>,
    /// Whom to become, by name or number.
    pub user: Option<String>,
    /// How far the serving threads are confined.
    pub sandbox: Sandbox,
    /// A mounted /dev/fuse to serve on, instead of mounting.
    pub fuse_fd: Option<i32>,
    /// Where to say that the mount answers.
    pub ready_fd: Option<i32>,
    /// How much to log.
    pub verbosity: Verbosity,
    /// How lines of the log look.
    pub log_format: LogFormat,
    /// Where to log, instead of stderr; absolute.
    pub log_file: Option<PathBuf>,
    /// This process is the background half of a mount command.
    pub(super) background_half: bool,
}

/// Why there is no [`MountConfig`].
#[derive(Debug)]
pub(super) enum Wrong {
    /// The command line is wrong.
    Usage(clap::Error),
    /// It is right, and cannot be followed.
    Refused(Error),
}

impl MountConfig {
    /// Whether `--ready-fd` names standard output in the background half, which there is the socket to
    /// the first half: then that one has to write to it.
    pub(super) fn launcher_tells(&self) -> bool {
        self.background_half && self.ready_fd == Some(1)
    }

    pub(super) fn resolve(args: Args) -> std::result::Result<Self, Wrong> {
        let mut paths = args.paths;
        let Some(mountpoint) = paths.pop() else {
            return Err(usage("a mountpoint is needed"));
        };
        if args.validate_cache.is_some()
            && let Some(word) = paths.iter().find(|path| is_validation_word(path))
        {
            let word = word.display();
            return Err(usage(&format!(
                "there is no cache folder {word:?}; --validate-cache takes its word after =: \
                 --validate-cache={word}"
            )));
        }
        let source = match (paths.first(), &args.caches_from) {
            (Some(first), _) => first.clone().into_os_string(),
            (None, Some(list)) => list.clone().into_os_string(),
            (None, None) if args.said.remount => OsString::new(),
            (None, None) => {
                return Err(usage(
                    "a cache folder and a mountpoint are needed (in this order)",
                ));
            }
        };
        let fuse_fd = args.fuse_fd.or_else(|| given_as_path(&mountpoint));
        if args.control_at.is_some() && fuse_fd.is_some() {
            return Err(usage(
                "--control-at makes a second mount, and --fuse-fd is for a daemon that makes none",
            ));
        }
        if args.user.is_some() && !args.allow_other && fuse_fd.is_none() {
            return Err(usage(
                "--user needs --allow-other: a mount by root without it is for root alone, and the daemon would be \
                 somebody else",
            ));
        }
        Ok(Self {
            caches: absolute_all(paths).map_err(Wrong::Refused)?,
            caches_from: args.caches_from,
            mountpoint: absolute(&mountpoint).map_err(Wrong::Refused)?,
            control_at: args
                .control_at
                .as_deref()
                .map(absolute)
                .transpose()
                .map_err(Wrong::Refused)?,
            skip_invalid: args.skip_invalid,
            validate: args.validate_cache,
            receipts: match args.no_receipts {
                true => None,
                // The folder of whoever starts it is not that of whom it becomes.
                false if args.receipts.is_none() && args.user.is_some() => None,
                false => receipts(args.receipts).map_err(Wrong::Refused)?,
            },
            scrub_rate: args.scrub_rate,
            watch: args.watch,
            cache_memory: args.cache_memory.unwrap_or_else(default_budget),
            temp_disk: args.temp_disk,
            views: parse_views(&args.view)?,
            on_collision: match args.on_collision {
                Collision::Refuse => OnCollision::Refuse,
                Collision::Suffix => OnCollision::Suffix,
            },
            auto_views: !args.no_auto_views,
            view_metadata: match args.view_metadata {
                Lines::Auto => ViewMetadata::Auto,
                Lines::On => ViewMetadata::On,
                Lines::Off => ViewMetadata::Off,
            },
            xattrs: args.xattrs,
            foreground: args.foreground,
            allow_other: args.allow_other,
            noexec: args.said.noexec,
            read_only: args.said.read_only,
            remount: args.said.remount,
            source,
            ignored_words: args.said.ignored,
            threads: usize::from(args.threads),
            uid: args.uid,
            gid: args.gid,
            umask: args.umask,
            user: args.user,
            sandbox: args.sandbox.unwrap_or(Sandbox::Files),
            fuse_fd,
            ready_fd: args.ready_fd,
            verbosity: Verbosity {
                verbose: args.verbose,
                quiet: args.quiet,
            },
            log_format: args.log_format,
            log_file: args
                .log_file
                .as_deref()
                .map(absolute)
                .transpose()
                .map_err(Wrong::Refused)?,
            background_half: args.background_half,
        })
    }

    /// The descriptors that the command line names, by number or as `/dev/fd/N`.
    pub(super) fn given_descriptors(&self) -> Vec<i32> {
        let paths = self.caches.iter().chain(&self.caches_from);
        let named = paths.filter_map(|path| descriptor_of(path));
        named.chain(self.ready_fd).chain(self.fuse_fd).collect()
    }

    /// Adds the caches of `--caches-from`. Only the half that serves may do this: the list may be a
    /// pipe, which can be read once.
    pub(super) fn add_listed(&mut self) -> Result<()> {
        let Some(list) = self.caches_from.take() else {
            return Ok(());
        };
        self.caches.extend(read_list(&list).and_then(absolute_all)?);
        if let Some(number) = descriptor_of(&list).filter(|number| *number > 2)
            && self.background_half
        {
            // Whoever wrote it may wait until it is read to the end and closed.
            drop(take_inherited(number));
        }
        if self.caches.is_empty() {
            return Err(Error::refused(list, "no cache folder is listed here"));
        }
        Ok(())
    }
}

/// The folder that was given, or that of the user.
fn receipts(given: Option<PathBuf>) -> Result<Option<PathBuf>> {
    if let Some(given) = given {
        return absolute(&given).map(Some);
    }
    let folder = |name: &str| {
        let folder = PathBuf::from(env::var_os(name)?);
        // What is not absolute counts as not set (XDG Base Directory Specification).
        folder.is_absolute().then_some(folder)
    };
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    Ok(cache.map(|cache| cache.join("datasetrt")))
}

/// The number in a path that names a descriptor, as a shell gives it for `<(COMMAND)`.
fn descriptor_of(path: &Path) -> Option<i32> {
    let number = ["/dev/fd", "/proc/self/fd"]
        .iter()
        .find_map(|folder| path.strip_prefix(folder).ok())?;
    number.to_str()?.parse().ok()
}

/// The number in `/dev/fd/N`, by which mount.fuse3 says that it has mounted already.
fn given_as_path(mountpoint: &Path) -> Option<i32> {
    let number: i32 = mountpoint
        .strip_prefix("/dev/fd")
        .ok()?
        .to_str()?
        .parse()
        .ok()?;
    (number > 2).then_some(number)
}

/// A template that cannot be read is wrong usage.
/// Whether it is a word of `--validate-cache` rather than a folder.
fn is_validation_word(path: &Path) -> bool {
    let words = ["startup", "access"].map(Path::new);
    words.contains(&path) && !storage::exists(path)
}

fn parse_views(views: &[OsString]) -> std::result::Result<Vec<ViewSpec>, Wrong> {
    let parse = |view: &OsString| {
        ViewSpec::parse_bytes(view.as_bytes()).map_err(|error| {
            let text = format!("--view {}: {error}", view.to_string_lossy());
            Wrong::Usage(Args::command().error(ErrorKind::InvalidValue, text))
        })
    };
    views.iter().map(parse).collect()
}

fn usage(text: &str) -> Wrong {
    Wrong::Usage(Args::command().error(ErrorKind::MissingRequiredArgument, text))
}

fn absolute_all(paths: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    paths.iter().map(|path| absolute(path)).collect()
}

/// The background process changes to `/`, so no path may depend on where it was started.
fn absolute(path: &Path) -> Result<PathBuf> {
    path::absolute(path).map_err(|source| Error::io(path, "make this an absolute path", source))
}
