//! File handles, as NFS servers use them, and mounts with mapped ids, as containers use them.

use std::process::{Command, Output};

use crate::common::mount::{MountGuard, can_mount, is_root, program};
use crate::{assert_ready, place, unmount};

/// The system's calls that no program at hand makes.
const CALLS: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("len", ctypes.c_uint), ("kind", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]
class Attr(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("set", "clear", "spread", "fd")]
def check(result):
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
"#;

/// Prints the handle of each path.
const HANDLES: &str = r#"
for path in sys.argv[1:]:
    found, mount = Handle(128), ctypes.c_int()
    check(libc.name_to_handle_at(-100, path.encode(), ctypes.byref(found), ctypes.byref(mount), 0))
    print(found.kind, bytes(found.bytes[:found.len]).hex())
"#;

/// Opens handles at a mountpoint, and prints the number of each node.
const OPEN: &str = r#"
mount = os.open(sys.argv[1], os.O_RDONLY)
for kind, text in zip(sys.argv[2::2], sys.argv[3::2]):
    data = bytes.fromhex(text)
    handle = Handle(len(data), int(kind), (ctypes.c_ubyte * 128)(*data))
    fd = check(libc.open_by_handle_at(mount, ctypes.byref(handle), 0))
    print(os.fstat(fd).st_ino)
"#;

/// Shows a mount with user 0 as user 1000, and prints who has a file of it, and its bytes.
const MAPPED: &str = r#"
pid = os.fork()
if pid == 0:
    check(libc.unshare(0x10000000))
    os.kill(os.getpid(), 19)
os.waitpid(pid, os.WUNTRACED)
try:
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{name}", "w") as ids:
            ids.write("0 1000 1000")
    users = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
    tree = check(libc.syscall(428, -100, sys.argv[1].encode(), 0x80001))
    attr = Attr(0x100000, 0, 0, users)
    check(libc.syscall(442, tree, b"", 0x1000, ctypes.byref(attr), 32))
    file = os.open(sys.argv[2], os.O_RDONLY, dir_fd=tree)
    print(os.fstat(file).st_uid, os.read(file, 100).decode().strip())
finally:
    os.kill(pid, 9)
"#;

/// Marks a folder and its whole file system for fanotify(7) with handles: the error number of each.
const WATCH: &str = r#"
watch = check(libc.fanotify_init(0x200, 0))
for scope in (0x1, 0x101):
    result = libc.fanotify_mark(watch, scope, ctypes.c_ulonglong(0x20), -100, sys.argv[1].encode())
    print(ctypes.get_errno() if result < 0 else 0)
"#;

fn python(script: &str, words: &[&str]) -> Output {
    let mut command = Command::new("python3");
    let script = format!("{CALLS}{script}");
    command.args(["-c", &script]).args(words).output().unwrap()
}

fn lines(output: &Output) -> Vec<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let shown = String::from_utf8_lossy(&output.stdout);
    shown.lines().map(str::to_owned).collect()
}

#[test]
fn a_file_handle_holds_on_each_mount_of_the_same_list() {
    if !can_mount() || !is_root("opening by handle") {
        return;
    }
    let place = place();
    let guard = MountGuard::at(place.point("mount"));
    let start = || assert_ready(&guard.background(program(), &place.tiny.cache));
    start();
    let at = guard.point.to_str().unwrap().to_owned();
    let paths = [
        "samples/0/1",
        "samples/0",
        "caches/0/metadata.arrow",
        "views",
    ];
    let paths = paths.map(|path| format!("{at}/{path}"));
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let handles = lines(&python(HANDLES, &paths));
    let numbers = || {
        let number = |path: &&str| {
            let found = rustix::fs::stat(*path).unwrap();
            found.st_ino.to_string()
        };
        paths.iter().map(number).collect::<Vec<_>>()
    };
    let before = numbers();
    unmount(&guard.point, false);
    assert!(guard.is_gone());
    start();
    // Nothing was looked up yet, so the kernel asks us.
    let words = handles.iter().flat_map(|handle| handle.split(' '));
    let words: Vec<&str> = std::iter::once(at.as_str()).chain(words).collect();
    assert_eq!(lines(&python(OPEN, &words)), before);
    assert_eq!(numbers(), before);
}

#[test]
fn fanotify_with_handles_watches_folders_and_not_the_whole_file_system() {
    if !can_mount() || !is_root("fanotify") {
        return;
    }
    let place = place();
    let guard = place.mounted("mount");
    let errors = lines(&python(WATCH, &[guard.point.to_str().unwrap()]));
    let no_device = rustix::io::Errno::NODEV.raw_os_error().to_string();
    assert_eq!(errors, ["0", &no_device]);
}

#[test]
fn a_mount_with_mapped_ids_shows_them_where_the_kernel_has_it() {
    if !can_mount() || !is_root("mapping the ids of a mount") {
        return;
    }
    let place = place();
    let guard = place.mounted("mount");
    let at = guard.point.to_str().unwrap();
    let mapped = python(MAPPED, &[at, place.tiny.sample]);
    let said = String::from_utf8_lossy(&mapped.stderr);
    if said.contains("Errno 22") {
        eprintln!("SKIPPED: this kernel maps no ids of FUSE mounts");
        return;
    }
    let shown = lines(&mapped);
    assert_eq!(shown, ["1000 hello"]);
}
