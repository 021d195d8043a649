//! `datasetrt`: dispatches to one file per subcommand.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::storage;

use super::{
    LogOptions, cat, demo, doctor, info, ls, migrate, pack, refuse, start_logging, top, umount,
    verify,
};

/// The name that messages start with.
pub(super) const PROGRAM: &str = "datasetrt";

/// Make, check and explain DatasetRT caches.
#[derive(Debug, Parser)]
#[command(name = "datasetrt", version, disable_help_subcommand = true)]
struct Tool {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Args),
    Migrate(migrate::Args),
    Pack(pack::Args),
    Verify(verify::Args),
    Info(info::Args),
    Ls(ls::Args),
    Cat(cat::Args),
    Top(top::Args),
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
    storage::hear_signals();
    storage::ignore_file_size_signal();
    let tool = Tool::parse();
    if let Err(error) = start_logging(PROGRAM, LogOptions::default()) {
        return refuse(PROGRAM, &format!("cannot start the log: {error}"), false);
    }
    match tool.command {
        Command::Demo(args) => args.run(),
        Command::Migrate(args) => args.run(),
        Command::Pack(args) => args.run(),
        Command::Verify(args) => args.run(),
        Command::Info(args) => args.run(),
        Command::Ls(args) => args.run(),
        Command::Cat(args) => args.run(),
        Command::Top(args) => args.run(),
        Command::Umount(args) => args.run(),
        Command::Doctor(args) => args.run(),
    }
}
