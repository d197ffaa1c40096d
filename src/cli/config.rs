//! `hostler config`: check and show the configuration.

use std::{io::Write, path::PathBuf};

use super::{CliFailure, CliOutcome, ConfigFileArgs};
use crate::config::DEFAULT_FILE;

/// Check or show the configuration
#[derive(clap::Args, Debug)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(clap::Subcommand, Debug)]
enum ConfigCommand {
    /// Report every mistake in the configuration, one line each
    Check(CheckedFileArgs),
    /// Show the configuration that is in force, defaults included, as TOML
    Show(CheckedFileArgs),
}

/// A configuration file, with or without its option in front.
#[derive(clap::Args, Debug)]
struct CheckedFileArgs {
    /// Configuration file, as --config
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    #[command(flatten)]
    args: ConfigFileArgs,
}

impl CheckedFileArgs {
    fn args(&self) -> ConfigFileArgs {
        ConfigFileArgs { config: self.file.clone().or_else(|| self.args.config.clone()) }
    }
}

pub(super) fn run(args: &ConfigArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    match &args.command {
        ConfigCommand::Check(file) => {
            let args = file.args();
            args.load()?;
            let usual = || Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.exists());
            match args.config.or_else(usual) {
                Some(path) => writeln!(out, "{} is in order", path.display())?,
                None => writeln!(out, "there is no {DEFAULT_FILE}: the defaults are in force")?,
            }
        }
        ConfigCommand::Show(file) => {
            let text = toml::to_string(&file.args().load()?)
                .map_err(|source| CliFailure::step("write the configuration as TOML", source))?;
            out.write_all(text.as_bytes())?;
        }
    }
    Ok(CliOutcome::Done)
}
