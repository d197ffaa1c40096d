//! `hostler run`: the daemon.

use std::{
    fs,
    io::{self, IsTerminal},
    path::Path,
    time::Duration,
};

use hostler_linux::{archive, heap};
use tokio::runtime;
use tracing::{info, level_filters::LevelFilter};
use tracing_subscriber::{
    filter::{ParseError, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use super::{
    CliFailure, CliOutcome,
    machine::{MachineArgs, OpenedMachine},
};
use crate::{
    config::{ClusterConfig, ClusterMode, DaemonConfig, LogConfig, LogFormat, PathsConfig},
    daemon::{self, RunningMachine},
    descriptors,
};

/// What runs on these threads never blocks; work on hardware and files has threads of its own.
const WORKER_THREADS: usize = 2;

/// How long threads that block may take to end: long enough for a system call, too short to notice.
const LEAVE: Duration = Duration::from_millis(100);

/// Run the daemon until it is told to stop; with --root a rehearsal on a captured machine, away from this host's claims
#[derive(clap::Args, Debug)]
pub(super) struct RunArgs {
    #[command(flatten)]
    machine: MachineArgs,
}

pub(super) fn run(args: &RunArgs) -> Result<CliOutcome, CliFailure> {
    let machine = args.machine.open()?;
    log_to_stderr(&machine.config.log)?;
    descriptors::raise_limit();
    match &args.machine.root {
        Some(root) => rehearse(root, &machine),
        None => {
            let running = RunningMachine::running(machine.root);
            daemon(machine.config, running.map_err(|source| CliFailure::step("look at this machine", source))?)
        }
    }
}

fn daemon(config: DaemonConfig, machine: RunningMachine) -> Result<CliOutcome, CliFailure> {
    // Before there are threads: what is resident is most of what the daemon costs.
    heap::share_one_arena();
    let runtime = runtime::Builder::new_multi_thread().worker_threads(WORKER_THREADS).enable_all().build();
    let runtime = runtime.map_err(|source| CliFailure::step("start the runtime", source))?;
    let result = runtime.block_on(daemon::run(config, machine));
    // Drops what is left, sockets among it. Threads that are still at work were given up: a standby's wait for the lock,
    // or a backend that a second signal did not wait for.
    runtime.shutdown_timeout(LEAVE);
    result.map_err(|source| CliFailure::step("keep the daemon running", source))?;
    Ok(CliOutcome::Done)
}

/// The daemon with everything that it writes in a folder of its own, which goes when it ends.
fn rehearse(root: &Path, machine: &OpenedMachine) -> Result<CliOutcome, CliFailure> {
    if fs::canonicalize(root).is_ok_and(|root| root == Path::new("/")) {
        return Err(CliFailure::Said("/ is this machine, and no rehearsal: run without --root".to_owned()));
    }
    let own =
        archive::private_folder().map_err(|source| CliFailure::step("make a folder for the rehearsal", source))?;
    let config = rehearsal(machine.config.clone(), own.path());
    info!(socket = %config.admin_socket().display(), "rehearsing on a captured machine; ask with --socket");
    daemon(config, RunningMachine::captured(machine.root.clone()))
}

/// Nothing of this host is touched: not its claims, its CDI files, its kubelet or its cluster.
fn rehearsal(config: DaemonConfig, own: &Path) -> DaemonConfig {
    let paths = PathsConfig {
        state: own.join("state"),
        run: own.join("run"),
        cdi: own.join("cdi"),
        kubelet: own.join("kubelet"),
        // The root is passed beside the configuration; uevents of this machine do not belong to that one.
        root: own.join("root"),
    };
    let cluster = ClusterConfig { mode: ClusterMode::Standalone, manifests: own.join("claims"), ..config.cluster };
    let node_name = if config.node_name.is_empty() { "rehearsal".to_owned() } else { config.node_name };
    let mut config = DaemonConfig { node_name, hook_dir: None, paths, cluster, ..config };
    config.kubelet.enabled = false;
    config.metrics.listen = None;
    config
}

fn log_to_stderr(log: &LogConfig) -> Result<(), CliFailure> {
    // "info, hostler=debug": the parser would take the space for a part of the name.
    let level: String = log.level.split_whitespace().collect();
    let filter: Targets = level.parse().map_err(|source: ParseError| CliFailure::step("read log.level", source))?;
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
    set.map_err(|source| CliFailure::step("set up the log", source))
}
