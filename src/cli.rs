//! The command line: all commands, and the ways in which answers and failures leave the process.
//!
//! Every subcommand has a file of its own that reads arguments, calls the library and renders the answer. Nothing else
//! writes to standard output or standard error. [`hostler_cli::exit`] lists the exit codes.

mod bitstream;
mod capture;
mod capture_manifest;
mod cdi;
mod claim;
mod client;
mod completions;
mod config;
mod device;
mod diff;
mod doctor;
mod events;
mod explain;
mod fit;
pub mod hook;
mod host_facts;
mod inventory;
mod machine;
mod machine_capture;
mod man;
mod names;
mod picture;
mod pods;
mod ready;
mod run;
mod save;
mod status;
mod top;
mod validate;
mod watch;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use hostler_cli::{
    completions::CompletionsArgs,
    deferred::Deferred,
    exit::{CliOutcome, EXIT_CODES},
    man::{ManArgs, ManError},
    output, parts, plain,
    program::CommandLine,
    screen, table,
};
use hostler_process::version;

use crate::config::{ConfigErrors, DaemonConfig};

/// Prepares this host's hardware for the containers that run on it, and takes it back clean.
#[derive(Debug, Parser)]
#[command(name = "hostler", version = version(), after_help = EXIT_CODES, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run the daemon until it is told to stop; with --root a rehearsal on a captured machine, away from this host's claims
    Run(Deferred<run::RunArgs>),
    /// Show the hardware that hostler finds, here or in a captured tree; needs neither the daemon nor root
    Inventory(Deferred<inventory::InventoryArgs>),
    /// Take what hostler reads of this machine into a file: no addresses, no host name, pseudonyms for serial numbers
    Capture(Deferred<capture::CaptureArgs>),
    /// Say what is different between two machines, or between two moments of one
    Diff(Deferred<diff::DiffArgs>),
    /// Create, show and take back claims, through the running daemon
    Claim(Deferred<claim::ClaimArgs>),
    /// List devices, take them out of service and put them back, through the running daemon
    Device(Deferred<device::DeviceArgs>),
    /// Show which pods and containers hold which devices, CPUs and memory, with their NUMA nodes
    Pods(Deferred<pods::PodsArgs>),
    /// Keep the bitstreams that claims may name for FPGAs
    Bitstream(Deferred<bitstream::BitstreamArgs>),
    /// Check and list CDI files
    Cdi(Deferred<cdi::CdiArgs>),
    /// Check or show the configuration
    Config(Deferred<config::ConfigArgs>),
    /// Check the configuration of devices in manifests of claims, templates and device classes
    Validate(Deferred<validate::ValidateArgs>),
    /// Show how the running daemon is
    Status(Deferred<status::StatusArgs>),
    /// Show the machine live: packages, NUMA nodes, caches, cores and devices, who holds them, and the load of each CPU
    Top(Deferred<top::TopArgs>),
    /// Show what has changed of claims and devices since the daemon started, and what failed; the latest last
    Events(Deferred<events::EventsArgs>),
    /// Check whether the daemon is ready, or stands by ready to take over
    Ready(Deferred<ready::ReadyArgs>),
    /// Say what is missing or wrong on this host for hostler, each with the fix
    Doctor(Deferred<doctor::DoctorArgs>),
    /// Say why a claim failed, what it waits for or holds, and what would fit
    Explain(Deferred<explain::ExplainArgs>),
    /// Write a completion script for a shell to standard output; it completes devices and claims of the running
    /// daemon, too
    Completions(Deferred<CompletionsArgs>),
    /// Write the manual pages into a folder: man1 for the subcommands, man5 for the configuration file
    Man(Deferred<ManArgs>),
}

