//! `hostler ready`: whether the running daemon is ready, for probes that run a command.

use std::io::Write;

use super::{ConfigArgs, Failure, Outcome, client::probe};

/// Check whether the daemon is ready, or stands by ready to take over
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
}

/// Prints what `/readyz` says; in order if that is a yes.
pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let (status, answer) = probe(&args.config.load()?.metrics_listen(), "/readyz")?;
    out.write_all(&answer)?;
    Ok(if status.is_success() { Outcome::Done } else { Outcome::NotInOrder })
}
