//! The command line of `datasetrt-mount` as typed; [`super::config`] makes sense of it.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{ArgAction, Parser, ValueEnum};
use nix::unistd::{Group, User};

use super::options::MountWords;
use crate::cli::{LogFormat, parse_size};

const EXAMPLES: &str = "\
Examples:
  datasetrt-mount /data/caches/train /mnt/train
      Mount one cache in the background, then read /mnt/train/samples/<cache_id>/0
  datasetrt-mount -f --validate-cache --allow-other /data/caches /mnt/all
      Mount every cache in the folder /data/caches, check all checksums first, stay in
      the foreground, and let other users in

Unmount with `fusermount3 -u MOUNTPOINT` (or `umount` as root), or by SIGTERM. In /etc/fstab:
  /data/caches  /mnt/all  fuse.datasetrt-mount  allow_other,validate_cache=access,nofail  0 0

Exit status: 0 mounted (or, with -f, ended as asked), 1 refused with the reason on stderr, 2 wrong usage.";

/// Mount DatasetRT caches as ordinary read-only files.
///
/// Each sample of each cache appears as one file, /samples/<cache_id>/<sample_id>. The order of the
/// caches decides the ids of those with format version 2.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "datasetrt-mount",
    version,
    after_help = EXAMPLES,
    args_override_self = true,
    override_usage = "datasetrt-mount [OPTIONS] <CACHES>... <MOUNTPOINT>\n       \
                      datasetrt-mount [OPTIONS] --caches-from <FILE> [CACHES]... <MOUNTPOINT>"
)]
pub(super) struct Args {
    /// Cache folders, or folders whose children are caches (by name, bytewise); the last path is
    /// the mountpoint, an existing directory
    #[arg(value_name = "PATHS", required = true, num_args = 1..)]
    pub(super) paths: Vec<PathBuf>,

    /// Read more cache folders from FILE, one path a line, after those named here
    #[arg(long, value_name = "FILE", help_heading = "Caches")]
    pub(super) caches_from: Option<PathBuf>,

    /// Leave out caches that cannot be opened, with a warning; the others keep their positions
    /// [default: refuse to mount, naming every bad cache]
    #[arg(long, help_heading = "Caches")]
    pub(super) skip_invalid: bool,

