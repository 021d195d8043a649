//! `datasetrt top`: what a mount is doing, from its metrics.

mod metrics;
mod screen;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::output::{plain, written};
use super::refuse;
use super::tool::PROGRAM;
use crate::error::{Error, Result};
use crate::fuse;
use metrics::Metrics;
use screen::{Size, render};

// One line a paragraph: clap breaks lines where the terminal ends.
const DETAILS: &str = "\
Shows requests and bytes per second, how long requests take, the slowest samples and the memory, \
and refreshes until Ctrl-C or until the mount ends. When stdout is not a terminal, or with --once, \
one snapshot is printed, whose rates are those since the start of the mount.

Times are those of the daemon, without the way through the kernel. What the kernel has in memory \
is read without the daemon, and not counted.

Exit status: 0 good; 1 not a mount of ours, with the reason on stderr; 2 wrong usage.

Examples:
  datasetrt top /mnt/data
  datasetrt top --once /mnt/data";

/// From the top left corner on, over what is there.
const HOME: &str = "\x1b[H";
/// To the end of this line, and of the screen.
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// A mount that takes longer to answer hangs.
const ANSWER: Duration = Duration::from_secs(3);

/// What happens while a screen is shown.
enum Event {
    Stop,
    Looked(Result<Box<Metrics>>),
}

/// Watch what a mount is doing
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub struct Args {
    /// Where it is mounted
    mountpoint: PathBuf,

    /// Print one snapshot and end
    #[arg(long)]
    once: bool,

    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    interval: u32,
}

impl Args {
    /// Runs the command.
    #[must_use]
    pub fn run(&self) -> ExitCode {
        let path = self.mountpoint.clone();
        let first = match fuse::within(ANSWER, move || look(&path)) {
            Some(Ok(first)) => first,
            Some(Err(error)) => return refuse(PROGRAM, &error.chain(), false),
            None => return refuse(PROGRAM, &self.hung(), false),
        };
        let result = match self.once || !io::stdout().is_terminal() {
            true => {
                let lines = render(&self.shown(), &first, None, Size::UNBOUNDED);
                print(&(lines.join("\n") + "\n"))
            }
            false => self.watch(first),
        };
        written(PROGRAM, result, ExitCode::SUCCESS)
    }

    fn hung(&self) -> String {
        format!(
            "{}: no answer in {} s: its daemon is stopped, or waits for a disk",
            self.shown(),
            ANSWER.as_secs()
        )
    }

    fn shown(&self) -> String {
        plain(&self.mountpoint.to_string_lossy()).into_owned()
    }

    /// Shows one screen after the other.
    fn watch(&self, first: Metrics) -> io::Result<()> {
        let (sender, events) = mpsc::channel();
        stop_signals(sender.clone())?;
        let interval = Duration::from_secs(self.interval.into());
        let mut before: Option<Metrics> = None;
        let mut now = first;
        print(&format!("{HOME}{CLEAR_BELOW}"))?;
        loop {
            let size = Size::of_terminal();
            let lines = render(&self.shown(), &now, before.as_ref(), size);
            let end = format!("{CLEAR_LINE}\n");
            print(&format!(
                "{HOME}{}{CLEAR_LINE}\r\n{CLEAR_BELOW}",
                lines.join(&end)
            ))?;
            match events.recv_timeout(interval) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(_) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            before = Some(now);
            let (path, sender) = (self.mountpoint.clone(), sender.clone());
            // A mount that hangs must not hold up Ctrl-C.
            thread::Builder::new()
                .name("look".to_owned())
                .spawn(move || sender.send(Event::Looked(look(&path).map(Box::new))))?;
            now = match events.recv_timeout(ANSWER) {
                Ok(Event::Looked(Ok(now))) => *now,
                Ok(Event::Looked(Err(_))) => {
                    return print(&format!("{}: the mount has ended\n", self.shown()));
                }
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    return print(&format!("{}\n", self.hung()));
                }
            };
        }
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The metrics of the mount at `mountpoint`.
fn look(mountpoint: &Path) -> Result<Metrics> {
    let mut file = mountpoint.join(".control/metrics");
    let mut text = std::fs::read_to_string(&file);
    if let Err(error) = &text
        && error.kind() == io::ErrorKind::NotFound
    {
        // The control files may have a mount of their own, and this be it.
        file = mountpoint.join("metrics");
        text = std::fs::read_to_string(&file);
    }
    let text = match text {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let reason = "no datasetrt-mount lies here: there is no .control/metrics";
            return Err(Error::refused(mountpoint, reason));
        }
        Err(error) => return Err(Error::io(file, "read the metrics", error)),
    };
    Metrics::parse(&text).ok_or_else(|| {
        let reason = "these are not the metrics of a datasetrt-mount";
        Error::refused(file, reason)
    })
}

/// Gives a message when the program is asked to end.
fn stop_signals(sender: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for _ in &mut signals {
                if sender.send(Event::Stop).is_err() {
                    return;
                }
            }
        })?;
    Ok(())
}
