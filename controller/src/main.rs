//! `hostler-controller`: one process per cluster that will count the cluster's hardware, keep what was promised and attach
//! what is far away. So far it reads its configuration, asks the API server what it serves, and says what is missing.

mod cli;
mod config;
mod plan;
mod start;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
