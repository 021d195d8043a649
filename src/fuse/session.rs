//! The life of a mount: mount, serve, wait for a signal or an unmount from outside, leave nothing.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use fuser::{Config, SessionACL};
use rustix::fs::makedev;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use super::adapter::{Adapter, Mounted};
use super::confine::{self, Confinement};
use super::control::{self, Control, Unserved};
use super::device::{note_own, set_read_ahead};
use super::first_look::look;
use super::mount::{self, Mount, MountOptions, Mountpoint};
use super::mount_table::top_at;
use super::notify::Notifier;
use super::rehearse::rehearse;
use crate::error::{Error, Result};
use crate::storage::note_own_device;
use crate::vfs::{Ino, Vfs};

/// How long a fresh mount may take to answer its first request.
const FIRST_ANSWER: Duration = Duration::from_secs(30);

/// How long to wait for the last open file after a signal. Then the process ends, and with it they.
const LAST_CLOSE: Duration = Duration::from_secs(1);

const REHEARSE: &str = "start the threads that serve it, with their memory";
pub(super) const CONFINE: &str = "give up the rights that serving does not need";

/// How a mount is served.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Event threads.
    pub threads: usize,
    /// Whether SIGHUP unmounts; else it is somebody else's.
    pub ends_on_hangup: bool,
    /// What they may not do.
    pub confinement: Confinement,
}

/// How a session came to its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// This signal was received.
    Signal(i32),
    /// Somebody unmounted it.
    Unmounted,
    /// Somebody unmounted its control files.
    ControlUnmounted,
}

pub(super) enum Event {
    Signal(i32),
    Answered(io::Result<()>),
    Ended(io::Result<()>),
    ControlEnded(io::Result<()>),
}

/// A mount that answers. Dropping it unmounts.
pub struct Session {
    // Before the signals: unmounting comes first, also when a start fails half way.
    mount: Mount,
    control: Option<Control>,
    notifier: fuser::Notifier,
    events: Receiver<Event>,
    /// A signal that came before the first answer.
    stopped: Option<i32>,
    _signals: SignalWatch,
}

impl Session {
    /// Mounts `vfs` at `mountpoint`, and its control files alone at `control_at`, gives up what serving
    /// does not need, serves, and returns when the mount answers (or a signal came: see
    /// [`Self::stopped`]). The mount appears as the last step, where the kernel can do that.
    /// From here on SIGTERM, SIGINT and, if asked for, SIGHUP are ours (not where it is ignored: nohup).
    ///
    /// # Errors
    /// When mounting fails or the mount does not answer; nothing is left mounted then.
    pub fn start(
        vfs: Arc<Vfs>,
        mountpoint: &Mountpoint,
        control_at: Option<&Mountpoint>,
        options: &MountOptions,
        serve: ServeOptions,
    ) -> Result<Self> {
        let at = mountpoint.path();
        confine::gain_nothing().map_err(|source| Error::io(at, CONFINE, source))?;
        let (sender, events) = mpsc::channel();
        let signals = SignalWatch::start(sender.clone(), serve.ends_on_hangup)
            .map_err(|e| Error::io(at, "watch for signals", e))?;
        // Those of the control files too.
        let others = control_at.map_or(0, |_| event_threads(control::THREADS));
        let threads = event_threads(serve.threads).saturating_add(others);
        rehearse(threads).map_err(|source| Error::io(at, REHEARSE, source))?;
        let control = control_at.map(|at| Unserved::mount(&vfs, at, mountpoint, options));
        let control = control.transpose()?;
        let (connection, mount) = mount::mount(mountpoint, options)?;
        note_own(&mount);
        let greeted = greet(vfs, Ino::ROOT, connection, serve.threads, Mounted::Here)
            .map_err(|source| Error::io(at, "greet the kernel", source))?;
        set_read_ahead(&mount);
        let failed = |source| Error::io(at, CONFINE, source);
        serve.confinement.confine_process().map_err(failed)?;
        let confinement = || serve.confinement.clone();
        let control = control.map(|control| control.serve(confinement(), sender.clone()));
        let control = control.transpose()?;
        let notifier = run(greeted, confinement(), tell(sender.clone())).map_err(failed)?;
        let mut session = Self {
            mount,
            control,
            notifier,
            events,
            stopped: None,
            _signals: signals,
        };
        session.stopped = session.first_answer(sender)?;
        if session.stopped.is_none() {
            if let (Some(control), Some(at)) = (&mut session.control, control_at) {
                control.attach(at)?;
            }
            session.mount.attach(mountpoint)?;
        }
        Ok(session)
    }

