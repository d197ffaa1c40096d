//! The command line: arguments in, exit codes out.

mod error;
mod kubectl;
mod questions;

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{CommandFactory, Parser};
use hostler_cli::{
    completions::{Completions, CompletionsArgs},
    config::ConfigCommand,
    exit::{CliOutcome, EXIT_CODES},
    man::{ManArgs, ManPages, config_page},
    program::CommandLine,
};
use hostler_process::{config::ConfigErrors, version};

use self::{error::CommandError, questions::QuestionCommand};
use crate::{
    called::PROGRAM,
    check_upgrade::{self, CheckUpgradeArgs},
    config::{ControllerConfig, DEFAULT_FILE},
    convert::{self, ConvertArgs},
    ready, run,
};

/// The program as completion scripts know it.
const COMPLETIONS: Completions = Completions { program: PROGRAM, variable: "HOSTLER_CONTROLLER_COMPLETE" };

/// The example that `make install` puts down: its comments are the one place where the keys are explained.
const EXAMPLE: &str = include_str!("../../systemd/controller.toml");

/// The cluster side of hostler: counts the hardware of all nodes and keeps it for whom it was promised
#[derive(Debug, Parser)]
#[command(
    name = "hostler-controller",
    version = version(),
    propagate_version = true,
    arg_required_else_help = true,
    after_help = EXIT_CODES
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
        command: ConfigCommand<ConfigArgs>,
    },
    #[command(flatten)]
    Question(QuestionCommand),
    CheckUpgrade(CheckUpgradeArgs),
    Convert(ConvertArgs),
    /// Check whether the running controller is ready, over the probe_socket of its configuration
    Ready(ReadyArgs),
    /// Write a completion script for a shell to standard output
    Completions(CompletionsArgs),
    /// Write the manual pages into a folder: man1 for the subcommands, man5 for the configuration file
    Man(ManArgs),
}

#[derive(clap::Args, Debug)]
struct ReadyArgs {
    /// Only whether it lives: it still answers, ready or not
    #[arg(long)]
    alive: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(clap::Args, Debug)]
struct ConfigArgs {
    /// Configuration file [default: /etc/hostler/controller.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Reads the arguments of the process, does what they ask for and returns the exit code. The name by which the program
/// is called decides which commands there are.
pub(crate) fn main() -> ExitCode {
    if let Some(code) = kubectl::main() {
        return code;
    }
    let program = CommandLine {
        completions: COMPLETIONS,
        writes_bytes: |args: &ControllerArgs| matches!(args.command, ControllerCommand::Completions(_)),
        dispatch: |args, out| dispatch(args.command, out),
        outcome: CommandError::outcome,
    };
    program.main()
}

fn dispatch(command: ControllerCommand, out: &mut dyn Write) -> Result<CliOutcome, CommandError> {
    match command {
        ControllerCommand::Run(args) => run::run(&args.read()?)?,
        ControllerCommand::Config { command } => config(&command, out)?,
        ControllerCommand::Question(question) => return question.answer(out),
        ControllerCommand::CheckUpgrade(args) => return Ok(check_upgrade::run(&args, out)?),
        ControllerCommand::Convert(args) => return Ok(convert::run(&args, out)?),
        ControllerCommand::Ready(args) => return ready(&args, out),
        ControllerCommand::Completions(args) => COMPLETIONS.write(&args, out)?,
        ControllerCommand::Man(args) => man(&args, out)?,
    }
    Ok(CliOutcome::Done)
}

fn ready(args: &ReadyArgs, out: &mut dyn Write) -> Result<CliOutcome, CommandError> {
    let config = args.config.read()?;
    let answer = ready::ask(config.probe_socket(), if args.alive { "/healthz" } else { "/readyz" })?;
    out.write_all(answer.text.as_bytes())?;
    Ok(if answer.is_yes { CliOutcome::Done } else { CliOutcome::NotInOrder })
}

fn config(command: &ConfigCommand<ConfigArgs>, out: &mut dyn Write) -> Result<(), CommandError> {
    let load = |file: Option<&Path>| Ok(ConfigArgs { config: file.map(Path::to_owned) }.read()?.to_string());
    command.run(DEFAULT_FILE, |args| args.config.as_deref(), load, out)
}

fn man(args: &ManArgs, out: &mut dyn Write) -> Result<(), CommandError> {
    let see_also = ".BR hostler\\-controller (1),\n.BR hostler.toml (5)\n";
    let pages = ManPages {
        command: ControllerArgs::command(),
        files: FILES,
        environment: ENVIRONMENT,
        completions: COMPLETIONS.variable,
        see_also: SEE_ALSO,
        config: ("controller.toml.5", config_page("controller.toml", "the hostler controller", EXAMPLE, see_also)),
    };
    pages.write(args)?;
    Ok(writeln!(out, "wrote the manual pages to {}", args.dir.display())?)
}

const FILES: &str = r#".TP
.I /etc/hostler/controller.toml
The configuration; see
.BR controller.toml (5).
.TP
.I ~/.kube/config
The cluster that commands ask, where neither an option nor a variable names another one.
"#;

const ENVIRONMENT: &str = r#".TP
.B KUBECONFIG
Kubeconfig of the cluster that commands ask; of several the first that is there.
"#;

const SEE_ALSO: &str = ".BR hostler\\-controller (1),\n.BR controller.toml (5),\n.BR hostler (1)\n";

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
        assert_eq!(unexplained(ControllerArgs::command()), Vec::<String>::new());
    }
}
