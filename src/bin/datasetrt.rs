//! `datasetrt`: the tool.

use std::process::ExitCode;

fn main() -> ExitCode {
    datasetrt::cli::tool::main()
}
