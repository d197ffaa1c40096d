//! The command line: arguments in, exit codes out.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser;
use hostler_api::Chain;
use hostler_process::config::ConfigErrors;

use crate::{
    availability::{self, AvailabilityArgs, AvailabilityError},
    config::{ControllerConfig, DEFAULT_FILE},
    explain::{self, ExplainArgs, ExplainError},
    held::{self, HoldsArgs, HoldsError},
    plan::{self, PlanArgs, PlanError, PlanOutcome},
    run::{self, RunError},
};

/// The cluster side of hostler: counts the hardware of all nodes and keeps it for whom it was promised
#[derive(Debug, Parser)]
#[command(name = "hostler-controller", version, arg_required_else_help = true)]
struct ControllerArgs {
    #[command(subcommand)]
    command: ControllerCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ControllerCommand {
    /// Run the controller until it is told to stop
    Run(ConfigArgs),
    /// Check a configuration file, and print what it comes to
    CheckConfig(ConfigArgs),
    Plan(PlanArgs),
    Availability(AvailabilityArgs),
    Explain(ExplainArgs),
    Holds(HoldsArgs),
}

#[derive(clap::Args, Debug)]
struct ConfigArgs {
    /// Configuration file [default: /etc/hostler/controller.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("failed to write the answer")]
    Output(#[from] io::Error),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Availability(Box<AvailabilityError>),
    #[error(transparent)]
    Explain(#[from] ExplainError),
    #[error(transparent)]
    Holds(Box<HoldsError>),
}

impl CommandError {
    /// Why an answer that was found could not be written.
    fn output(&self) -> Option<&io::Error> {
        match self {
            Self::Plan(PlanError::Output(error)) => Some(error),
            Self::Availability(error) => match &**error {
                AvailabilityError::Output(error) => Some(error),
                _ => None,
            },
            Self::Holds(error) => match &**error {
                HoldsError::Output(error) => Some(error),
                _ => None,
            },
            _ => None,
        }
    }
}

// What they say is long: on the heap it takes no room in every other answer.
impl From<AvailabilityError> for CommandError {
    fn from(error: AvailabilityError) -> Self {
        Self::Availability(error.into())
    }
}

impl From<HoldsError> for CommandError {
    fn from(error: HoldsError) -> Self {
        Self::Holds(error.into())
    }
}

/// What a command is said to have come to, by those that are asked something.
const NO: u8 = 1;
const NO_ANSWER: u8 = 2;

/// Runs the command; 1 when it could not do its work, 2 (clap's own) when it was called in a wrong way. Of a question, 1 is
/// the answer no, and 2 that there is none.
pub(crate) fn main() -> ExitCode {
    let done = match ControllerArgs::parse().command {
        ControllerCommand::Run(args) => run(&args).map(|()| ExitCode::SUCCESS),
        ControllerCommand::CheckConfig(args) => check_config(&args).map(|()| ExitCode::SUCCESS),
        ControllerCommand::Plan(args) => plan(&args),
        ControllerCommand::Availability(args) => availability(&args).map(|()| ExitCode::SUCCESS),
        ControllerCommand::Explain(args) => explain(&args).map(|()| ExitCode::SUCCESS),
        ControllerCommand::Holds(args) => holds(&args).map(|()| ExitCode::SUCCESS),
    };
    let error = match done {
        Ok(code) => return code,
        // A reader that has seen enough is no failure.
        Err(error) if error.output().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) => {
            return ExitCode::from(NO_ANSWER);
        }
        Err(error) => error,
    };
    // Whoever closed standard error does not want to know.
    let _ = writeln!(io::stderr(), "hostler-controller: {}", Chain(&error));
    if matches!(
        error,
        CommandError::Plan(_) | CommandError::Availability(_) | CommandError::Explain(_) | CommandError::Holds(_)
    ) {
        ExitCode::from(NO_ANSWER)
    } else {
        ExitCode::FAILURE
    }
}

fn plan(args: &PlanArgs) -> Result<ExitCode, CommandError> {
    let outcome = plan::run(args, &mut io::stdout())?;
    Ok(if outcome == PlanOutcome::Fits { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

fn availability(args: &AvailabilityArgs) -> Result<(), CommandError> {
    Ok(availability::run(args, &mut io::stdout())?)
}

fn explain(args: &ExplainArgs) -> Result<(), CommandError> {
    Ok(explain::run(args, &mut io::stdout())?)
}

fn holds(args: &HoldsArgs) -> Result<(), CommandError> {
    Ok(held::run(args, &mut io::stdout())?)
}

fn run(args: &ConfigArgs) -> Result<(), CommandError> {
    Ok(run::run(&args.read()?)?)
}

fn check_config(args: &ConfigArgs) -> Result<(), CommandError> {
    Ok(write!(io::stdout(), "{}", args.read()?)?)
}

impl ConfigArgs {
    /// The file that is named must be there; the default one need not be.
    fn read(&self) -> Result<ControllerConfig, ConfigErrors> {
        match &self.config {
            Some(path) => ControllerConfig::read(path),
            None if Path::new(DEFAULT_FILE).exists() => ControllerConfig::read(Path::new(DEFAULT_FILE)),
            None => Ok(ControllerConfig::default()),
        }
    }
}
