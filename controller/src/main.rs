//! `hostler-controller`: one process per cluster that counts the cluster's hardware, shows it, says what fits where, and in
//! clusters of 1.26 to 1.31 allocates it.

mod adopt;
mod askers;
mod availability;
mod called;
mod check_upgrade;
mod claim_write;
mod classic;
mod cli;
mod cluster_args;
mod conditions;
mod config;
mod convert;
mod daemons;
mod decision_queue;
mod deployed;
mod direct;
mod doctor;
mod explain;
mod fabric;
#[cfg(test)]
mod faults;
mod followed;
mod hardware;
mod held;
mod hold;
mod koordinator;
mod model;
mod model_owner;
mod node;
mod observe;
mod observed;
mod owner_pod;
mod places;
mod plan;
mod pod_gates;
mod pooled;
mod provision;
mod ready;
mod remote;
mod reports;
mod requests;
mod reservation_affinity;
mod reservation_object;
mod run;
mod serve;
mod stock;
#[cfg(test)]
mod testkit;
mod unscheduled_pods;
mod view;
mod webhook;
mod webhook_status;
mod why;

use std::process::ExitCode;

/// Name of the controller in Events.
const COMPONENT: &str = "hostler-controller";

fn main() -> ExitCode {
    cli::main()
}
