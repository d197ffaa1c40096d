//! `hostler-controller`: one process per cluster that counts the cluster's hardware, shows it, and says what fits where.

mod cli;
mod config;
mod metrics;
mod model;
mod observe;
mod plan;
mod run;
mod serve;
mod view;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
