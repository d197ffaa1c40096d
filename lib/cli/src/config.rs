//! `config check` and `config show`.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};

/// The commands about the configuration. `C` has the option `--config`, which is explained by each program.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand<C: Args> {
    /// Report every mistake in the configuration, one line each
    Check(CheckedFileArgs<C>),
    /// Show the configuration that is in force, defaults included, as TOML
    Show(CheckedFileArgs<C>),
}

/// A configuration file, with or without its option in front.
#[derive(Args, Debug)]
pub struct CheckedFileArgs<C: Args> {
    /// Configuration file, as --config
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    #[command(flatten)]
    option: C,
}

impl<C: Args> ConfigCommand<C> {
    /// Does what the command says. `option` returns the file that the option names, and `load` the configuration as TOML;
    /// without a file that of `default` if it is there.
    pub fn run<E: From<io::Error>>(
        &self,
        default: &str,
        option: impl Fn(&C) -> Option<&Path>,
        load: impl FnOnce(Option<&Path>) -> Result<String, E>,
        out: &mut dyn Write,
    ) -> Result<(), E> {
        let (Self::Check(args) | Self::Show(args)) = self;
        let file = args.file.as_deref().or_else(|| option(&args.option));
        let text = load(file)?;
        match (self, file.or_else(|| Some(Path::new(default)).filter(|path| path.exists()))) {
            (Self::Show(_), _) => write!(out, "{text}")?,
            (Self::Check(_), Some(path)) => writeln!(out, "{} is in order", path.display())?,
            (Self::Check(_), None) => writeln!(out, "there is no {default}: the defaults are in force")?,
        }
        Ok(())
    }
}