    /// Serves `vfs` over a connection that somebody else opened and mounted, at `mountpoint` or
    /// wherever it shows in other mount namespaces. Whoever mounted it unmounts it; when this
    /// session ends before that, the mount is dead.
    ///
    /// # Errors
    /// When `connection` is not an open and mounted FUSE device.
    pub fn start_given(
        vfs: Arc<Vfs>,
        connection: OwnedFd,
        mountpoint: &Path,
        serve: ServeOptions,
    ) -> Result<Self> {
        mount::check_given(&connection)?;
        // Where it shows in this mount namespace.
        if let Ok(Some(there)) = top_at(mountpoint)
            && there.fstype.as_encoded_bytes().starts_with(b"fuse")
        {
            note_own_device(makedev(there.device.major, there.device.minor));
        }
        confine::gain_nothing().map_err(|source| Error::io(mountpoint, CONFINE, source))?;
        let (sender, events) = mpsc::channel();
        let signals = SignalWatch::start(sender.clone(), serve.ends_on_hangup)
            .map_err(|e| Error::io(mountpoint, "watch for signals", e))?;
        let greeted = greet(
            vfs,
            Ino::ROOT,
            connection,
            serve.threads,
            Mounted::Elsewhere,
        )
        .map_err(|source| {
            // What an open device says that was not mounted.
            if source.kind() == io::ErrorKind::PermissionDenied {
                Error::refused("--fuse-fd", "this /dev/fuse is not mounted: mount it first")
            } else {
                Error::io("--fuse-fd", "greet the kernel", source)
            }
        })?;
        let failed = |source| Error::io(mountpoint, CONFINE, source);
        serve.confinement.confine_process().map_err(failed)?;
        let notifier = run(greeted, serve.confinement, tell(sender)).map_err(failed)?;
        Ok(Self {
            mount: Mount::of_another(mountpoint),
            control: None,
            notifier,
            events,
            stopped: None,
            _signals: signals,
        })
    }

    /// The signal that came before the mount answered. It is not ready then, and [`Self::wait`] ends
    /// it at once.
    #[must_use]
    pub fn stopped(&self) -> Option<End> {
        self.stopped.map(End::Signal)
    }

    /// A way to make the kernel forget what it keeps of a file.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        let control = self.control.as_ref().map(|c| c.notifier.clone());
        Notifier::new(self.notifier.clone(), control)
    }

    /// Serves until a signal comes or somebody unmounts. `on_stop` runs before anything is taken
    /// away. Files still open are no obstacle: they end when the process does, which the caller has
    /// to see to.
    ///
    /// # Errors
    /// When serving failed, or the mount is still there and cannot be unmounted.
    pub fn wait(mut self, on_stop: impl FnOnce()) -> Result<End> {
        let end = loop {
            if let Some(signal) = self.stopped {
                break Ok(End::Signal(signal));
            }
            match self.events.recv() {
                Ok(Event::Signal(signal)) => break Ok(End::Signal(signal)),
                Ok(Event::Ended(Ok(()))) => break Ok(End::Unmounted),
                Ok(Event::ControlEnded(Ok(()))) => break Ok(End::ControlUnmounted),
                Ok(Event::Ended(Err(error)) | Event::ControlEnded(Err(error))) => break Err(error),
                Ok(Event::Answered(_)) => {}
                Err(_) => break Err(io::Error::other("the event threads are gone")),
            }
        };
        on_stop();
        let was_ours = self.mount.device().is_some();
        // Somebody may have unmounted it by the time that a signal is taken.
        let ended = self.has_ended(&end);
        let unmounted = match ended {
            true => self.mount.clear_dead(),
            false => self.mount.unmount(),
        };
        let control_ended = matches!(end, Ok(End::ControlUnmounted));
        let control = self.control.take().map(|c| c.unmount(control_ended));
        let unmounted = unmounted.and(control.unwrap_or(Ok(())));
        if let Ok(End::Signal(_) | End::ControlUnmounted) = end
            && was_ours
            && !ended
        {
            self.last_close();
        }
        let end =
            end.map_err(|source| Error::io(self.mount.mountpoint(), "serve the mount", source))?;
        unmounted.map(|()| end)
    }

    /// Whether the kernel has let go of the connection.
    fn has_ended(&self, end: &io::Result<End>) -> bool {
        matches!(end, Ok(End::Unmounted))
            || self
                .events
                .try_iter()
                .any(|event| matches!(event, Event::Ended(Ok(()))))
    }

    /// Waits until the mount answers a look from outside, or a signal comes. The looker has a thread of its own, so
    /// that a mount that does not answer cannot hang us.
    fn first_answer(&self, sender: Sender<Event>) -> Result<Option<i32>> {
        let at = self.mount.mountpoint().to_path_buf();
        let expected = self.mount.device();
        let failed = |source| {
            Error::io(
                self.mount.mountpoint(),
                "get a first answer from the mount",
                source,
            )
        };
        let path = at.clone();
        let tree = self.mount.tree();
        spawn("first-look", move || {
            // Without the descriptor by then: it would keep the mount busy.
            let _ = sender.send(Event::Answered(look(&path, tree, expected)));
        })
        .map_err(failed)?;
        match self.events.recv_timeout(FIRST_ANSWER) {
            Ok(Event::Answered(answer)) => answer.map(|()| None).map_err(failed),
            Ok(Event::Signal(signal)) => Ok(Some(signal)),
            Ok(Event::Ended(Err(source)) | Event::ControlEnded(Err(source))) => Err(failed(source)),
            Ok(Event::Ended(Ok(())) | Event::ControlEnded(Ok(()))) => {
                Err(Error::refused(at, "it was unmounted before it was ready"))
            }
            Err(RecvTimeoutError::Timeout) => Err(failed(io::ErrorKind::TimedOut.into())),
            Err(RecvTimeoutError::Disconnected) => {
                Err(failed(io::Error::other("the event threads are gone")))
            }
        }
    }

    fn last_close(&self) {
        let until = Instant::now() + LAST_CLOSE;
        while let Ok(event) = self
            .events
            .recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            if matches!(event, Event::Ended(_)) {
                return;
            }
        }
        log::info!("files are still open; they end with this process");
    }
}

