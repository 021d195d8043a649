//! `datasetrt-mount`: from the command line to a mount that answers, and to its end.

mod args;
mod background;
mod config;
mod memory;
mod options;
mod ready;
mod tree;

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use args::Args;
pub use args::{Sandbox, Validate};
pub use config::MountConfig;
pub(super) use memory::default_budget;
pub(super) use tree::check_apart;

use clap::CommandFactory;
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;

use self::background::Launcher;
use self::config::Wrong;
use self::ready::{ReadyFd, notify_manager};
use super::{EXIT_USAGE, LogOptions, log_file, refuse, start_logging, stderr};
use crate::dataset::Refusals;
use crate::error::{Error, Result};
use crate::fuse::{self, Confinement, MountOptions, Mountpoint, ServeOptions, Session, User};
use crate::storage;
use crate::vfs::Vfs;

const PROGRAM: &str = "datasetrt-mount";
/// How often unused memory is looked for.
const TIDY: Duration = Duration::from_secs(5);
/// How long a migration may take to end after the mount has.
const LAST_STEP: Duration = Duration::from_secs(10);
/// How long this process may last after its mount, whatever it waits for.
const LAST_MOMENTS: Duration = Duration::from_secs(20);

/// What is served on.
enum Place {
    /// A connection that was mounted by whoever started us.
    Premounted(OwnedFd),
    /// A directory to mount on.
    Taken(Mountpoint),
}

/// Runs the program with this process's command line.
#[must_use]
pub fn main() -> ExitCode {
    storage::hear_signals();
    stderr::bound();
    storage::ignore_file_size_signal();
    let command_line: Vec<OsString> = env::args_os().collect();
    let config = options::parse(&command_line)
        .map_err(Wrong::Usage)
        .and_then(MountConfig::resolve);
    let config = match config {
        Ok(config) => config,
        Err(Wrong::Usage(error)) => return usage(&error),
        Err(Wrong::Refused(error)) => return refuse(PROGRAM, &error.chain(), false),
    };
    if config.remount {
        let changed = fuse::remount(&config.mountpoint, config.read_only);
        return match changed {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => refuse(PROGRAM, &error.chain(), false),
        };
    }
    if !config.foreground && !config.background_half {
        let given = config.given_descriptors();
        return background::launch(&command_line, config.ready_fd, &given).unwrap_or_else(
            |error| {
                let reason = format!("cannot start the background process: {error}");
                refuse(PROGRAM, &reason, false)
            },
        );
    }
    let logged = config.log_file.is_some();
    match serve(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(PROGRAM, &error.chain(), logged),
    }
}

/// The command line, for manuals and completions.
#[must_use]
pub fn command_line() -> clap::Command {
    Args::command()
}

/// Prints what clap has to say: help and version to stdout with 0, the rest to stderr with 2.
fn usage(error: &clap::Error) -> ExitCode {
    // With stdout or stderr closed there is nobody to tell.
    let _ = error.print();
    if error.use_stderr() {
        ExitCode::from(EXIT_USAGE)
    } else {
        ExitCode::SUCCESS
    }
}