    /// Compare the SHA-256 of all files: before mounting, or of each shard before its first byte
    /// is served [default when absent: check the structure only; bare: startup]
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "startup",
        hide_possible_values = false,
        help_heading = "Caches"
    )]
    pub(super) validate_cache: Option<Validate>,

    /// Keep receipts in DIR: caches whose files have not changed since --validate-cache found all of
    /// them right are not hashed again [default: $XDG_CACHE_HOME/datasetrt or ~/.cache/datasetrt]
    #[arg(long, value_name = "DIR", help_heading = "Caches")]
    pub(super) receipts: Option<PathBuf>,

    /// Neither use nor leave receipts
    #[arg(long, help_heading = "Caches")]
    pub(super) no_receipts: bool,

    /// Look every SECONDS for caches of format 3 that were published below the given folders, and show
    /// them too; `echo rescan > MOUNTPOINT/.control/caches` does it at once
    #[arg(long, value_name = "SECONDS", help_heading = "Caches")]
    pub(super) watch: Option<NonZeroU32>,

    /// Most bytes per second that a check behind the mount reads (docs/safety.md); 0 for no limit
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        default_value = "64MiB",
        help_heading = "Caches"
    )]
    pub(super) scrub_rate: u64,

    /// Limit the memory of decoded samples, such as 64MiB; a compressed sample that needs more is
    /// decoded into a temporary file, see --temp-disk [default: a quarter of the memory of the machine or control group, at most 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Caches")]
    pub(super) cache_memory: Option<u64>,

    /// Limit the disk space of temporary files, in the folder TMPDIR or in /var/tmp: decoded samples
    /// that need more than --cache-memory, and tables over many samples
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        default_value = "8GiB",
        help_heading = "Caches"
    )]
    pub(super) temp_disk: u64,

    /// Show samples under /views/NAME by a path template, such as
    /// 'cats={label}/{sample_id:08}{ext} where label == "cat"'; may be given again (docs/views.md)
    #[arg(long, value_name = "NAME=TEMPLATE", help_heading = "Views")]
    pub(super) view: Vec<OsString>,

    /// What to do with samples that a view would call the same
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        default_value = "refuse",
        help_heading = "Views"
    )]
    pub(super) on_collision: Collision,

    /// Do not show the views that need no template (by-FIELD, path)
    #[arg(long, help_heading = "Views")]
    pub(super) no_auto_views: bool,

    /// Show a metadata.jsonl in each view
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value = "auto",
        help_heading = "Views"
    )]
    pub(super) view_metadata: Lines,

    /// Answer extended attributes of samples (user.datasetrt.*); costs requests in `ls -l` and `cp -a`
    #[arg(long, help_heading = "Views")]
    pub(super) xattrs: bool,

    /// Stay in the foreground [default: return once the mount answers]
    #[arg(short, long, help_heading = "Mount")]
    pub(super) foreground: bool,

    /// Mount options, comma separated (`\,` is a comma); takes the usual words of mount(8) and every
    /// long option of this program, as in -o allow_other,threads=8; `ro` mounts read-only, control
    /// files too, and saves a request after each read; `remount,ro` and `remount,rw` change that
    #[arg(short = 'o', value_name = "OPTIONS", action = ArgAction::Append, help_heading = "Mount")]
    pub(super) options: Vec<OsString>,

    /// Mount the control files alone at DIR, an existing directory; everything else then is mounted
    /// read-only, and /.control in it is a link to DIR. Both mounts end together
    #[arg(long, value_name = "DIR", help_heading = "Mount")]
    pub(super) control_at: Option<PathBuf>,

    /// Let other users in (root is one of them), as far as the mode bits of the caches do; ordinary
    /// users may say so where /etc/fuse.conf has the line user_allow_other
    #[arg(long, help_heading = "Mount")]
    pub(super) allow_other: bool,

    /// Threads that answer the kernel; more help where shards lie on slow disks
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256), help_heading = "Mount")]
    pub(super) threads: u16,

    /// Owner of all files [default: that of each cache]
    #[arg(long, value_name = "NAME|UID", value_parser = parse_uid, help_heading = "Mount")]
    pub(super) uid: Option<u32>,

    /// Group of all files [default: that of each cache]
    #[arg(long, value_name = "NAME|GID", value_parser = parse_gid, help_heading = "Mount")]
    pub(super) gid: Option<u32>,

    /// Permission bits to take away from 0444, in octal [default: those that each cache lacks]
    #[arg(long, value_name = "MASK", value_parser = parse_umask, help_heading = "Mount")]
    pub(super) umask: Option<u16>,

    /// Once mounted as root, become this user, who must be able to read the caches; takes
    /// --allow-other, and cannot be said in -o, where `user` is a word of mount(8)
    #[arg(long, value_name = "NAME|UID", help_heading = "Mount")]
    pub(super) user: Option<String>,

    /// What the serving threads may not do; files: change files elsewhere than beside manifests that can be
    /// migrated and in the folder for temporary files, where the kernel has Landlock; full: also use calls
    /// of the system that serving does not take, which costs some microseconds for each cold sample
    /// [default: files; bare: full]
    #[arg(
        long,
        value_name = "LEVEL",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "full",
        hide_possible_values = false,
        help_heading = "Mount"
    )]
    pub(super) sandbox: Option<Sandbox>,

    /// Serve on this file descriptor: /dev/fuse, opened and mounted by a process that may mount, for
    /// a daemon that may not. MOUNTPOINT then is only shown, and whoever mounted it unmounts it. A
    /// MOUNTPOINT of /dev/fd/N means the same, as `mount -o drop_privileges` says it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(3..), help_heading = "Mount")]
    pub(super) fuse_fd: Option<i32>,

    /// Write READY=1 to this file descriptor when the mount answers, then close it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..), help_heading = "Mount")]
    pub(super) ready_fd: Option<i32>,

    /// Log more; twice: everything (RUST_LOG overrides)
    #[arg(short, long, action = ArgAction::Count, help_heading = "Messages")]
    pub(super) verbose: u8,

    /// Log errors only
    #[arg(short, long, conflicts_with = "verbose", help_heading = "Messages")]
    pub(super) quiet: bool,

    /// Append the log to FILE [default: stderr while in the foreground, then nowhere]
    #[arg(long, value_name = "FILE", help_heading = "Messages")]
    pub(super) log_file: Option<PathBuf>,

    /// How lines of the log look; json: one object a line, with time, level, program, pid, message
    #[arg(
        long,
        value_name = "FORMAT",
        value_enum,
        default_value_t,
        help_heading = "Messages"
    )]
    pub(super) log_format: LogFormat,

    /// This is the background half, with a socket to the other half as its standard output.
    #[arg(long, hide = true)]
    pub(super) background_half: bool,

    /// What only `-o` can say: there is no reason to type it as a long option.
    #[arg(skip)]
    pub(super) said: MountWords,
}

/// What happens to samples that a view would call the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum Collision {
    /// Refuse to mount, naming two of them
    Refuse,
    /// Put ~CACHE_ID-SAMPLE_ID before the extension
    Suffix,
}

/// Which views have a metadata.jsonl.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum Lines {
    /// In views of pictures, sound or video, where loaders look for it
    Auto,
    /// In all
    On,
    /// In none
    Off,
}

/// How far the serving threads are confined.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Sandbox {
    /// Only so far that they gain no privileges
    Off,
    /// They change files only where they must
    Files,
    /// And use only the calls of the system that they must
    Full,
}

/// When checksums are compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Validate {
    /// All of them, before mounting
    Startup,
    /// Each shard's once, before its first byte is served
    Access,
}

fn parse_uid(text: &str) -> Result<u32, String> {
    let found = |name: &str| User::from_name(name).map(|user| user.map(|user| user.uid.as_raw()));
    parse_id(text, "user", found)
}

fn parse_gid(text: &str) -> Result<u32, String> {
    let found =
        |name: &str| Group::from_name(name).map(|group| group.map(|group| group.gid.as_raw()));
    parse_id(text, "group", found)
}

/// `text` is a number, or the name of one.
fn parse_id(
    text: &str,
    kind: &str,
    by_name: impl Fn(&str) -> nix::Result<Option<u32>>,
) -> Result<u32, String> {
    match text.parse() {
        Ok(u32::MAX) => return Err(format!("{text} means no {kind}")),
        Ok(id) => return Ok(id),
        Err(_) => {}
    }
    match by_name(text) {
        Ok(Some(id)) => Ok(id),
        Ok(None) => Err(format!("there is no {kind} called `{text}`")),
        Err(error) => Err(format!("cannot look up the {kind} `{text}`: {error}")),
    }
}

fn parse_umask(text: &str) -> Result<u16, String> {
    match u16::from_str_radix(text, 8) {
        Ok(mask) if mask <= 0o777 => Ok(mask),
        _ => Err("expected octal digits up to 777".to_owned()),
    }
}
