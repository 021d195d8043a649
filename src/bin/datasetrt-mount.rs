//! `datasetrt-mount`: the mount daemon.

use std::process::ExitCode;

fn main() -> ExitCode {
    datasetrt::cli::mount::main()
}
