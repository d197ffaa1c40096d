//! `hostler ready`: whether the running daemon is ready, for probes that run a command.

use std::{io::Write, path::PathBuf};

use super::{CliFailure, CliOutcome, ConfigFileArgs, client::probe};
use crate::config::ListenAddress;

/// Check whether the daemon is ready, or stands by ready to take over
#[derive(clap::Args, Debug)]
pub(super) struct ReadyArgs {
    /// Only whether it lives: it still decides about claims, ready or not. Hardware that does not answer is not cured by a
    /// restart
    #[arg(long)]
    alive: bool,
    /// Socket to ask: the admin socket, or the one of figures and probes; without it metrics.listen of the configuration
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigFileArgs,
}

/// Prints what `/readyz` or `/healthz` says; in order if that is a yes.
pub(super) fn run(args: &ReadyArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let path = if args.alive { "/healthz" } else { "/readyz" };
    let listen = match &args.socket {
        Some(socket) => ListenAddress::Unix(socket.clone()),
        None => args.config.load()?.metrics_listen(),
    };
    let (status, answer) = probe(&listen, path)?;
    out.write_all(&answer)?;
    Ok(if status.is_success() { CliOutcome::Done } else { CliOutcome::NotInOrder })
}
