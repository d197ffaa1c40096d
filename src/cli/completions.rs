//! `hostler completions`: completion scripts for shells.

use std::io::Write;

use clap::CommandFactory;

use super::{Cli, CliFailure, CliOutcome};

/// Write a completion script for a shell to standard output
#[derive(clap::Args, Debug)]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: clap_complete::Shell,
}

pub(super) fn run(args: &CompletionsArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    // Generated into memory first: the generator panics when its writer fails, and a closed pipe must not look so.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "hostler", &mut script);
    out.write_all(&script)?;
    Ok(CliOutcome::Done)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_shell_gets_a_script_that_knows_the_subcommands() {
        for shell in clap_complete::Shell::value_variants() {
            let mut out = Vec::new();
            assert_eq!(run(&CompletionsArgs { shell: *shell }, &mut out).unwrap(), CliOutcome::Done);
            let script = String::from_utf8(out).unwrap();
            assert!(script.contains("inventory") && script.contains("doctor"), "{shell}");
        }
    }
}
