//! A cache of somebody else, full of control characters: no message, log line or table of ours passes one on,
//! and none starts a line of its own.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::fixture::{Fixture, Sample, TestCache};
use crate::common::mount;
use crate::common::mount::{MountGuard, can_mount, program, tool};
use crate::{assert_ready, place};

/// Ends of lines, escape sequences of 7 and 8 bits, a title for the terminal, and changes of direction.
const HOSTILE: &str = "\n7%7: forged\r\u{1b}[2J\u{1b}]0;t\u{7}\u{7f}\u{85}\u{9b}31m\u{2028}\u{202e}gpj\u{2066}\u{200f}\t";

/// What must not be in an output, but for the ends of its own lines.
fn is_active(character: char) -> bool {
    (character.is_control() && character != '\n')
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        )
        || matches!(character, '\u{2066}'..='\u{2069}')
}

fn assert_clean(what: &str, bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(!text.contains(is_active), "{what}: {text:?}");
    for line in text.lines() {
        assert!(
            !line.trim_start().starts_with("7%7: forged"),
            "{what}: {text:?}"
        );
    }
}

fn assert_clean_output(what: &str, output: &Output) {
    assert_clean(what, &output.stdout);
    assert_clean(what, &output.stderr);
}

/// Runs a command to its end; nobody but the test hears what it says.
fn finish(command: &mut Command) -> Output {
    mount::finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// Five samples, of which the second's record has another value than the table.
fn hostile_cache(folder: &Path) -> TestCache {
    let field = format!("field{HOSTILE}");
    let samples = (0..5).map(|n| {
        let value = format!("{}{HOSTILE}", n % 2);
        Sample::new(format!("payload {n}"))
            .with(&field, value.as_str())
            .with("path", format!("p/{n}{HOSTILE}.txt").as_str())
    });
    let name = format!("source{HOSTILE}");
    let cache = Fixture::new()
        .name(&name)
        .samples(samples)
        .max_shard_bytes(1);
    let cache = cache.write(&folder.join(format!("cache{HOSTILE}")));
    let (json, _) = cache.record(1);
    let other = String::from_utf8(json).unwrap().replace("p/1", "p/x");
    cache.set_json(1, other);
    // A shard that is named like that.
    let shard = format!("s{HOSTILE}.bin");
    if cfg!(unix) {
        fs::rename(
            cache.path("shards/000004.bin"),
            cache.path("shards").join(&shard),
        )
        .unwrap();
        cache.set_manifest("shards/4/name", shard.as_str());
    }
    cache
}

#[test]
fn no_control_character_of_a_cache_gets_into_logs_and_control_files() {
    if !can_mount() {
        return;
    }
    let place = place();
    let cache = hostile_cache(place.folder.path());
    let shard = fs::read_dir(cache.path("shards")).unwrap().count();
    assert_eq!(shard, 5);
    for format in ["text", "json"] {
        let guard = MountGuard::at(place.point("m"));
        let log = place.folder.path().join(format!("log-{format}"));
        let mut command = program();
        command.args([
            "--skip-invalid",
            "--log-format",
            format,
            "--xattrs",
            "--log-file",
        ]);
        command
            .arg(&log)
            .args(["--view", "v={path...}", "--on-collision=suffix"]);
        let output = guard.background(command, &cache.dir);
        assert_ready(&output);
        assert_clean_output("start", &output);
        let samples = guard.point.join("samples");
        let samples = fs::read_dir(samples)
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        assert_eq!(fs::read(samples.join("0")).unwrap(), b"payload 0");
        assert_eq!(
            fs::read(samples.join("1")).unwrap_err().raw_os_error(),
            Some(5)
        );
        assert_eq!(
            fs::read_dir(guard.point.join("views/v/p")).unwrap().count(),
            5
        );
        let control = guard.point.join(".control");
        for (file, word) in [
            ("caches", "rescan"),
            ("prefetch", HOSTILE),
            ("verify", "all"),
        ] {
            let _ = fs::write(control.join(file), word);
        }
        for entry in fs::read_dir(&control).unwrap() {
            let path = entry.unwrap().path();
            assert_clean(&path.to_string_lossy(), &fs::read(&path).unwrap());
        }
        let damaged = fs::read_to_string(control.join("damaged")).unwrap();
        assert!(damaged.contains("/1: "), "{damaged}");
        for line in damaged.lines() {
            let (sample, _) = line.split_once(": ").unwrap();
            let (cache, sample) = sample.split_once('/').unwrap();
            assert!(cache.parse::<u64>().unwrap() > 7 && sample.parse::<u64>().unwrap() < 5);
        }
        let mut top = tool();
        assert_clean_output(
            "top",
            &finish(top.args(["top", "--once"]).arg(&guard.point)),
        );
        let mut umount = tool();
        assert_clean_output("umount", &finish(umount.arg("umount").arg(&guard.point)));
        assert_clean("the log", &fs::read(&log).unwrap());
    }
}

#[test]
fn no_control_character_of_a_cache_gets_to_a_terminal() {
    let place = place();
    let cache = hostile_cache(place.folder.path());
    let run = |words: &[&str], cache: &Path| {
        let mut command = tool();
        let output = finish(command.args(words).arg(cache));
        let what = words.join(" ");
        assert_clean_output(&what, &output);
        assert!(
            !output.stdout.is_empty() || !output.stderr.is_empty(),
            "{what}"
        );
        output
    };
    for words in [
        &["info"][..],
        &["info", "--json"],
        &["info", "--quick"],
        &["ls"],
        &["ls", "--json"],
        &["verify"],
        &["verify", "--json"],
        &["migrate", "--to", "3", "--dry-run"],
        &["migrate", "--to", "3", "--json"],
        &["cat"],
        &["doctor"],
        &["umount"],
        &["top", "--once"],
    ] {
        run(words, &cache.dir);
    }
    // Damage of other kinds, which names files and values.
    let damages: [(&str, &dyn Fn()); 4] = [
        ("length", &|| cache.append("shards/000000.bin", b"x")),
        ("missing", &|| {
            fs::remove_file(cache.path("shards/000002.bin")).unwrap()
        }),
        ("version", &|| cache.set_manifest("format_version", 9)),
        ("manifest", &|| {
            cache.put("manifest.json", format!("{{\"{HOSTILE}"))
        }),
    ];
    for (_, damage) in damages {
        damage();
        for words in [
            &["info"][..],
            &["verify"],
            &["verify", "--json"],
            &["ls"],
            &["migrate", "--to", "3"],
        ] {
            run(words, &cache.dir);
        }
        let mut mount = program();
        let output = finish(mount.arg(&cache.dir).arg(place.point("refused")));
        assert_eq!(output.status.code(), Some(1));
        assert_clean_output("a mount that is refused", &output);
    }
}

#[test]
fn no_control_character_of_a_source_gets_into_messages_of_pack() {
    let place = place();
    let source = place.folder.path().join(format!("source{HOSTILE}"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join(format!("a{}.txt", HOSTILE)), "x").unwrap();
    let link = source.join(format!("l{HOSTILE}"));
    symlink("nowhere", &link).unwrap();
    let table = place.folder.path().join(format!("t{HOSTILE}.csv"));
    fs::write(&table, "path,\"odd\u{1b}\u{202e}\"\nnot there,1\n").unwrap();
    let out = place.point("out");
    let pack = |words: &[&OsStr], source: &Path, status: i32| {
        let mut command = tool();
        command.args(["pack", "--name", "n"]).args(words);
        let output = finish(command.arg(source).arg(&out));
        assert_clean_output("pack", &output);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {output:?}");
    };
    let word = OsStr::new;
    pack(&[], &source, 1);
    fs::remove_file(&link).unwrap();
    pack(&[word("--metadata"), table.as_os_str()], &source, 1);
    pack(
        &[word("--metadata"), source.join("missing").as_os_str()],
        &source,
        1,
    );
    pack(
        &[],
        &place.folder.path().join(format!("missing{HOSTILE}")),
        1,
    );
    pack(&[word("--json"), word("--dry-run")], &source, 0);
    pack(&[], &source, 0);
    pack(&[], &source, 1);
}
