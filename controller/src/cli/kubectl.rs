//! The same program as a plugin of kubectl: by the name `kubectl-hostler`, which kubectl looks for, it has the commands
//! that answer questions and no others; by the name `kubectl_complete-hostler` it completes their command lines.

use std::{env, ffi::OsString, io, process::ExitCode};

use clap::{CommandFactory, Parser};
use hostler_cli::{
    completions::{Completions, write_for_kubectl},
    exit::EXIT_CODES,
    program::CommandLine,
};
use hostler_process::version;

use super::{error::CommandError, questions::QuestionCommand};
use crate::called::{CalledAs, PLUGIN};

/// Shows what hardware a cluster has, who holds it, and why a pod waits for it
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-hostler",
    bin_name = "kubectl hostler",
    display_name = "kubectl hostler",
    version = version(),
    propagate_version = true,
    arg_required_else_help = true,
    after_help = EXIT_CODES
)]
struct KubectlArgs {
    #[command(subcommand)]
    command: QuestionCommand,
}

/// Answers as the plugin; `None` if the program is not called by one of the plugin's names.
pub(super) fn main() -> Option<ExitCode> {
    match CalledAs::now() {
        CalledAs::Plugin => Some(plugin()),
        CalledAs::Completer => Some(completer()),
        CalledAs::Controller => None,
    }
}

fn plugin() -> ExitCode {
    let program = CommandLine {
        completions: Completions { program: PLUGIN, variable: "KUBECTL_HOSTLER_COMPLETE" },
        writes_bytes: |_: &KubectlArgs| false,
        dispatch: |args, out| args.command.answer(out),
        outcome: CommandError::outcome,
    };
    program.main()
}

fn completer() -> ExitCode {
    let words: Vec<OsString> = env::args_os().skip(1).collect();
    // What cannot be completed is not completed; a word about it would land in the middle of a command line.
    let _ = write_for_kubectl(KubectlArgs::command(), words, &mut io::stdout().lock());
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use hostler_cli::help::unexplained;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_explains_itself() {
        KubectlArgs::command().debug_assert();
        assert_eq!(unexplained(KubectlArgs::command()), Vec::<String>::new());
    }
}
