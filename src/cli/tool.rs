//! `datasetrt`: dispatches to one file per subcommand.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use super::{Verbosity, demo, migrate, start_logging};

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
}

/// Parses the command line and runs it. Exit status: 0 good, 1 refused or damaged, 2 wrong usage.
#[must_use]
pub fn main() -> ExitCode {
    let tool = Tool::parse();
    // Only a log file can fail to open.
    let _ = start_logging("datasetrt", Verbosity::default(), None);
    match tool.command {
        Command::Demo(args) => args.run(),
        Command::Migrate(args) => args.run(),
    }
}
