//! `-o`: the words of mount(8), and every long option of ours in either spelling.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use super::args::Args;

/// Words that fstab, mount(8) and programs made with libfuse take, and that change nothing here: the
/// mount always is nosuid and nodev, has no access times, checks permissions, and holds nothing that
/// changes.
const IGNORED: [&str; 56] = [
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "_netdev",
    "nofail",
    "dev",
    "nodev",
    "suid",
    "nosuid",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "sync",
    "async",
    "dirsync",
    "iversion",
    "noiversion",
    "symfollow",
    "nosymfollow",
    "mand",
    "nomand",
    "silent",
    "loud",
    "sub",
    "nosub",
    "default_permissions",
    "nonempty",
    "big_writes",
    "kernel_cache",
    "auto_cache",
    "noauto_cache",
    "auto_unmount",
    "async_read",
    "sync_read",
    "async_dio",
    "atomic_o_trunc",
    "use_ino",
    "readdir_ino",
    "hard_remove",
    "clone_fd",
    "splice_read",
    "no_splice_read",
    "splice_move",
    "no_splice_move",
];

/// The same with a value: notes of mount(8) to itself, what the mount table shows, and settings of
/// libfuse.
const IGNORED_WITH_VALUE: [&str; 23] = [
    "user",
    "uhelper",
    "helper",
    "comment",
    "fsname",
    "subtype",
    "rootmode",
    "user_id",
    "group_id",
    "blksize",
    "max_read",
    "max_write",
    "max_readahead",
    "max_background",
    "congestion_threshold",
    "attr_timeout",
    "ac_attr_timeout",
    "entry_timeout",
    "negative_timeout",
    "remember",
    "max_threads",
    "max_idle_threads",
    "idle_threads",
];

/// Long options that make no sense inside `-o`.
const NOT_HERE: [&str; 3] = ["help", "version", "background-half"];

/// Parses a whole command line. What `-o` says counts as typed before everything else, so that the
/// option itself, typed later, wins.
pub(super) fn parse(command_line: &[OsString]) -> Result<Args, clap::Error> {
    let typed = Args::try_parse_from(command_line)?;
    let (program, rest) = command_line
        .split_first()
        .map_or((None, command_line), |(p, rest)| (Some(p), rest));
    let mut words = Vec::new();
    let mut said = MountWords::default();
    for option in &typed.options {
        for word in split(option) {
            match meaning(&word)? {
                Word::Ignored => said.ignored.push(word),
                Word::NoExec(noexec) => said.noexec = noexec,
                Word::ReadOnly(read_only) => said.read_only = read_only,
                Word::Remount => said.remount = true,
                Word::Long(long) => words.push(long),
            }
        }
    }
    let mut args = Args::try_parse_from(program.into_iter().chain(&words).chain(rest))?;
    args.said = said;
    Ok(args)
}

/// What `-o` says and no long option does. The last of two that contradict each other counts.
#[derive(Clone, Debug, Default)]
pub(super) struct MountWords {
    pub(super) noexec: bool,
    pub(super) read_only: bool,
    /// Change the mount that is there.
    pub(super) remount: bool,
    /// Words that mean nothing here.
    pub(super) ignored: Vec<OsString>,
}

enum Word {
    Ignored,
    NoExec(bool),
    ReadOnly(bool),
    Remount,
    Long(OsString),
}

fn meaning(word: &OsStr) -> Result<Word, clap::Error> {
    let bytes = word.as_bytes();
    let end = bytes
        .iter()
        .position(|byte| *byte == b'=')
        .unwrap_or(bytes.len());
    let (name, value) = bytes.split_at(end);
    let name = String::from_utf8_lossy(name);
    if IGNORED.contains(&name.as_ref()) && value.is_empty() {
        return Ok(Word::Ignored);
    }
    if name.starts_with("x-")
        || name.starts_with("X-")
        || IGNORED_WITH_VALUE.contains(&name.as_ref())
    {
        return Ok(Word::Ignored);
    }
    match name.as_ref() {
        "remount" if value.is_empty() => return Ok(Word::Remount),
        "ro" | "rw" if value.is_empty() => return Ok(Word::ReadOnly(name == "ro")),
        "noexec" | "exec" if value.is_empty() => return Ok(Word::NoExec(name == "noexec")),
        _ => {}
    }
    let long = name.replace('_', "-");
    let known = Args::command()
        .get_arguments()
        .any(|arg| arg.get_long() == Some(&long));
    if !known || NOT_HERE.contains(&long.as_str()) {
        let text = format!("unknown mount option `{}` in -o\n", word.to_string_lossy());
        return Err(Args::command().error(ErrorKind::UnknownArgument, text.trim_end()));
    }
    let mut typed = format!("--{long}").into_bytes();
    typed.extend_from_slice(value);
    Ok(Word::Long(OsString::from_vec(typed)))
}

