//! Other mount namespaces: without the device, with a slave's view, and with a mount made by another.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::mount::{MountGuard, can_mount, finish, is_mounted, is_root};
use crate::{Place, place, text};

fn can_unshare() -> bool {
    can_mount() && is_root("a mount namespace")
}

/// Runs `script` in a mount namespace of its own; `$0` is the program, `$1` the cache, `$2` the
/// mountpoint, and what follows are `more`.
fn run(place: &Place, script: &str, more: &[&OsStr]) -> Output {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-euc", script])
        .arg(env!("CARGO_BIN_EXE_datasetrt-mount"))
        .arg(&place.tiny.cache)
        .arg(place.point("m"))
        .args(more)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    finish(&mut command)
}

#[test]
fn without_the_device_it_says_so_at_once() {
    if !can_unshare() {
        return;
    }
    let place = place();
    let script =
        "mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; exec \"$0\" \"$1\" \"$2\"";
    let output = run(&place, script, &[]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    assert!(
        said.contains("/dev/fuse") && said.contains("--device /dev/fuse"),
        "{said}"
    );

    let script = "exec setpriv --bounding-set=-sys_admin \"$0\" \"$1\" \"$2\"";
    let output = run(&place, script, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("CAP_SYS_ADMIN"), "{}", text(&output));
}

#[test]
fn a_consumer_elsewhere_sees_the_mount_and_the_next_one() {
    if !can_unshare() {
        return;
    }
    let place = place();
    let shared = place.point("shared");
    // The consumer starts before anything is mounted and answers each line with what it reads.
    let script = "
        mount -t tmpfs none \"$3\"; mount --make-shared \"$3\"; mkdir \"$3/m\" \"$3/pipes\"
        mkfifo \"$3/pipes/ask\" \"$3/pipes/answer\"
        unshare --mount --propagation slave sh -c '
            exec 3<\"$1/pipes/ask\" 4>\"$1/pipes/answer\"
            while read -r path <&3; do
                # The file is closed before the answer: nothing of it is in use then.
                found=$(cat \"$1/m/$path\") || found=none
                echo \"$found\" >&4
            done' - \"$3\" &
        consumer=$!; trap 'kill \"$consumer\" 2>&- || :' EXIT
        exec 5>\"$3/pipes/ask\" 6<\"$3/pipes/answer\"
        look() { echo samples/0/0 >&5; read -r found <&6; [ \"$found\" = \"$1\" ]; }
        look none 2>&-
        \"$0\" \"$1\" \"$3/m\"; look hello
        umount \"$3/m\"; look none 2>&-
        \"$0\" \"$1\" \"$3/m\"; look hello
        # A killed one: the next clears its leftover, there too.
        pid=$(sed -n 's/.*\"pid\": \\([0-9]*\\).*/\\1/p' \"$3/m/.control/status\")
        kill -9 \"$pid\"
        while stat -f \"$3/m\" >/dev/null 2>&1; do sleep 0.02; done
        \"$0\" \"$1\" \"$3/m\"; look hello
        umount \"$3/m\"; exec 5>&-; wait";
    let output = run(&place, script, &[shared.as_os_str()]);
    assert!(output.status.success(), "{}", text(&output));
}

/// Opens /dev/fuse as descriptor 7, mounts it at `$2`, and leaves all else to what follows.
const MOUNTED_BY_ANOTHER: &str = "
    exec 7<>/dev/fuse
    mount -i -t fuse.datasetrt-mount -o fd=7,rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other \
        given \"$2\"";

#[test]
fn a_daemon_that_may_not_mount_serves_what_another_mounted() {
    if !can_unshare() {
        return;
    }
    let place = place();
    // No capability, another user, and without the mount in sight.
    let script = format!(
        "{MOUNTED_BY_ANOTHER}
        mkfifo \"$3\"
        setpriv --reuid 1000 --regid 1000 --clear-groups --bounding-set=-all --no-new-privs \
            \"$4\" -f --fuse-fd 7 --ready-fd 8 \"$1\" /not/here 8>\"$3\" &
        exec 7>&-
        read -r ready <\"$3\"; [ \"$ready\" = READY=1 ]
        [ \"$(cat \"$2/samples/0/0\")\" = hello ]
        umount \"$2\"; wait $!"
    );
    let pipe = place.folder.path().join("pipe");
    let program = copied(&place);
    let output = run(&place, &script, &[pipe.as_os_str(), program.as_os_str()]);
    assert!(output.status.success(), "{}", text(&output));

    // In the background, and ended by a signal: whoever mounted it has the dead mount to unmount.
    let script = format!(
        "{MOUNTED_BY_ANOTHER}
        \"$0\" \"$1\" /dev/fd/7
        exec 7>&-
        [ \"$(cat \"$2/samples/0/0\")\" = hello ]
        kill $(sed -n 's/.*\"pid\": \\([0-9]*\\).*/\\1/p' \"$2/.control/status\")
        for n in $(seq 100); do ls \"$2\" >/dev/null 2>&1 || break; sleep 0.02; done
        ! ls \"$2\" 2>/dev/null
        umount \"$2\""
    );
    let output = run(&place, &script, &[]);
    assert!(output.status.success(), "{}", text(&output));
}

/// The program where an ordinary user can run it.
fn copied(place: &Place) -> std::path::PathBuf {
    let copy = place.folder.path().join("program");
    let mut cp = Command::new("cp");
    cp.arg(env!("CARGO_BIN_EXE_datasetrt-mount")).arg(&copy);
    assert!(finish(&mut cp).status.success());
    copy
}

#[test]
fn a_descriptor_that_cannot_serve_is_refused_with_the_reason() {
    if !can_unshare() {
        return;
    }
    let place = place();
    for (open, reason) in [
        ("7</dev/null", "not /dev/fuse"),
        ("7<>/dev/fuse", "not mounted"),
        ("7<&-", "cannot take over the descriptor"),
    ] {
        for foreground in ["", "-f"] {
            let script = format!("exec \"$0\" {foreground} --fuse-fd 7 \"$1\" \"$2\" {open}");
            let output = run(&place, &script, &[]);
            assert_eq!(output.status.code(), Some(1), "{open}");
            assert!(text(&output).contains(reason), "{open}: {}", text(&output));
        }
    }
}

#[test]
fn the_mount_helper_drops_privileges_before_we_run() {
    if !can_unshare() || !Path::new("/sbin/mount.fuse").exists() {
        return;
    }
    let place = place();
    let guard = MountGuard::at(place.point("m"));
    let mut path = OsStr::new(env!("CARGO_BIN_EXE_datasetrt-mount")).to_owned();
    path.push("#");
    path.push(&place.tiny.cache);
    let mut mount = Command::new("mount");
    mount
        .args(["-t", "fuse", "-o", "drop_privileges,allow_other,nofail"])
        .arg(&path)
        .arg(&guard.point)
        .stderr(Stdio::piped());
    let output = finish(&mut mount);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(guard.read(place.tiny.sample).unwrap(), place.tiny.payload);
    assert!(
        finish(Command::new("umount").arg(&guard.point))
            .status
            .success()
    );
    assert!(!is_mounted(&guard.point));
}
