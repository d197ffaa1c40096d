//! The command line: what can be asked for, and how answers and failures leave the process.
//!
//! Every subcommand has a file of its own that reads arguments, calls the library and renders the answer. Nothing else
//! writes to standard output or standard error.
//!
//! Exit codes:
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done; a reader that went away early (`hostler … \| head`) is no failure |
//! | 1 | failed, or what was checked is not in order; of `diff`: there are differences |
//! | 2 | wrong usage; of `diff`: there was nothing to compare |
//! | 78 | the configuration is wrong (`EX_CONFIG`; systemd shows it as CONFIG) |

mod bitstream;
mod capture;
mod cdi;
mod claim;
mod client;
mod completions;
mod config;
mod device;
mod diff;
mod doctor;
mod explain;
mod fit;
pub mod hook;
mod inventory;
mod machine;
mod man;
mod names;
mod output;
mod paint;
mod picture;
mod plain;
mod pods;
mod ready;
mod run;
mod save;
mod status;
mod top;
mod validate;
mod watch;
mod yaml;

use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use hostler_api::{Chain, plain_line};
use hostler_cli::{
    screen::{self, Screen},
    table,
};
use hostler_process::is_output_gone;

use self::{paint::PaintWriter, plain::PlainWriter};
use crate::config::{ConfigErrors, DaemonConfig};

const AFTER_HELP: &str = "Exit codes: 0 done, 1 failed or not in order, 2 wrong usage, 78 the configuration is wrong.";

/// Prepares this host's hardware for the containers that run on it, and takes it back clean.
#[derive(Debug, Parser)]
#[command(name = "hostler", version, after_help = AFTER_HELP, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    Run(run::RunArgs),
    Inventory(inventory::InventoryArgs),
    Capture(capture::CaptureArgs),
    Diff(diff::DiffArgs),
    Claim(claim::ClaimArgs),
    Device(device::DeviceArgs),
    Pods(pods::PodsArgs),
    Bitstream(bitstream::BitstreamArgs),
    Cdi(cdi::CdiArgs),
    Config(config::ConfigArgs),
    Validate(validate::ValidateArgs),
    Status(status::StatusArgs),
    Top(top::TopArgs),
    Ready(ready::ReadyArgs),
    Doctor(doctor::DoctorArgs),
    Explain(explain::ExplainArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
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

/// How a subcommand ended that could do its work.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum CliOutcome {
    /// All is well.
    Done,
    /// What was looked at is not in order; the output says why.
    NotInOrder,
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
    #[error("{0}")]
    Said(String),
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
}

impl CliCommand {
    /// Whether the output is for programs that want it byte for byte.
    fn writes_bytes(&self) -> bool {
        match self {
            Self::Capture(args) => args.is_to_stdout(),
            Self::Completions(_) | Self::Man(_) => true,
            _ => false,
        }
    }
}

/// Reads the arguments of the process, does what they ask and gives the exit code.
pub fn main() -> ExitCode {
    if completions::complete() {
        return ExitCode::SUCCESS;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too. A closed pipe is no reason to fail.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let screen = screen::set(Screen::of_stdout());
    let bytes = cli.command.writes_bytes();
    // Colours come last: what others have named is nothing but text by then.
    let painted = PaintWriter::new(BufWriter::new(io::stdout().lock()), screen.colours && !bytes);
    let mut out = BufWriter::new(PlainWriter::new(painted, bytes));
    let result = dispatch(cli.command, &mut out).and_then(|outcome| {
        out.flush()?;
        Ok(outcome)
    });
    // Not locked before there is something to say: a log that nobody reads keeps the lock.
    exit_code(result, &mut PlainWriter::new(io::stderr(), false))
}

fn dispatch(command: CliCommand, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    match command {
        CliCommand::Run(args) => run::run(&args),
        CliCommand::Inventory(args) => inventory::run(&args, out),
        CliCommand::Capture(args) => capture::run(&args, out),
        CliCommand::Diff(args) => diff::run(&args, out),
        CliCommand::Claim(args) => claim::run(args, out),
        CliCommand::Device(args) => device::run(&args, out),
        CliCommand::Pods(args) => pods::run(&args, out),
        CliCommand::Bitstream(args) => bitstream::run(&args, out),
        CliCommand::Cdi(args) => cdi::run(&args, out),
        CliCommand::Config(args) => config::run(&args, out),
        CliCommand::Validate(args) => validate::run(&args, out),
        CliCommand::Status(args) => status::run(&args, out),
        CliCommand::Top(args) => top::run(&args, out),
        CliCommand::Ready(args) => ready::run(&args, out),
        CliCommand::Doctor(args) => doctor::run(&args, out),
        CliCommand::Explain(args) => explain::run(&args, out),
        CliCommand::Completions(args) => completions::run(&args, out),
        CliCommand::Man(args) => man::run(&args, out),
    }
}

fn exit_code(result: Result<CliOutcome, CliFailure>, err: &mut dyn Write) -> ExitCode {
    let failure = match result {
        Ok(CliOutcome::Done) => return ExitCode::SUCCESS,
        Ok(CliOutcome::NotInOrder) => return ExitCode::from(1),
        // Readers that have seen enough, and terminals that have gone away, are no failure.
        Err(CliFailure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe || is_output_gone() => {
            return ExitCode::SUCCESS;
        }
        Err(failure) => failure,
    };
    // Nobody is left to tell if this fails.
    let _ = match &failure {
        // One line per mistake, each with its own place in front, as compilers do.
        CliFailure::Config(errors) => writeln!(err, "{errors}"),
        other => writeln!(err, "hostler: {}", plain_line(&Chain(other).to_string())),
    };
    ExitCode::from(match failure {
        CliFailure::Config(_) => 78,
        CliFailure::Incomparable(_) => 2,
        _ => 1,
    })
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
        assert!(unexplained(&Cli::command()).is_empty(), "{:?}", unexplained(&Cli::command()));
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        let gone = CliFailure::Output(io::ErrorKind::BrokenPipe.into());
        let mut err = Vec::new();
        assert_eq!(exit_code(Err(gone), &mut err), ExitCode::SUCCESS);
        assert!(err.is_empty());
    }

    #[test]
    fn a_failure_shows_its_whole_chain() {
        let mut err = Vec::new();
        let failure = CliFailure::step("open /x", io::Error::other("disk full"));
        assert_eq!(exit_code(Err(failure), &mut err), ExitCode::from(1));
        assert_eq!(String::from_utf8(err).unwrap(), "hostler: failed to open /x: disk full\n");
    }

    #[test]
    fn a_wrong_configuration_has_an_exit_code_of_its_own() {
        let mut err = Vec::new();
        let errors = DaemonConfig::load(std::path::Path::new("/nonexistent/hostler.toml")).unwrap_err();
        assert_eq!(exit_code(Err(errors.into()), &mut err), ExitCode::from(78));
        assert!(String::from_utf8(err).unwrap().starts_with("/nonexistent/hostler.toml: failed to read"));
    }
}
