//! `hostler config`: check and show the configuration.

use std::io::Write;

use super::{ConfigArgs, Failure, Outcome};

/// Check or show the configuration
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Report every mistake in the configuration, one line each
    Check(ConfigArgs),
    /// Show the configuration that is in force, defaults included, as TOML
    Show(ConfigArgs),
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    match &args.command {
        Command::Check(args) => {
            args.load()?;
            writeln!(out, "the configuration is in order")?;
        }
        Command::Show(args) => {
            let text = toml::to_string(&args.load()?)
                .map_err(|source| Failure::step("write the configuration as TOML", source))?;
            out.write_all(text.as_bytes())?;
        }
    }
    Ok(Outcome::Done)
}
