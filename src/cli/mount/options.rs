//! `-o`: the words of mount(8), and every long option of ours in either spelling.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use super::args::Args;

/// Words that fstab and mount(8) pass on and that change nothing here: the mount always is nosuid and
/// nodev, has no access times, and holds nothing that changes.
const IGNORED: [&str; 44] = [
    "rw",
    "ro",
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
    "exec",
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
    "default_permissions",
    // The rest: mount(8) passes them on too, and libfuse's programs take them.
    "symfollow",
    "nosymfollow",
    "mand",
    "nomand",
    "silent",
    "loud",
    "sub",
    "nosub",
    "nonempty",
    "big_writes",
    "kernel_cache",
];

/// Words with a value that are notes of mount(8) to itself.
const IGNORED_WITH_VALUE: [&str; 4] = ["user", "uhelper", "helper", "comment"];

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
    let mut noexec = false;
    for option in &typed.options {
        for word in split(option) {
            match meaning(&word)? {
                Word::Ignored => {}
                Word::NoExec => noexec = true,
                Word::Long(long) => words.push(long),
            }
        }
    }
    let mut args = Args::try_parse_from(program.into_iter().chain(&words).chain(rest))?;
    args.noexec = noexec;
    Ok(args)
}

enum Word {
    Ignored,
    NoExec,
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
    if name == "remount" {
        let text = "remount: the options of a mount cannot change; unmount it, then mount it again";
        return Err(Args::command().error(ErrorKind::InvalidValue, text));
    }
    if name == "noexec" && value.is_empty() {
        return Ok(Word::NoExec);
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
            "uid=x",
            "remount",
        ] {
            let error = parsed(&["c", "m", "-o", word]).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let name = word.split('=').next().unwrap();
            assert!(error.to_string().contains(name), "{error}");
        }
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
