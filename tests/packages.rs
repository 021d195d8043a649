//! What is given away: the files that packages take, the container files, and the package itself.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may panic"
)]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Set to 1 to make, install and use the .deb: it takes a minute, root and overlayfs.
const OPT_IN: &str = "DATASETRT_TEST_DEB";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The sources of the assets in Cargo.toml.
fn assets() -> Vec<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let list = manifest.split_once("assets = [\n").unwrap().1;
    let list = list.split_once("\n]").unwrap().0;
    list.lines()
        .filter(|line| !line.trim().starts_with('#'))
        .map(|line| {
            line.trim()
                .trim_start_matches("[\"")
                .split('"')
                .next()
                .unwrap()
                .to_owned()
        })
        .collect()
}

#[test]
fn every_file_that_the_package_takes_is_there() {
    for source in assets() {
        if source.starts_with("target/release/") {
            continue;
        }
        let path = root().join(&source);
        let name = path.file_name().unwrap().to_str().unwrap();
        let (start, end) = name.split_once('*').unwrap_or((name, ""));
        let found = fs::read_dir(path.parent().unwrap())
            .unwrap()
            .flatten()
            .any(|entry| {
                let file = entry.file_name();
                let file = file.to_str().unwrap();
                file.starts_with(start) && file.ends_with(end)
            });
        assert!(found, "{source}");
    }
}

/// The long options in a text.
fn options(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    words
        .filter(|word| word.starts_with("--") && word.len() > 2)
        .collect()
}

#[test]
fn the_container_files_use_options_that_exist() {
    let known = datasetrt::cli::mount::command_line();
    let known: BTreeSet<_> = known
        .get_arguments()
        .filter_map(|arg| arg.get_long())
        .collect();
    for file in ["Dockerfile", "pod.yaml"] {
        let text = fs::read_to_string(root().join("scripts/packaging").join(file)).unwrap();
        let lines = text.lines().filter(|line| {
            let line = line.trim_start();
            line.starts_with("ENTRYPOINT") || line.starts_with("exec datasetrt-mount")
        });
        let used: Vec<&str> = lines.flat_map(options).collect();
        assert!(used.contains(&"--foreground"), "{file}");
        for option in used {
            assert!(known.contains(&option[2..]), "{file}: {option}");
        }
    }
    let pod = fs::read_to_string(root().join("scripts/packaging/pod.yaml")).unwrap();
    assert!(pod.contains("Bidirectional") && pod.contains("HostToContainer"));
}

#[test]
fn the_pod_is_yaml() {
    let line = "import sys, yaml; pod = yaml.safe_load(open(sys.argv[1])); \
                print(pod['kind'], len(pod['spec']['initContainers']), len(pod['spec']['containers']))";
    let file = root().join("scripts/packaging/pod.yaml");
    let output = Command::new("python3")
        .args(["-c", line])
        .arg(file)
        .output();
    match output {
        Ok(output) if output.status.success() => assert_eq!(output.stdout, b"Pod 1 1\n"),
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("No module named") => {
            eprintln!("SKIPPED: no yaml for python3");
        }
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => eprintln!("SKIPPED: no python3"),
    }
}

fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}{errors}");
    said
}

/// Whether `lines` has the entry of a crate with the text of a licence; `line` is its first one.
fn has_licence(lines: &[&str], line: &str) -> bool {
    let start = lines.iter().position(|found| *found == line);
    let entry = start.and_then(|start| lines.get(start + 1..start + 4));
    let Some([licence, source, texts]) = entry else {
        return false;
    };
    let numbers = texts.split('[').skip(1).map(|rest| rest.split(']').next());
    let numbers: Vec<_> = numbers.flatten().collect();
    let is_there = |number: &&str| {
        let head = format!("[{number}]");
        let text = lines.iter().position(|found| *found == head);
        // An empty line, then the text.
        text.and_then(|at| lines.get(at + 2))
            .is_some_and(|line| !line.is_empty() && !line.starts_with("==="))
    };
    licence.starts_with("    licence: ")
        && source.starts_with("    source: http")
        && !numbers.is_empty()
        && numbers.iter().all(is_there)
}