/// Splits at commas. A backslash before a comma or a backslash takes its meaning away, and so do
/// quotes around a whole value, as in fstab: `log_file="/a,b"`.
fn split(options: &OsStr) -> Vec<OsString> {
    let mut words = vec![Vec::new()];
    let mut quoted = false;
    let mut bytes = options.as_bytes().iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match (byte, words.last_mut()) {
            (b'"', Some(word)) if !quoted && word.ends_with(b"=") => quoted = true,
            (b'"', Some(_)) if quoted && matches!(bytes.peek(), None | Some(b',')) => {
                quoted = false;
            }
            (_, Some(word)) if quoted => word.push(byte),
            (b',', _) => words.push(Vec::new()),
            (b'\\', Some(word)) => word.push(
                bytes
                    .next_if(|next| matches!(next, b',' | b'\\'))
                    .unwrap_or(byte),
            ),
            (_, Some(word)) => word.push(byte),
            (_, None) => {}
        }
    }
    words
        .into_iter()
        .filter(|word| !word.is_empty())
        .map(OsString::from_vec)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::args::Validate;
    use super::*;

    fn parsed(line: &[&str]) -> Result<Args, clap::Error> {
        let line: Vec<OsString> = std::iter::once("datasetrt-mount")
            .chain(line.iter().copied())
            .map(Into::into)
            .collect();
        parse(&line)
    }

    #[test]
    fn long_options_work_inside_o_in_both_spellings() {
        let args = parsed(&[
            "c",
            "m",
            "-o",
            "rw,noatime,allow_other,threads=7,x-systemd.automount,validate_cache=access",
        ]);
        let args = args.unwrap();
        assert!(args.allow_other);
        assert_eq!(args.threads, 7);
        assert_eq!(args.validate_cache, Some(Validate::Access));
        let args = parsed(&[
            "-o",
            "skip-invalid,validate_cache,uid=7",
            "c",
            "m",
            "-o",
            "log_file=/a\\,b",
        ])
        .unwrap();
        assert!(args.skip_invalid);
        assert_eq!(args.uid, Some(7));
        assert_eq!(args.validate_cache, Some(Validate::Startup));
        assert_eq!(args.log_file.as_deref(), Some(Path::new("/a,b")));
    }

    #[test]
    fn the_option_itself_wins_over_o() {
        let args = parsed(&["--threads", "3", "c", "m", "-o", "threads=7"]).unwrap();
        assert_eq!(args.threads, 3);
    }

    #[test]
    fn unknown_words_are_named() {
        for word in [
            "alow_other",
            "help",
            "rw=1",
            "background_half",
            "remount=1",
            "direct_io",
        ] {
            let error = parsed(&["c", "m", "-o", word]).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let name = word.split('=').next().unwrap();
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn of_words_that_contradict_each_other_the_last_counts() {
        let said = |words| parsed(&["c", "m", "-o", words]).unwrap().said;
        assert!(said("ro").read_only && said("rw,ro").read_only);
        assert!(!said("ro,defaults,rw").read_only && !said("noatime").read_only);
        assert!(said("exec,noexec").noexec && !said("noexec,exec").noexec);
        assert!(said("remount,ro").remount);
    }

    #[test]
    fn words_of_libfuse_mean_nothing_here_and_are_noted() {
        let words = "fsname=a=b,subtype=x,auto_unmount,max_read=131072,attr_timeout=1.5,kernel_cache,\
                     entry_timeout=0,negative_timeout=0,big_writes,nonempty,default_permissions";
        let args = parsed(&["c", "m", "-o", words]).unwrap();
        assert_eq!(args.said.ignored.len(), words.split(',').count());
    }

    #[test]
    fn commas_and_backslashes_can_be_escaped() {
        let words = split(OsStr::new(r"a\,b,c\\,,d\e"));
        assert_eq!(words, [r"a,b", r"c\", r"d\e"]);
    }

    #[test]
    fn a_value_in_quotes_keeps_its_commas() {
        let words = split(OsStr::new(r#"a="x,\y",b="z"#));
        assert_eq!(words, [r"a=x,\y", "b=z"]);
        assert_eq!(split(OsStr::new(r#"a"b,c=d"e"#)), [r#"a"b"#, r#"c=d"e"#]);
    }

    #[test]
    fn what_mount_8_notes_for_itself_is_accepted() {
        let line = "rw,dev,suid,exec,user=alice,uhelper=udisks2,x-systemd.idle-timeout=1min,\
                    X-mount.mkdir=0755,comment=a b,_netdev,nofail,nosymfollow,lazytime,users,group";
        assert!(parsed(&["c", "m", "-o", line]).is_ok());
    }
}
