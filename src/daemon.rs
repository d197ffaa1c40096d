//! Starts the parts in an order in which nothing is promised before it is true, and stops them in the reverse.
//!
//! ```text
//!  config ► backends ► uevent listener ► first scan ► lock ► kubelet sockets ► recover ► publisher
//!         ► admin, metrics ► READY=1
//!  a backend that does not answer the scan or recovery in time is waited for no longer: the others serve
//!  SIGTERM ► a daemon that stands by is registered ► sockets go, calls in flight finish ► claims task ends
//!          ► exit, lock released   (a second signal: at once)
//! ```

mod audit;
mod claim_source;
mod install;
mod kubelet_services;
mod life;
mod lock;
mod machine;
mod necessities;
mod notify;
mod nri;
mod pod_resources;
mod reload;

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use claim_source::ClaimSource;
use hostler_api::Chain;
use hostler_cdi::SpecDir;
use hostler_cluster::ConnectError;
use hostler_files::{FileError, InstanceLock, TrustError, trust_folder};
use hostler_linux::{
    SysRoot,
    uevent::{QuietPeriod, UeventSource},
};
use hostler_process::StopSignals;
use kubelet_services::KubeletServices;
use life::DaemonLife;
use machine::HeldMachine;
pub use machine::RunningMachine;
use necessities::Necessities;
pub use reload::ConfigReload;
use tracing::{info, warn};

use crate::{
    admin::{
        self, AdminParts, AdminService, ChangeWatchers, DaemonStage, EventLog, MachineReader, RecentFailures,
        ScrapeParts, serve_admin, serve_metrics, serve_probes, serve_scrapes,
    },
    claims::{
        self, ClaimsHandle, ClaimsParts, ReadClaims,
        janitor::{self, JanitorParts},
        naming::CdiNaming,
        restore,
    },
    config::{ClusterMode, DaemonConfig, PathsConfig, UeventMode},
    containers::ContainerDir,
    inventory::{
        drains::DrainError,
        hints::UeventInterests,
        hotplug::{self, HotplugParts},
        task::{self as inventory_task, InventoryHandle, InventoryParts},
    },
    kubernetes::slices::SliceSettings,
    metrics::Metrics,
    registry,
    tasks::Tasks,
};

/// The folder of claim records, below that of the state.
const RECORDS: &str = "claims";