/// Mounts in this process and serves until the end.
fn serve(mut config: MountConfig) -> Result<()> {
    // Before anything is opened: see there.
    let ready_fd = config
        .ready_fd
        .filter(|_| !config.launcher_tells())
        .map(ReadyFd::adopt)
        .transpose();
    let ready_fd =
        ready_fd.map_err(|source| Error::io("--ready-fd", "take over the descriptor", source))?;
    let fuse_fd = config.fuse_fd.map(storage::take_inherited).transpose();
    let fuse_fd =
        fuse_fd.map_err(|source| Error::io("--fuse-fd", "take over the descriptor", source))?;
    let launcher = config.background_half.then(Launcher::connect).transpose();
    let launcher =
        launcher.map_err(|source| Error::io(PROGRAM, "reach the launching process", source))?;
    config.add_listed()?;
    let log_path = config.log_file.clone();
    let log_path = log_path.as_deref();
    let lines = Arc::default();
    let log = LogOptions {
        verbosity: config.verbosity,
        format: config.log_format,
        file: log_path,
        kept: Some(&lines),
    };
    start_logging(PROGRAM, log).map_err(|source| {
        Error::io(
            log_path.unwrap_or(Path::new("stderr")),
            "open the log",
            source,
        )
    })?;

    if log_path.is_some() {
        reopen_log_on_hangup().map_err(|e| Error::io(PROGRAM, "watch for signals", e))?;
    }
    for word in &config.ignored_words {
        log::debug!("-o {}: means nothing here", word.to_string_lossy());
    }
    storage::bound_free_memory();
    let user = config.user.as_deref().map(User::find).transpose()?;
    // Taken before anything that lasts: what is put in its place meanwhile is not mounted on.
    let place = match fuse_fd {
        Some(connection) => Place::Premounted(connection),
        None => Place::Taken(fuse::prepare(&config.mountpoint, config.allow_other)?),
    };
    let mountpoint = match &place {
        Place::Premounted(_) => config.mountpoint.clone(),
        Place::Taken(taken) => taken.path().to_path_buf(),
    };
    let control = config.control_at.as_deref();
    let control = control.map(|at| {
        tree::check_mountpoints(&mountpoint, &fuse::resolve(at)?)?;
        fuse::prepare(at, config.allow_other)
    });
    let control = control.transpose()?;
    let control_at = control.as_ref().map(|taken| taken.path().to_path_buf());
    let open = || tree::open(&config, &mountpoint, control_at.as_deref(), &lines);
    let vfs = Arc::new(match &user {
        Some(user) => user
            .acting(open)
            .map_err(|source| Error::io("--user", "become this user", source))??,
        None => open()?,
    });
    // While it can still be opened.
    let background_log = launcher.as_ref().map(|_| Launcher::open_log(log_path));
    let background_log = background_log
        .transpose()
        .map_err(|source| Error::io(&mountpoint, "go to the background", source))?;
    let serve = ServeOptions {
        threads: config.threads,
        ends_on_hangup: log_path.is_none(),
        confinement: Confinement {
            user,
            writable: (config.sandbox != Sandbox::Off).then(|| {
                let folders = vfs.writable_folders().into_iter();
                folders.chain(config.receipts.clone()).collect()
            }),
            filter_calls: config.sandbox == Sandbox::Full,
            must_hold: config.sandbox == Sandbox::Full,
        },
    };
    let options = MountOptions {
        allow_other: config.allow_other,
        noexec: config.noexec,
        // Commands come through the other mount.
        read_only: config.read_only || control_at.is_some(),
        source: config.source.clone(),
    };
    // Before the session, which gives up rights of the threads that there are.
    let confinement = serve.confinement.clone();
    let mut workers = vec![every(TIDY, "tidy", &vfs, Vfs::tidy)];
    if let Some(seconds) = config.watch {
        let pause = Duration::from_secs(seconds.get().into());
        workers.push(every(pause, "watch", &vfs, Vfs::rescan));
    }
    let last = last_resort();
    let at = mountpoint.as_path();
    let session = match place {
        Place::Premounted(connection) => {
            Session::start_given(Arc::clone(&vfs), connection, at, serve)?
        }
        Place::Taken(taken) => {
            Session::start(Arc::clone(&vfs), &taken, control.as_ref(), &options, serve)?
        }
    };
    // Others may start there again once this one has ended.
    drop(control);
    for worker in workers {
        // It is gone only where it could not be started.
        let _ = worker.send(confinement.clone());
    }
    let resolved = mountpoint.clone();
    let refusals = Refusals::default();
    vfs.on_rescan(move |dataset, known| {
        tree::look_again(
            &config,
            &resolved,
            control_at.as_deref(),
            dataset,
            known,
            &refusals,
        )
    });
    let notifier = session.notifier();
    vfs.on_forget(move |ino, stale| notifier.forget(ino, stale));
    let shown = at.display();
    if let Some(signal) = session.stopped() {
        log::warn!("{shown}: stopped by {signal} before the mount was ready");
    } else {
        if let (Some(launcher), Some(log)) = (launcher, &background_log) {
            let failed = |source| Error::io(at, "go to the background", source);
            launcher.detach(log).map_err(failed)?;
        }
        if let Some(ready_fd) = ready_fd {
            ready_fd.ready();
        }
        let pid = std::process::id();
        notify_manager(&format!("READY=1\nMAINPID={pid}\n"));
        log::info!("{shown}: mounted (process {pid})");
    }
    let end = session.wait(|| {
        notify_manager("STOPPING=1\n");
        vfs.stop_migration();
        vfs.stop_scrub();
    });
    // Unmounted: from here on nothing that hangs keeps this process.
    if end.is_ok() {
        // It is gone only where it could not be started.
        let _ = last.send(());
    }
    if !vfs.wait_for_migration(LAST_STEP) {
        log::warn!("{shown}: a migration waits for its disk; it ends with this process");
    }
    let end = end?;
    log::info!("{shown}: {end}");
    Ok(())
}

/// Opens the log anew at each SIGHUP, from now on.
fn reopen_log_on_hangup() -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP])?;
    let worker = thread::Builder::new().name("log".to_owned());
    let watch = move || {
        for _ in &mut signals {
            match log_file::reopen() {
                Ok(()) => log::info!("the log was opened anew (SIGHUP)"),
                Err(error) => log::error!("cannot open the log anew: {error}"),
            }
        }
    };
    worker.spawn(watch).map(drop)
}

/// Once something is sent, this process ends within [`LAST_MOMENTS`], whatever it waits for: a log
/// or a disk that hangs.
fn last_resort() -> Sender<()> {
    let (sender, unmounted) = mpsc::channel::<()>();
    let worker = thread::Builder::new().name("last-resort".to_owned());
    let started = worker.spawn(move || {
        if unmounted.recv().is_ok() {
            thread::sleep(LAST_MOMENTS);
            signal_hook::low_level::exit(0);
        }
    });
    if let Err(error) = started {
        log::warn!("cannot start the thread last-resort: {error}");
    }
    sender
}

/// Has `work` done again and again, for as long as the tree is there, by a thread that begins when it is
/// told what it may do: it reads what caches hold, as those that serve do.
fn every(
    pause: Duration,
    name: &'static str,
    vfs: &Arc<Vfs>,
    work: fn(&Vfs),
) -> Sender<Confinement> {
    let (sender, begin) = mpsc::channel::<Confinement>();
    let vfs = Arc::downgrade(vfs);
    let worker = thread::Builder::new().name(name.to_owned());
    let started = worker.spawn(move || {
        let Ok(confinement) = begin.recv() else {
            return;
        };
        if let Err(error) = confinement.confine_thread() {
            log::error!("the thread {name} cannot be confined, and does nothing: {error}");
            return;
        }
        loop {
            thread::sleep(pause);
            match vfs.upgrade() {
                Some(vfs) => work(&vfs),
                None => return,
            }
        }
    });
    if let Err(error) = started {
        log::warn!("cannot start the thread {name}: {error}");
    }
    sender
}
