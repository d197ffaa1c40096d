//! `hostler run`: the daemon.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use hostler_linux::heap;
use tokio::runtime;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    filter::{ParseError, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use super::{ConfigArgs, Failure, Outcome};
use crate::{
    config::{Log, LogFormat},
    daemon,
};

/// What runs on these threads never blocks; work on hardware and files has threads of its own.
const WORKER_THREADS: usize = 2;

/// How long threads that block may take to end: long enough for a system call, too short to notice.
const LEAVE: Duration = Duration::from_millis(100);

/// Run the daemon until it is told to stop
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
}

pub(super) fn run(args: &Args) -> Result<Outcome, Failure> {
    let config = args.config.load()?;
    log_to_stderr(&config.log)?;
    // Before there are threads: what is resident is most of what the daemon costs.
    heap::share_one_arena();
    let runtime = runtime::Builder::new_multi_thread().worker_threads(WORKER_THREADS).enable_all().build();
    let runtime = runtime.map_err(|source| Failure::step("start the runtime", source))?;
    let result = runtime.block_on(daemon::run(config));
    // Drops what is left, sockets among it. Threads that are still at work were given up: a standby's wait for the lock,
    // or a backend that a second signal did not wait for.
    runtime.shutdown_timeout(LEAVE);
    result.map_err(|source| Failure::step("keep the daemon running", source))?;
    Ok(Outcome::Done)
}

fn log_to_stderr(log: &Log) -> Result<(), Failure> {
    // "info, hostler=debug": the parser would take the space for a part of the name.
    let level: String = log.level.split_whitespace().collect();
    let filter: Targets = level.parse().map_err(|source: ParseError| Failure::step("read log.level", source))?;
    // The filter decides alone; the builder's own limit would be `info`.
    let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_writer(io::stderr);
    // A reader of the log that goes away must not cost the daemon: to complain about it on the same stream would panic.
    let lines = lines.log_internal_errors(false);
    let set = match log.format {
        LogFormat::Json => lines.json().flatten_event(true).finish().with(filter).try_init(),
        // The journal stamps every line itself.
        LogFormat::Text if std::env::var_os("JOURNAL_STREAM").is_some() => {
            lines.with_ansi(false).without_time().finish().with(filter).try_init()
        }
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).finish().with(filter).try_init(),
    };
    set.map_err(|source| Failure::step("set up the log", source))
}