/// Reasons why the daemon ended.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// A folder of the daemon could not be made.
    #[error("failed to create {path}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Error of the kernel.
        #[source]
        source: io::Error,
    },
    /// Others can change a folder of the daemon: what is in it cannot be believed.
    #[error("the daemon's folders must be its own ({key})")]
    Trust {
        /// The key that moves the folder.
        key: &'static str,
        /// The reason, with its fix.
        #[source]
        source: TrustError,
    },
    /// The kernel did not say which boot this is.
    #[error("failed to read the boot id")]
    BootId(#[source] io::Error),
    /// Signals could not be waited for.
    #[error("failed to listen to signals")]
    Signals(#[source] io::Error),
    /// The lock could not be taken.
    #[error("failed to wait until no other daemon works")]
    Lock(#[source] FileError),
    /// The binary could not be put where container runtimes find it.
    #[error("failed to install the hooks of containers")]
    Install(#[source] FileError),
    /// There are no usable credentials for the API server.
    #[error("failed to prepare for talking to the API server")]
    Cluster(#[source] ConnectError),
    /// The list of drained devices could not be read.
    #[error("failed to read which devices are drained")]
    Drains(#[source] DrainError),
    /// The claims could not be recovered.
    #[error("failed to start the claims task")]
    Claims(#[source] claims::ClaimsStartError),
    /// The command line or Prometheus cannot be served.
    #[error("failed to serve the command line")]
    Admin(#[source] admin::ServeError),
    /// The kubelet's sockets could not be made.
    #[error("failed to listen for the kubelet")]
    Kubelet(#[source] crate::socket::SocketError),
    /// The socket that tells which pod holds which device could not be made.
    #[error("failed to listen for those who ask which pod holds what")]
    PodResources(#[source] crate::socket::SocketError),
    /// A part of the daemon has ended.
    #[error("{name} ended")]
    Ended {
        /// The part.
        name: &'static str,
        /// Reason of the end.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// A second signal came while the daemon was stopping.
    #[error("stopped by a second signal before everything was finished")]
    Impatient,
}

/// Runs the daemon of a machine until a signal or the end of one of its parts.
///
/// # Errors
/// When it cannot start, or when a part ends by itself.
pub async fn run(config: DaemonConfig, machine: RunningMachine, reload: ConfigReload) -> Result<(), DaemonError> {
    let signals = StopSignals::new().map_err(DaemonError::Signals)?;
    let (tasks, ended_rx) = Tasks::new();
    let kubelet_sockets = config.kubelet.enabled.then(|| config.kubelet_sockets());
    let metrics = Metrics::counting(reload.log.dropped());
    let events = reload.events.clone();
    reload::start(reload, &tasks).map_err(DaemonError::Signals)?;
    let (patience, promised) = (config.inventory.answer_within, AtomicBool::new(false));
    let starting = notify::starting(start(config, machine, metrics, events, &promised, &tasks), patience);
    DaemonLife { signals, ended_rx, kubelet_sockets, tasks: tasks.clone() }.lead(starting, &promised).await
}

/// A daemon that has the lock of the machine, and no claims yet.
struct BegunDaemon {
    inventory: InventoryHandle,
    stage: DaemonStage,
    services: KubeletServices,
    probes: ServedByStandby,
    machine: HeldMachine,
}

/// Looks at the machine, takes its lock, and opens the sockets of the kubelet.
async fn begin(
    config: &DaemonConfig,
    machine: RunningMachine,
    metrics: &Metrics,
    tasks: &Tasks,
) -> Result<BegunDaemon, DaemonError> {
    private_folders(&config.paths)?;
    let inventory = start_inventory(config, &machine.root, tasks).await;
    let stage = DaemonStage::default();
    let mut services = KubeletServices::new(config, inventory.reader(), metrics.clone(), tasks);
    let (lock, probes) = lock(config, &stage, &mut services, tasks).await?;
    let machine = HeldMachine::watched(machine, lock, tasks);
    // The kubelet needs up to a second to find them, in which the claims are recovered: calls wait for that.
    services.open().await.map_err(DaemonError::Kubelet)?;
    inventory.load_drains().await.map_err(DaemonError::Drains)?;
    Ok(BegunDaemon { inventory, stage, services, probes, machine })
}

/// Starts everything. `promised` becomes true when others begin to rely on the daemon.
async fn start(
    config: DaemonConfig,
    machine: RunningMachine,
    metrics: Metrics,
    events: EventLog,
    promised: &AtomicBool,
    tasks: &Tasks,
) -> Result<(), DaemonError> {
    let started = Instant::now();
    let begun = begin(&config, machine, &metrics, tasks).await?;
    let BegunDaemon { inventory, stage, services, probes, machine } = begun;
    let source = ClaimSource::open(&config, tasks).map_err(DaemonError::Cluster)?;
    let hook = install_hook(&config, tasks).await?;
    let pods_rx = source.pods(&config, &metrics, tasks);
    let reader = source.reader(pods_rx.clone(), &metrics, &inventory.reader(), tasks);
    let claims = start_claims(&config, &hook, &inventory, reader, &machine, &metrics, tasks).await?;
    let nri = nri::start(&config, &machine.machine.root, &claims, inventory.reader(), &metrics, tasks);
    promised.store(true, Ordering::Relaxed);
    events.follow(&config.node_name, &inventory.reader(), &claims, tasks);
    services.begin(claims.clone());
    let necessary = Necessities::of(&config, hook.clone(), source.manifests().cloned());
    remove_other_hooks(&config, hook, tasks);
    let waiting_audit = audit::waiting(&config, &machine.machine.root, nri.seen_rx.clone(), &claims, &metrics);
    let audit = waiting_audit.handle();
    source.tell(&config, &claims, &audit, &inventory.reader(), &metrics, tasks);
    waiting_audit.start(tasks);
    start_upkeep(&config, &source, &claims, &inventory, &machine, &metrics, tasks);
    let pod_usage =
        pod_resources::start(&config, (pods_rx.clone(), nri.seen_rx.clone()), &claims, &inventory, &metrics, tasks)
            .await?;
    let own = source.own_hardware(&config, &claims, &inventory.reader(), &metrics, tasks);
    let published = source.publish(&config, machine.reporting(&config), &claims, &own, &metrics, tasks);
    let admin = AdminService::new(AdminParts {
        node: config.node_name.clone(),
        boot_id: machine.boot_id().to_owned(),
        started,
        machine: MachineReader::new(machine.machine.root.clone(), config.paths.root == Path::new("/"), tasks),
        watchers: ChangeWatchers::new(tasks),
        events,
        claims: claims.clone(),
        records: config.paths.state.join(RECORDS),
        cdi: config.paths.cdi.clone(),
        audit_rx: audit.table(),
        inventory: inventory.clone(),
        own: own.clone(),
        manifests: source.manifests().cloned(),
        publication_rx: published.publication_rx,
        pods_rx,
        hardware_rx: published.hardware_rx,
        topology_rx: source.export_topology(&config, &machine.machine.root, &claims, &own, &metrics, tasks),
        claim_reader: source.claim_reader(&metrics, tasks),
        failures: RecentFailures::collect(claims.failures(), tasks),
        metrics,
        necessities_rx: necessary.watch(claims.failures(), tasks).await,
        kubelet: services.side(),
        nri,
        pod_usage,
        slices: SliceSettings::of(&config),
        tasks: tasks.clone(),
    });
    start_scrapes(&config, &source, &stage, tasks);
    serve(&config, &admin, stage, probes, tasks).await?;
    info!(node = config.node_name, took_ms = started.elapsed().as_millis(), "ready");
    notify::ready(&admin, tasks);
    Ok(())
}

/// Opens the sockets for people and their tools, but those that are open already.
async fn serve(
    config: &DaemonConfig,
    admin: &AdminService,
    stage: DaemonStage,
    probes: ServedByStandby,
    tasks: &Tasks,
) -> Result<(), DaemonError> {
    stage.live(admin.clone());
    if !probes.has_probes {
        serve_probes(stage.clone(), config.probe_socket(), tasks).await.map_err(DaemonError::Admin)?;
    }
    if !probes.has_figures {
        serve_metrics(stage, config.metrics_listen(), tasks).await.map_err(DaemonError::Admin)?;
    }
    serve_admin(admin.clone(), config.admin_socket(), tasks).await.map_err(DaemonError::Admin)
}

fn private_folders(paths: &PathsConfig) -> Result<(), DaemonError> {
    [("paths.run", &paths.run), ("paths.state", &paths.state)]
        .into_iter()
        .try_for_each(|(key, path)| private_folder(key, path))
}

fn private_folder(key: &'static str, path: &Path) -> Result<(), DaemonError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| DaemonError::Folder { path: path.to_owned(), source })?;
    trust_folder(path).map_err(|source| DaemonError::Trust { key, source })
}

/// Listens first, then scans: changes in between are not missed.
async fn start_inventory(config: &DaemonConfig, root: &SysRoot, tasks: &Tasks) -> InventoryHandle {
    let backends = registry::from_config(config, root);
    let parts = InventoryParts {
        backends,
        node: config.node_name.clone(),
        rescan: config.inventory.rescan,
        answer_within: config.inventory.answer_within,
        state: config.paths.state.clone(),
    };
    let inventory = inventory_task::start(parts, tasks);
    if let Some(source) = uevents(config, root) {
        let parts = HotplugParts {
            source,
            quiet: QuietPeriod { quiet: config.inventory.quiet, limit: config.inventory.quiet_limit },
            interests: UeventInterests::of(&inventory.backends()),
            requests_tx: inventory.requests(),
        };
        if let Err(error) = hotplug::listen(parts, tasks) {
            warn!(error = %error, "no uevents: changes are noticed by the timed rescan only");
        }
    }
    inventory.rescan().await;
    inventory
}

/// Source of uevents to listen to, if any.
fn uevents(config: &DaemonConfig, root: &SysRoot) -> Option<UeventSource> {
    match config.inventory.uevents {
        // Where it cannot be told if udevd runs, the kernel's own events come all the same.
        UeventMode::Auto if config.paths.root == Path::new("/") => {
            Some(UeventSource::detect(root).unwrap_or(UeventSource::Kernel))
        }
        UeventMode::Auto | UeventMode::Off => None,
        UeventMode::Udev => Some(UeventSource::Udev),
        UeventMode::Kernel => Some(UeventSource::Kernel),
    }
}

/// The sockets that a standby serves already.
#[derive(Clone, Copy, Debug, Default)]
struct ServedByStandby {
    has_probes: bool,
    has_figures: bool,
}

/// Waits until no other daemon works.
async fn lock(
    config: &DaemonConfig,
    stage: &DaemonStage,
    services: &mut KubeletServices,
    tasks: &Tasks,
) -> Result<(InstanceLock, ServedByStandby), DaemonError> {
    let path = config.paths.state.join("lock");
    if let Some(lock) = InstanceLock::try_take(&path).map_err(DaemonError::Lock)? {
        return Ok((lock, ServedByStandby::default()));
    }
    services.announce().await;
    info!(path = %path.display(), "another daemon is live; standing by");
    let waiting_path = path.clone();
    let waiting = tasks.blocking(move || InstanceLock::take(&waiting_path));
    let probes = serve_standby(config, stage, tasks).await;
    let lock = tokio::select! {
        // A wait that is cancelled has told nothing that is not true of a daemon that works.
        lock = notify::standing_by(waiting) => lock,
        never = services.stand_by() => match never {},
    };
    let ended = |error| DaemonError::Ended { name: "lock", source: Some(Box::from(error)) };
    let lock = lock.map_err(ended)?.map_err(DaemonError::Lock)?;
    info!("taking over");
    Ok((lock, probes))
}

/// Tells probes and readers of metrics that this daemon stands by, unless the other daemon has the same addresses.
async fn serve_standby(config: &DaemonConfig, stage: &DaemonStage, tasks: &Tasks) -> ServedByStandby {
    let is_served = |served: Result<(), admin::ServeError>| match served {
        Ok(()) => true,
        Err(error) if error.is_taken() => {
            info!(reason = %error, "probes or figures are the other daemon's until it ends");
            false
        }
        Err(error) => {
            warn!(error = %Chain(&error), "no probes or figures while standing by");
            false
        }
    };
    ServedByStandby {
        has_probes: is_served(serve_probes(stage.clone(), config.probe_socket(), tasks).await),
        has_figures: is_served(serve_metrics(stage.clone(), config.metrics_listen(), tasks).await),
    }
}

/// Returns the binary that the hooks of containers run, as the container runtime sees it.
async fn install_hook(config: &DaemonConfig, tasks: &Tasks) -> Result<PathBuf, DaemonError> {
    let Some(dir) = config.hook_dir.clone() else { return Ok(config.hook.clone()) };
    let installing = tasks.blocking(move || install::install(Path::new("/proc/self/exe"), &dir));
    let ended = |error| DaemonError::Ended { name: "installation", source: Some(Box::from(error)) };
    installing.await.map_err(ended)?.map_err(DaemonError::Install)
}

/// Removes old hooks. Recovery has written the CDI files of ready claims anew, so builds that they do not name are
/// not needed.
fn remove_other_hooks(config: &DaemonConfig, hook: PathBuf, tasks: &Tasks) {
    let Some(dir) = config.hook_dir.clone() else { return };
    let (cdi, driver) = (SpecDir::new(config.paths.cdi.clone()), config.driver.clone());
    tasks.blocking(move || match install::named(&cdi, &driver) {
        Ok(mut keep) => {
            keep.insert(hook);
            install::remove_others(&dir, &keep);
        }
        Err(error) => warn!(error = %Chain(&error), "old builds are kept: CDI files cannot be read"),
    });
}

async fn start_claims(
    config: &DaemonConfig,
    hook: &Path,
    inventory: &InventoryHandle,
    reader: Arc<dyn ReadClaims>,
    machine: &HeldMachine,
    metrics: &Metrics,
    tasks: &Tasks,
) -> Result<ClaimsHandle, DaemonError> {
    // Beside the records: instances that take over from each other share it.
    let containers = config.paths.state.join("containers");
    let parts = ClaimsParts {
        inventory: inventory.clone(),
        reader,
        records: config.paths.state.join(RECORDS),
        cdi: config.paths.cdi.clone(),
        naming: CdiNaming {
            driver: config.driver.clone(),
            hook: hook.to_owned(),
            containers: containers.clone(),
            metadata: config.paths.kubelet.join("plugins").join(&config.driver).join("dra-device-metadata"),
        },
        describe: config.cluster.mode == ClusterMode::Kubernetes && config.cluster.device_metadata,
        containers: ContainerDir::new(containers, machine.machine.root.clone(), machine.boot_id()),
        boot_id: machine.boot_id().to_owned(),
        lock: machine.lock.clone(),
        metrics: metrics.clone(),
    };
    let blocking_tasks = tasks.clone();
    let started = tasks.blocking(move || claims::start(parts, &blocking_tasks)).await;
    let ended = |error| DaemonError::Ended { name: "recovery", source: Some(Box::from(error)) };
    let claims = started.map_err(ended)?.map_err(DaemonError::Claims)?;
    claims.recovered(config.inventory.answer_within).await;
    Ok(claims)
}

/// Serves metrics to readers on other hosts, where they are wanted and the API server can tell who the readers are.
fn start_scrapes(config: &DaemonConfig, source: &ClaimSource, stage: &DaemonStage, tasks: &Tasks) {
    let Some((address, readers)) = config.metrics.scrape.zip(source.readers()) else { return };
    let parts = ScrapeParts { stage: stage.clone(), address: address.0, readers, node: config.node_name.clone() };
    serve_scrapes(parts, tasks);
}

/// Starts the janitor, and the restoring of claims, but not in a cluster: there the kubelet asks again for every claim
/// whose pod is still wanted, and the others are not to come back.
fn start_upkeep(
    config: &DaemonConfig,
    source: &ClaimSource,
    claims: &ClaimsHandle,
    inventory: &InventoryHandle,
    machine: &HeldMachine,
    metrics: &Metrics,
    tasks: &Tasks,
) {
    start_janitor(config, source, claims, metrics, tasks);
    if source.manifests().is_some() {
        restore::start(claims.clone(), &inventory.reader(), machine.boot_id().to_owned(), tasks);
    }
}

fn start_janitor(config: &DaemonConfig, source: &ClaimSource, claims: &ClaimsHandle, metrics: &Metrics, tasks: &Tasks) {
    let parts = JanitorParts {
        claims: claims.clone(),
        observer: source.observer(config, metrics, tasks),
        release_after: config.cluster.release_after,
        state: config.paths.state.clone(),
        metrics: metrics.clone(),
    };
    janitor::start(parts, tasks);
}
