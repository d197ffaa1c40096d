//! `hostler ready`: whether the running daemon is ready, for probes that run a command.

use std::{io::Write, path::PathBuf};

use super::{
    CliFailure, CliOutcome, ConfigFileArgs,
    client::{ClientError, probe},
};
use crate::config::ListenAddress;

#[derive(clap::Args, Debug)]
pub(super) struct ReadyArgs {
    /// Only whether it lives: it still decides about claims, ready or not. Hardware that does not answer is not
    /// cured by a restart
    #[arg(long)]
    alive: bool,
    /// Socket to ask: of probes, of the command line, or of figures; without it probe.sock in the paths.run of the
    /// configuration, and metrics.listen for users who may not ask there
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigFileArgs,
}

/// Prints what `/readyz` or `/healthz` says; in order if that is a yes.
pub(super) fn run(args: &ReadyArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let path = if args.alive { "/healthz" } else { "/readyz" };
    let (status, answer) = match &args.socket {
        Some(socket) => probe(&ListenAddress::Unix(socket.clone()), path)?,
        None => {
            let config = args.config.load()?;
            match probe(&ListenAddress::Unix(config.probe_socket()), path) {
                Err(ClientError::NotAllowed(_)) => probe(&config.metrics_listen(), path)?,
                answered => answered?,
            }
        }
    };
    out.write_all(&answer)?;
    Ok(if status.is_success() { CliOutcome::Done } else { CliOutcome::NotInOrder })
}