/// The option that every subcommand with a configuration takes.
#[derive(clap::Args, Debug, Default)]
struct ConfigFileArgs {
    /// Configuration file; without it /etc/hostler/hostler.toml if there is one, else the defaults
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigFileArgs {
    fn load(&self) -> Result<DaemonConfig, ConfigErrors> {
        DaemonConfig::load_or_default(self.config.as_deref())
    }
}

/// Why a subcommand could not do its work.
#[derive(Debug, thiserror::Error)]
enum CliFailure {
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    #[error("failed to write the answer")]
    Output(#[from] io::Error),
    #[error(transparent)]
    Client(#[from] client::ClientError),
    #[error(transparent)]
    Man(#[from] ManError),
    #[error("{0}")]
    Said(String),
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Incomparable(Box<CliFailure>),
    #[error("failed to {step}")]
    Step {
        step: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl CliFailure {
    fn step(step: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Step { step: step.into(), source: source.into() }
    }

    fn outcome(&self) -> CliOutcome {
        match self {
            Self::Output(error) => CliOutcome::of_output(error),
            Self::Config(_) => CliOutcome::WrongConfig,
            Self::Incomparable(_) => CliOutcome::NoAnswer,
            Self::Usage(_) => CliOutcome::WrongUsage,
            _ => CliOutcome::Failed,
        }
    }
}

impl CliCommand {
    /// True if the output is for programs that want it byte for byte.
    fn writes_bytes(&self) -> bool {
        match self {
            Self::Capture(Deferred(args)) => args.is_to_stdout(),
            Self::Completions(_) => true,
            _ => false,
        }
    }
}

/// Reads the arguments of the process, does what they ask for and returns the exit code.
pub fn main() -> ExitCode {
    let program = CommandLine {
        completions: completions::COMPLETIONS,
        writes_bytes: |cli: &Cli| cli.command.writes_bytes(),
        dispatch: |cli, out| dispatch(cli.command, out),
        outcome: CliFailure::outcome,
    };
    program.main()
}

fn dispatch(command: CliCommand, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    match command {
        CliCommand::Run(Deferred(args)) => run::run(&args),
        CliCommand::Inventory(Deferred(args)) => inventory::run(&args, out),
        CliCommand::Capture(Deferred(args)) => capture::run(&args, out),
        CliCommand::Diff(Deferred(args)) => diff::run(&args, out),
        CliCommand::Claim(Deferred(args)) => claim::run(args, out),
        CliCommand::Device(Deferred(args)) => device::run(&args, out),
        CliCommand::Pods(Deferred(args)) => pods::run(&args, out),
        CliCommand::Bitstream(Deferred(args)) => bitstream::run(&args, out),
        CliCommand::Cdi(Deferred(args)) => cdi::run(&args, out),
        CliCommand::Config(Deferred(args)) => config::run(&args, out),
        CliCommand::Validate(Deferred(args)) => validate::run(&args, out),
        CliCommand::Status(Deferred(args)) => status::run(&args, out),
        CliCommand::Top(Deferred(args)) => top::run(&args, out),
        CliCommand::Events(Deferred(args)) => events::run(&args, out),
        CliCommand::Ready(Deferred(args)) => ready::run(&args, out),
        CliCommand::Doctor(Deferred(args)) => doctor::run(&args, out),
        CliCommand::Explain(Deferred(args)) => explain::run(&args, out),
        CliCommand::Completions(Deferred(args)) => {
            completions::COMPLETIONS.write(&args, out)?;
            Ok(CliOutcome::Done)
        }
        CliCommand::Man(Deferred(args)) => man::run(&args, out),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use hostler_cli::help::unexplained;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_and_option_explains_itself() {
        assert_eq!(unexplained(Cli::command()), Vec::<String>::new());
    }

    #[test]
    fn a_wrong_configuration_has_an_exit_code_of_its_own() {
        let errors = DaemonConfig::load(std::path::Path::new("/nonexistent/hostler.toml")).unwrap_err();
        assert!(errors.to_string().starts_with("/nonexistent/hostler.toml: failed to read"), "{errors}");
        assert_eq!(CliFailure::from(errors).outcome(), CliOutcome::WrongConfig);
    }
}