#[test]
fn the_licence_of_each_crate_that_is_linked_is_in_the_notices() {
    let folder = tempfile::tempdir().unwrap();
    let notices = folder.path().join("THIRD-PARTY");
    run(Command::new(root().join("scripts/third-party.py")).arg(&notices));
    let notices = fs::read_to_string(notices).unwrap();
    let lines: Vec<&str> = notices.lines().collect();
    let tree = run(Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["tree", "--locked", "--offline", "--edges", "normal"])
        .args(["--prefix", "none", "--format", "{p}"]));
    let crates: BTreeSet<String> = tree
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(" v")?;
            let version = rest.split(' ').next()?;
            (name != "datasetrt").then(|| format!("{name} {version}"))
        })
        .collect();
    assert!(crates.len() > 50 && crates.iter().any(|line| line.starts_with("fuser ")));
    for line in &crates {
        assert!(has_licence(&lines, line), "{line}");
    }
    assert!(!has_licence(&lines, "datasetrt 0.1.0"));
    // The C library that one of them builds in.
    assert!(notices.contains("zstd/LICENSE ["));
}

/// In a mount namespace where /usr, /etc and /var are written to memory: nothing stays behind.
const INSTALL_AND_USE: &str = r#"
    mount -t tmpfs none "$1"
    for part in usr etc var; do
        mkdir -p "$1/$part/upper" "$1/$part/work"
        mount -t overlay overlay -o "lowerdir=/$part,upperdir=$1/$part/upper,workdir=$1/$part/work" "/$part"
    done
    dpkg -i "$2"
    mkdir "$1/caches" "$1/mnt"
    datasetrt demo "$1/demo"
    datasetrt-mount "$1/demo" "$1/mnt"; ls "$1/mnt/samples" | wc -l; datasetrt umount "$1/mnt"
    mount -t fuse.datasetrt-mount "$1/demo" "$1/mnt"; ls "$1/mnt/samples" | wc -l; umount "$1/mnt"
    [ -f /usr/lib/systemd/system/datasetrt-mount@.service ]
    [ -f /usr/share/bash-completion/completions/datasetrt-mount ]
    [ -f /usr/share/man/man1/datasetrt-mount.1.gz ]
    grep -q '^fuser ' /usr/share/doc/datasetrt-mount/THIRD-PARTY
    dpkg -s datasetrt-mount | grep -q '^Depends: .*fuse3'
    dpkg -r datasetrt-mount
    [ ! -e /usr/bin/datasetrt-mount ]
"#;

#[test]
fn the_package_installs_mounts_and_goes_away() {
    if std::env::var_os(OPT_IN).as_deref() != Some(OsStr::new("1")) {
        eprintln!("SKIPPED: set {OPT_IN}=1 to make and install the package");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_datasetrt")).parent().unwrap();
    let said = run(Command::new(root().join("scripts/release.sh"))
        .arg("--from")
        .arg(built)
        .arg(folder.path())
        .env("DEB_COMPRESSION", "gzip"));
    println!("{said}");
    assert!(said.contains(" us until a mount"), "{said}");
    let files: Vec<PathBuf> = fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    let deb = files
        .iter()
        .find(|file| file.extension() == Some(OsStr::new("deb")))
        .unwrap();
    run(Command::new("sha256sum")
        .args(["-c", "SHA256SUMS"])
        .current_dir(folder.path()));
    let space = folder.path().join("space");
    fs::create_dir(&space).unwrap();
    let said = run(Command::new("unshare")
        .args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-euc",
            INSTALL_AND_USE,
            "-",
        ])
        .args([&space, deb]));
    assert_eq!(
        said.lines().filter(|line| *line == "2").count(),
        2,
        "{said}"
    );
}