/// One more, which hands on to others what may wait for a disk: see `Dispatcher`.
fn event_threads(asked: usize) -> usize {
    asked.max(1).saturating_add(1)
}

/// Answers the kernel's greeting, which waits on a mounted connection. The mount shows the folder `root`.
pub(super) fn greet(
    vfs: Arc<Vfs>,
    root: Ino,
    connection: OwnedFd,
    threads: usize,
    mounted: Mounted,
) -> io::Result<fuser::Session<Adapter>> {
    let mut config = Config::default();
    let threads = event_threads(threads);
    config.n_threads = Some(threads);
    // The kernel checks who may come in; fuser would check again on each request.
    let adapter = Adapter::new(vfs, root, threads, mounted);
    fuser::Session::from_fd(adapter, connection, SessionACL::All, config)
}

/// Tells the session how serving its mount has ended.
fn tell(session: Sender<Event>) -> impl FnOnce(io::Result<()>) {
    move |result| {
        // Nobody listens once the session was left.
        let _ = session.send(Event::Ended(result));
    }
}

/// Answers whatever the kernel asks, from a confined thread. `ended` hears how that has ended.
pub(super) fn run(
    session: fuser::Session<Adapter>,
    confinement: Confinement,
    ended: impl FnOnce(io::Result<()>) + Send + 'static,
) -> io::Result<fuser::Notifier> {
    let notifier = session.notifier();
    let (sender, confined) = mpsc::channel();
    spawn("serve", move || {
        let result = confinement.confine_thread();
        let serving = result.is_ok();
        // Whoever waits hears it, or is gone.
        let _ = sender.send(result);
        if serving {
            ended(session.run());
        }
    })?;
    let gone = |_| io::Error::other("the serving thread is gone");
    confined.recv().map_err(gone)??;
    Ok(notifier)
}

/// The usual name of a signal that we handle.
fn name(signal: i32) -> &'static str {
    match signal {
        SIGTERM => "SIGTERM",
        SIGINT => "SIGINT",
        SIGHUP => "SIGHUP",
        _ => "a signal",
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Signal(signal) => f.write_str(name(*signal)),
            Self::Unmounted => f.write_str("unmounted from outside"),
            Self::ControlUnmounted => f.write_str("its control files were unmounted from outside"),
        }
    }
}

/// Turns signals into events for as long as it lives.
struct SignalWatch(Handle);

impl SignalWatch {
    fn start(sender: Sender<Event>, ends_on_hangup: bool) -> io::Result<Self> {
        let mut watched = vec![SIGTERM, SIGINT];
        if ends_on_hangup && !hangup_is_ignored() {
            watched.push(SIGHUP);
        }
        let mut signals = Signals::new(watched)?;
        let handle = signals.handle();
        spawn("signals", move || {
            for signal in &mut signals {
                if sender.send(Event::Signal(signal)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self(handle))
    }
}

impl Drop for SignalWatch {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Whether this process was started with SIGHUP ignored, as nohup does.
#[must_use]
pub fn hangup_is_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map(drop)
}
