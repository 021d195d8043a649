//! `datasetrt`: dispatches to one file per subcommand.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use super::demo;

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
}

/// Parses the command line and runs it. Exit status: 0 good, 1 refused or damaged, 2 wrong usage.
#[must_use]
pub fn main() -> ExitCode {
    match Tool::parse().command {
        Command::Demo(args) => args.run(),
    }
}
