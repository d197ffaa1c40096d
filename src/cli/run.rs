//! `hostler run`: the daemon.

use std::{fs, path::Path, time::Duration};

use hostler_linux::archive;
use tokio::runtime;
use tracing::info;

use super::{
    CliFailure, CliOutcome,
    machine::{MachineArgs, OpenedMachine},
};
use crate::{
    admin::EventLog,
    config::{ClusterConfig, ClusterMode, DaemonConfig, PathsConfig},
    daemon::{self, ConfigReload, RunningMachine},
    descriptors,
    log::{LogEnd, ProcessLog},
};

/// One: no task here blocks; work on hardware and files, and the owners' decisions, have threads of their own. A second
/// thread would have little to do, and half of the processor time of a prepare went into waking one for the other.
const WORKER_THREADS: usize = 1;

/// How long threads that block may take to end: long enough for a system call, too short to notice.
const LEAVE: Duration = Duration::from_millis(100);

#[derive(clap::Args, Debug)]
pub(super) struct RunArgs {
    #[command(flatten)]
    machine: MachineArgs,
}

pub(super) fn run(args: &RunArgs) -> Result<CliOutcome, CliFailure> {
    // Before there are threads: what is resident is most of what the daemon costs.
    hostler_heap::keep_little();
    let machine = args.machine.open()?;
    let log = ProcessLog::start(&machine.config.log).map_err(|source| CliFailure::step("start the log", source))?;
    descriptors::raise_limit();
    let reload = ConfigReload {
        file: args.machine.config.config.clone(),
        read: machine.config.clone(),
        log: log.clone(),
        events: EventLog::default(),
    };
    let result = match &args.machine.root {
        Some(root) => rehearse(root, &machine, reload),
        None => {
            let running = RunningMachine::running(machine.root);
            let running = running.map_err(|source| CliFailure::step("look at this machine", source));
            running.and_then(|running| daemon(machine.config, running, reload))
        }
    };
    match (result, log.end()) {
        // Where the log has no reader, to say why it failed would wait for ever.
        (Err(_), LogEnd::Stalled) => Ok(CliOutcome::NotInOrder),
        (result, _) => result,
    }
}

fn daemon(config: DaemonConfig, machine: RunningMachine, reload: ConfigReload) -> Result<CliOutcome, CliFailure> {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(WORKER_THREADS).enable_all().build();
    let runtime = runtime.map_err(|source| CliFailure::step("start the runtime", source))?;
    let result = runtime.block_on(daemon::run(config, machine, reload));
    // Drops what is left, sockets among it. Threads that are still at work were given up: a standby's wait for
    // the lock, or a backend that a second signal did not wait for.
    runtime.shutdown_timeout(LEAVE);
    result.map_err(|source| CliFailure::step("keep the daemon running", source))?;
    Ok(CliOutcome::Done)
}

/// The daemon with everything that it writes in a folder of its own, which goes when it ends.
fn rehearse(root: &Path, machine: &OpenedMachine, reload: ConfigReload) -> Result<CliOutcome, CliFailure> {
    if fs::canonicalize(root).is_ok_and(|root| root == Path::new("/")) {
        return Err(CliFailure::Usage("/ is this machine, and no rehearsal: run without --root".to_owned()));
    }
    let own =
        archive::private_folder().map_err(|source| CliFailure::step("make a folder for the rehearsal", source))?;
    let config = rehearsal(machine.config.clone(), own.path());
    info!(socket = %config.admin_socket().display(), "rehearsing on a captured machine; ask with --socket");
    daemon(config, RunningMachine::captured(machine.root.clone()), reload)
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
