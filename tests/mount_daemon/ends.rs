//! Every way to end a mount, whoever made it and whatever it is used for at that moment.

use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Signal, geteuid};

use crate::common::mount::{
    MountGuard, USER, as_user, can_be_user, can_mount, finish, is_mounted, program, within,
};
use crate::{Place, assert_ready, place, text};

/// How it is ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Terminate,
    Interrupt,
    /// `umount` and `fusermount3 -u`, which the kernel refuses while the mount is used.
    Umount,
    Fusermount,
    Lazy,
    Kill,
}

const ENDS: [End; 6] = [
    End::Terminate,
    End::Interrupt,
    End::Umount,
    End::Fusermount,
    End::Lazy,
    End::Kill,
];

/// What it is used for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Use {
    Idle,
    OpenFile,
    WorkingFolder,
    Readers,
}

const USES: [Use; 4] = [Use::Idle, Use::OpenFile, Use::WorkingFolder, Use::Readers];

/// 64 processes that read until they get an error; wrong bytes are status 3.
const READERS: &str = r#"
for n in $(seq 64); do
    (while read -r line <"$0"; do [ "$line" = hello ] || exit 3; done) 2>/dev/null &
    readers="$readers $!"
done
echo started
for reader in $readers; do wait "$reader" || [ $? != 3 ] || exit 3; done
"#;

/// Whoever uses the mount; ended when dropped.
struct Holder(Option<Child>);

impl Drop for Holder {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The mount's owner, as whom everything is run.
#[derive(Clone, Copy)]
struct Owner<'a> {
    place: &'a Place,
    is_root: bool,
}

impl Owner<'_> {
    fn command(self, program: &str) -> Command {
        match self.is_root {
            true => {
                let mut command = Command::new(program);
                command.stdin(Stdio::null());
                command
            }
            false => as_user(self.place.folder.path(), program),
        }
    }

    fn daemon(self) -> Command {
        match self.is_root {
            true => program(),
            false => as_user(self.place.folder.path(), "datasetrt-mount"),
        }
    }

    fn holder(self, point: &Path, how: Use) -> Holder {
        let sample = point.join(self.place.tiny.sample);
        let mut command = match how {
            Use::Idle => return Holder(None),
            Use::OpenFile => {
                let mut command = self.command("sh");
                command.args(["-c", "exec <\"$0\"; echo started; exec sleep 60"]);
                command.arg(&sample);
                command
            }
            Use::WorkingFolder => {
                let mut command = self.command("sh");
                command.args(["-c", "cd \"$0\"; echo started; exec sleep 60"]);
                command.arg(sample.parent().unwrap());
                command
            }
            Use::Readers => {
                let mut command = self.command("sh");
                command.args(["-c", READERS]).arg(&sample);
                command
            }
        };
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut word = [0; 8];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut word).unwrap();
        Holder(Some(child))
    }

    /// Whether a command took the mount away; what it says otherwise is that the mount is busy.
    fn takes_away(self, words: &[&str], point: &Path) -> bool {
        let mut command = self.command(words[0]);
        command.args(&words[1..]).arg(point);
        let output = finish(command.stderr(Stdio::piped()));
        let said = text(&output);
        assert!(
            output.status.success() || said.contains("busy"),
            "{words:?}: {said}"
        );
        output.status.success()
    }
}

/// Ends a fresh mount in one way, and looks that nothing is left.
fn end(owner: Owner<'_>, end: End, used: Use) {
    let what = format!("root {}, {end:?}, {used:?}", owner.is_root);
    let mut guard = MountGuard::at(owner.place.point("m"));
    guard.foreground(owner.daemon(), &owner.place.tiny.cache);
    let mut holder = owner.holder(&guard.point, used);
    match end {
        End::Terminate => guard.signal(Signal::TERM),
        End::Interrupt => guard.signal(Signal::INT),
        End::Kill => guard.signal(Signal::KILL),
        End::Lazy => assert!(owner.takes_away(&["fusermount3", "-uz", "--"], &guard.point)),
        End::Umount | End::Fusermount => {
            let words: &[&str] = match end {
                End::Umount => &["umount", "--"],
                _ => &["fusermount3", "-u", "--"],
            };
            // An idle mount may be busy for a moment, by programs that tests beside this one start.
            let gone = within(|| owner.takes_away(words, &guard.point) || used != Use::Idle);
            assert!(gone, "{what}");
            if is_mounted(&guard.point) {
                // It was refused, and all goes on; the lazy way is the one for a busy mount.
                assert_ne!(used, Use::Idle, "{what}");
                let mut cat = owner.command("cat");
                let sample = guard.point.join(owner.place.tiny.sample);
                let read = finish(cat.arg(sample).stdout(Stdio::piped()));
                assert_eq!(read.stdout, owner.place.tiny.payload, "{what}");
                assert!(owner.takes_away(&["fusermount3", "-uz", "--"], &guard.point));
            }
        }
    }
    if end == End::Kill {
        assert_eq!(guard.status().signal(), Some(9), "{what}");
        assert!(is_mounted(&guard.point), "{what}: dead, but there");
        // The next start clears it.
        let again = guard.background(owner.daemon(), &owner.place.tiny.cache);
        assert_ready(&again);
        assert!(
            text(&again).contains("dead mount"),
            "{what}: {}",
            text(&again)
        );
        assert!(owner.takes_away(&["fusermount3", "-uz", "--"], &guard.point));
    }
    assert!(
        within(|| !is_mounted(&guard.point)),
        "{what}: still mounted"
    );
    if used == Use::Readers {
        // Nobody waits for ever: each has an error by now, or a folder without the file.
        let child = holder.0.as_mut().unwrap();
        assert!(
            within(|| child.try_wait().unwrap().is_some()),
            "{what}: readers hang"
        );
        assert!(child.wait().unwrap().success(), "{what}: wrong bytes");
    }
    // After a lazy unmount the daemon serves what is open to its end.
    drop(holder);
    if end != End::Kill {
        assert_eq!(guard.status().code(), Some(0), "{what}");
    }
    assert!(guard.is_gone(), "{what}");
    assert_eq!(fs::read_dir(&guard.point).unwrap().count(), 0, "{what}");
    // The folder is free for others.
    drop(File::open(&guard.point).unwrap());
}

#[test]
fn a_mount_of_root_ends_in_every_way_and_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let place = place();
    let owner = Owner {
        place: &place,
        is_root: true,
    };
    for how in ENDS {
        // Who is not root has no use for umount(8).
        if how == End::Umount && !geteuid().is_root() {
            continue;
        }
        for used in USES {
            end(owner, how, used);
        }
    }
}

#[test]
fn a_mount_of_a_user_ends_in_every_way_and_leaves_nothing() {
    if !can_mount() || !can_be_user() {
        return;
    }
    let place = place();
    chown(place.point("m"), Some(USER), Some(USER)).unwrap();
    let owner = Owner {
        place: &place,
        is_root: false,
    };
    for how in ENDS {
        for used in USES {
            end(owner, how, used);
        }
    }
}
