//! The daemon from outside: the real binary, with the kubelets, runtimes, API servers and devices of `tests/support`
//! around it.
//!
//! One program: every program links the whole daemon, and fifty of them took minutes and gigabytes.

#![allow(unreachable_pub, reason = "modules of a program")]
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test runs the binary, fails by panicking, and says what it skips"
)]

mod apiserver;
mod bitstream;
mod capture;
mod classic;
mod classic_cluster;
mod cli_commands;
mod cli_daemon;
mod cli_uses;
mod cluster_claims;
mod cluster_slices;
mod config;
mod containerd;
mod crash;
mod daemon;
mod deploy;
mod devices;
mod downgrade;
mod enforcement;
mod events;
mod fpga;
mod hang;
mod hanging;
mod interrupts;
mod kubelet_services;
mod manifests;
mod node_fabric;
mod node_hardware;
mod node_holds;
mod nri;
mod operator;
mod packaging;
mod pages;
mod pictures;
mod placement;
mod pod_resources;
mod pods;
mod policy_configuration;
mod policy_fabric;
mod policy_holds;
mod read_ahead;
mod scenarios;
mod scrape;
mod starvation;
mod terminal;
mod topology;
mod touches;
mod unallocated;
mod unread;
mod untrusted_files;
mod upgrade;
