//! The same program as a plugin of kubectl: by the name `kubectl-hostler`, which kubectl looks for, it has the commands
//! that answer questions and no others; by the name `kubectl_complete-hostler` it completes their command lines.

use std::{env, ffi::OsString, io, path::Path, process::ExitCode};

use clap::{CommandFactory, Parser};
use hostler_cli::{
    completions::{Completions, write_for_kubectl},
    exit::EXIT_CODES,
    program::CommandLine,
};

use super::{COMPLETIONS, error::CommandError, questions::QuestionCommand};

/// The file that kubectl starts for `kubectl hostler`.
const PLUGIN: &str = "kubectl-hostler";

/// The file that kubectl starts for completions of `kubectl hostler`.
const COMPLETER: &str = "kubectl_complete-hostler";

/// The plugin as its users know it.
const NAME: &str = "kubectl hostler";

/// What hardware the cluster has, who holds it, and why a pod waits for it
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-hostler",
    bin_name = "kubectl hostler",
    display_name = "kubectl hostler",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = EXIT_CODES
)]
struct KubectlArgs {
    #[command(subcommand)]
    command: QuestionCommand,
}

/// Returns the name by which users call this program.
pub(crate) fn program() -> &'static str {
    if called() == PLUGIN { NAME } else { COMPLETIONS.program }
}

/// Answers as the plugin; `None` if the program is not called by one of the plugin's names.
pub(super) fn main() -> Option<ExitCode> {
    match &*called() {
        PLUGIN => Some(plugin()),
        COMPLETER => Some(completer()),
        _ => None,
    }
}

fn called() -> String {
    let name = env::args_os().next().unwrap_or_default();
    Path::new(&name).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn plugin() -> ExitCode {
    let program = CommandLine {
        completions: Completions { program: NAME, variable: "KUBECTL_HOSTLER_COMPLETE" },
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
        assert!(unexplained(&KubectlArgs::command()).is_empty(), "{:?}", unexplained(&KubectlArgs::command()));
    }
}
