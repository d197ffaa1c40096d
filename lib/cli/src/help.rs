//! Finds what a command line does not explain.

use clap::Command;

/// Commands and options without a word of help.
pub fn unexplained(mut command: Command) -> Vec<String> {
    // Some are described only when they are called, or all are.
    command.build();
    without_help(&command)
}

fn without_help(command: &Command) -> Vec<String> {
    let name = command.get_name();
    let itself = command.get_about().is_none().then(|| name.to_owned());
    let arguments = command.get_arguments().filter(|argument| argument.get_help().is_none());
    let arguments = arguments.map(|argument| format!("{name} {}", argument.get_id()));
    let below = command.get_subcommands().flat_map(without_help);
    itself.into_iter().chain(arguments).chain(below).collect()
}
