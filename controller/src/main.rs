//! `hostler-controller`: one process per cluster that counts the cluster's hardware, shows it, and says what fits where.

mod availability;
mod classic;
mod cli;
mod conditions;
mod config;
#[cfg(test)]
mod faults;
mod hardware;
mod lead;
mod metrics;
mod model;
mod observe;
mod plan;
mod remote;
mod reports;
mod run;
mod serve;
mod stock;
mod text_table;
mod view;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
