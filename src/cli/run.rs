//! `hostler run`: the daemon.

use std::io::{self, IsTerminal};

use tokio::runtime;
use tracing_subscriber::EnvFilter;

use super::{ConfigArgs, Failure, Outcome};
use crate::{
    config::{Log, LogFormat},
    daemon,
};

/// What runs on these threads never blocks; work on hardware and files has threads of its own.
const WORKER_THREADS: usize = 2;

/// Run the daemon until it is told to stop
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
}

pub(super) fn run(args: &Args) -> Result<Outcome, Failure> {
    let config = args.config.load()?;
    log_to_stderr(&config.log)?;
    let runtime = runtime::Builder::new_multi_thread().worker_threads(WORKER_THREADS).enable_all().build();
    let runtime = runtime.map_err(|source| Failure::step("start the runtime", source))?;
    let result = runtime.block_on(daemon::run(config));
    // What is left now was given up: a standby's wait for the lock, or work that a second signal cut off.
    runtime.shutdown_background();
    result.map_err(|source| Failure::step("keep the daemon running", source))?;
    Ok(Outcome::Done)
}

fn log_to_stderr(log: &Log) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&log.level).map_err(|source| Failure::step("read log.level", source))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let set = match log.format {
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
        // The journal stamps every line itself.
        LogFormat::Text if std::env::var_os("JOURNAL_STREAM").is_some() => {
            lines.with_ansi(false).without_time().try_init()
        }
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).try_init(),
    };
    set.map_err(|source| Failure::step("set up the log", source))
}
