//! `datasetrt`: dispatches to one file per subcommand.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use super::cat::{self, CatArgs};
use super::verify::{self, VerifyArgs};
use super::{LogOptions, demo, doctor, migrate, pack, refuse, start_logging, umount};

/// The name that messages start with.
pub(super) const PROGRAM: &str = "datasetrt";

/// Make, check and explain DatasetRT caches.
#[derive(Debug, Parser)]
#[command(name = "datasetrt", version, about, disable_help_subcommand = true)]
struct Tool {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Args),
    Migrate(migrate::Args),
    Pack(pack::Args),
    Verify(VerifyArgs),
    Cat(CatArgs),
    Umount(umount::Args),
    Doctor(doctor::Args),
}

/// The command line, for manuals and completions.
#[must_use]
pub fn command_line() -> clap::Command {
    Tool::command()
}

/// Parses the command line and runs it. Exit status: 0 good, 1 refused or damaged, 2 wrong usage.
#[must_use]
pub fn main() -> ExitCode {
    let tool = Tool::parse();
    if let Err(error) = start_logging(PROGRAM, LogOptions::default()) {
        return refuse(PROGRAM, &format!("cannot start the log: {error}"), false);
    }
    match tool.command {
        Command::Demo(args) => args.run(),
        Command::Migrate(args) => args.run(),
        Command::Pack(args) => args.run(),
        Command::Verify(args) => verify::run(&args),
        Command::Cat(args) => cat::run(&args),
        Command::Umount(args) => args.run(),
        Command::Doctor(args) => args.run(),
    }
}
