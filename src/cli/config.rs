//! `hostler config`: check and show the configuration.

use std::io::Write;

use hostler_cli::config::ConfigCommand;

use super::{CliFailure, CliOutcome, ConfigFileArgs};
use crate::config::{DEFAULT_FILE, DaemonConfig};

#[derive(clap::Args, Debug)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand<ConfigFileArgs>,
}

pub(super) fn run(args: &ConfigArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let load = |file: Option<&_>| {
        toml::to_string(&DaemonConfig::load_or_default(file)?)
            .map_err(|source| CliFailure::step("write the configuration as TOML", source))
    };
    args.command.run(DEFAULT_FILE, |args| args.config.as_deref(), load, out)?;
    Ok(CliOutcome::Done)
}
