//! `hostler config`: check and show the configuration.

use std::io::Write;

use super::{CliFailure, CliOutcome, ConfigFileArgs};

/// Check or show the configuration
#[derive(clap::Args, Debug)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(clap::Subcommand, Debug)]
enum ConfigCommand {
    /// Report every mistake in the configuration, one line each
    Check(ConfigFileArgs),
    /// Show the configuration that is in force, defaults included, as TOML
    Show(ConfigFileArgs),
}

pub(super) fn run(args: &ConfigArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    match &args.command {
        ConfigCommand::Check(args) => {
            args.load()?;
            writeln!(out, "the configuration is in order")?;
        }
        ConfigCommand::Show(args) => {
            let text = toml::to_string(&args.load()?)
                .map_err(|source| CliFailure::step("write the configuration as TOML", source))?;
            out.write_all(text.as_bytes())?;
        }
    }
    Ok(CliOutcome::Done)
}
