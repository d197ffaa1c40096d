//! The command line: arguments in, exit codes out.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{CommandFactory, Parser};
use clap_complete::Shell;
use hostler_api::Chain;
use hostler_cli::{
    completions::Completions,
    man::{ManPages, config_page},
    screen::{self, Screen},
};
use hostler_process::config::ConfigErrors;

use crate::{
    availability::{self, AvailabilityArgs, AvailabilityError},
    config::{ControllerConfig, DEFAULT_FILE},
    explain::{self, ExplainArgs, ExplainError},
    held::{self, HoldsArgs, HoldsError},
    plan::{self, PlanArgs, PlanError, PlanOutcome},
    ready::{self, ReadyError},
    run::{self, RunError},
};

const AFTER_HELP: &str = "Exit codes: 0 done, or the answer is yes; 1 failed, or the answer is no; 2 wrong usage, or no answer; 78 the \
    configuration is wrong.";

/// The program as completion scripts know it.
const COMPLETIONS: Completions = Completions { program: "hostler-controller", variable: "HOSTLER_CONTROLLER_COMPLETE" };

/// The example that `make install` puts down: its comments are the one place where the keys are explained.
const EXAMPLE: &str = include_str!("../../systemd/controller.toml");

/// The cluster side of hostler: counts the hardware of all nodes and keeps it for whom it was promised
#[derive(Debug, Parser)]
#[command(
    name = "hostler-controller",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = AFTER_HELP
)]
struct ControllerArgs {
    #[command(subcommand)]
    command: ControllerCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ControllerCommand {
    /// Run the controller until it is told to stop
    Run(ConfigArgs),
    /// Check or show the configuration
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    Plan(PlanArgs),
    Availability(AvailabilityArgs),
    Explain(ExplainArgs),
    Holds(HoldsArgs),
    /// Check whether the running controller is ready, over the probe_socket of its configuration
    Ready(ReadyArgs),
    /// Write a completion script for a shell to standard output
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages into a folder: man1 for the subcommands, man5 for the configuration file
    Man {
        /// The folder that holds man1 and man5; all are made where they are not there
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
}

#[derive(clap::Args, Debug)]
struct ReadyArgs {
    /// Only whether it lives: it still answers, ready or not
    #[arg(long)]
    alive: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigCommand {
    /// Report every mistake in the configuration, one line each
    Check(CheckedFile),
    /// Show the configuration that is in force, defaults included, as TOML
    Show(CheckedFile),
}

#[derive(clap::Args, Debug)]
struct ConfigArgs {
    /// Configuration file [default: /etc/hostler/controller.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// A configuration file, with or without its option in front.
#[derive(clap::Args, Debug)]
struct CheckedFile {
    /// Configuration file, as --config
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    #[command(flatten)]
    args: ConfigArgs,
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
    #[error(transparent)]
    Ready(#[from] ReadyError),
    #[error("failed to write manual pages to {}", dir.display())]
    Man {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl CommandError {
    /// Why an answer that was found could not be written.
    fn output(&self) -> Option<&io::Error> {
        match self {
            Self::Output(error) | Self::Explain(ExplainError::Output(error)) | Self::Plan(PlanError::Output(error)) => {
                Some(error)
            }
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

// These errors are long: on the heap they take no room in every other answer.
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

/// Exit codes of questions: the answer no, and no answer.
const NO: u8 = 1;
const NO_ANSWER: u8 = 2;
/// `EX_CONFIG`: systemd shows it as CONFIG, and the unit does not start the program again.
const WRONG_CONFIG: u8 = 78;

/// Reads the arguments of the process, does what they ask and returns the exit code.
pub(crate) fn main() -> ExitCode {
    if COMPLETIONS.answer(ControllerArgs::command) {
        return ExitCode::SUCCESS;
    }
    let command = ControllerArgs::parse().command;
    screen::set(Screen::of_stdout());
    let error = match dispatch(command) {
        Ok(code) => return code,
        // A reader that has seen enough is no failure.
        Err(error) if error.output().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) => {
            return ExitCode::SUCCESS;
        }
        Err(error) => error,
    };
    // A closed standard error has no reader.
    let _ = match &error {
        // One line per mistake, each with its own place in front, as compilers do.
        CommandError::Config(errors) | CommandError::Explain(ExplainError::Config(errors)) => {
            writeln!(io::stderr(), "{errors}")
        }
        other => writeln!(io::stderr(), "hostler-controller: {}", Chain(other)),
    };
    match error {
        CommandError::Config(_) | CommandError::Explain(ExplainError::Config(_)) => ExitCode::from(WRONG_CONFIG),
        CommandError::Plan(_) | CommandError::Availability(_) | CommandError::Explain(_) | CommandError::Holds(_) => {
            ExitCode::from(NO_ANSWER)
        }
        CommandError::Run(_) | CommandError::Output(_) | CommandError::Man { .. } | CommandError::Ready(_) => {
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: ControllerCommand) -> Result<ExitCode, CommandError> {
    let out = &mut io::stdout();
    match command {
        ControllerCommand::Run(args) => run::run(&args.read()?)?,
        ControllerCommand::Config { command } => config(&command, out)?,
        ControllerCommand::Plan(args) => {
            let outcome = plan::run(&args, out)?;
            return Ok(if outcome == PlanOutcome::Fits { ExitCode::SUCCESS } else { ExitCode::from(NO) });
        }
        ControllerCommand::Availability(args) => availability::run(&args, out)?,
        ControllerCommand::Explain(args) => explain::run(&args, out)?,
        ControllerCommand::Holds(args) => held::run(&args, out)?,
        ControllerCommand::Ready(args) => return ready(&args, out),
        ControllerCommand::Completions { shell } => out.write_all(&COMPLETIONS.script(shell)?)?,
        ControllerCommand::Man { dir } => man(&dir, out)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn ready(args: &ReadyArgs, out: &mut dyn Write) -> Result<ExitCode, CommandError> {
    let config = args.config.read()?;
    let answer = ready::ask(config.probe_socket(), if args.alive { "/healthz" } else { "/readyz" })?;
    out.write_all(answer.text.as_bytes())?;
    Ok(if answer.is_yes { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

fn config(command: &ConfigCommand, out: &mut dyn Write) -> Result<(), CommandError> {
    match command {
        ConfigCommand::Check(file) => {
            let args = file.args();
            args.read()?;
            match args.path() {
                Some(path) => writeln!(out, "{} is in order", path.display())?,
                None => writeln!(out, "there is no {DEFAULT_FILE}: the defaults are in force")?,
            }
        }
        ConfigCommand::Show(file) => write!(out, "{}", file.args().read()?)?,
    }
    Ok(())
}

fn man(dir: &Path, out: &mut dyn Write) -> Result<(), CommandError> {
    let see_also = ".BR hostler\\-controller (1),\n.BR hostler.toml (5)\n";
    let pages = ManPages {
        command: ControllerArgs::command(),
        sections: MAN_SECTIONS,
        config: ("controller.toml.5", config_page("controller.toml", "the hostler controller", EXAMPLE, see_also)),
    };
    pages.write(dir).map_err(|source| CommandError::Man { dir: dir.to_owned(), source })?;
    Ok(writeln!(out, "wrote the manual pages to {}", dir.display())?)
}

/// Files and variables, whatever the command: they are the same for all.
const MAN_SECTIONS: &str = r#".SH FILES
.TP
.I /etc/hostler/controller.toml
The configuration; see
.BR controller.toml (5).
.TP
.I ~/.kube/config
The cluster that commands ask, where neither an option nor a variable names another one.
.SH ENVIRONMENT
.TP
.B KUBECONFIG
Kubeconfig of the cluster that commands ask; of several the first that is there.
.TP
.B JOURNAL_STREAM
Set by systemd. Where it means standard error, lines of the log have a priority in front, as in
.BR sd\-daemon (3).
.TP
.B HOSTLER_CONTROLLER_COMPLETE
Set by the completion scripts of shells while they ask.
.SH "SEE ALSO"
.BR hostler\-controller (1),
.BR controller.toml (5),
.BR hostler (1)
"#;

impl CheckedFile {
    fn args(&self) -> ConfigArgs {
        ConfigArgs { config: self.file.clone().or_else(|| self.args.config.clone()) }
    }
}

impl ConfigArgs {
    /// Reads the configuration. The file that is named must be there; the default one need not be.
    fn read(&self) -> Result<ControllerConfig, ConfigErrors> {
        self.path().map_or_else(|| Ok(ControllerConfig::default()), |path| ControllerConfig::read(&path))
    }

    fn path(&self) -> Option<PathBuf> {
        let usual = || Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.exists());
        self.config.clone().or_else(usual)
    }
}

#[cfg(test)]
mod tests {
    use hostler_cli::help::unexplained;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        ControllerArgs::command().debug_assert();
    }

    #[test]
    fn every_subcommand_and_option_explains_itself() {
        assert!(unexplained(&ControllerArgs::command()).is_empty(), "{:?}", unexplained(&ControllerArgs::command()));
    }
}
