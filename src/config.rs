//! The daemon's configuration: every key, its unit, its default and its rules.
//!
//! ```text
//!   file ── TOML ──► sections, key by key ([`read`]) ──► DaemonConfig ──► rules ([`check`]) ──► config or mistakes
//! ```
//!
//! A file may leave out any key. A mistake costs one line of report and hides no other mistake.

mod audit;
mod check;
mod listen;
mod nri;
mod pod_resources;
mod read;
mod section;
pub(crate) mod sockets;
mod topology;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use hostler_files::read_argument;
use hostler_linux::uevent::QuietPeriod;
use serde::{Deserialize, Serialize};

pub use hostler_backend::duration;
pub use hostler_process::{
    config::{ConfigErrors, ConfigMistake},
    log::{LogConfig, LogFormat},
};

pub use audit::AuditConfig;
pub use listen::{ListenAddress, ScrapeAddress};
pub use nri::{NriConfig, NriMode, SharedPoolMode};
pub use pod_resources::PodResourcesConfig;
pub use section::BackendSection;
pub use sockets::KubeletSocketPaths;
pub use topology::{TopologyExportConfig, TopologyManagerPolicy, TopologyManagerScope};

/// Path of the configuration file that the daemon and the command line read when none is named.
pub const DEFAULT_FILE: &str = "/etc/hostler/hostler.toml";

/// Largest configuration file that is read; a file with every key has a few kilobytes.
const MOST_BYTES: u64 = 1 << 20;

/// The whole configuration.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct DaemonConfig {
    /// The node's name, first part of every pool's name. In a cluster it must equal the Node object's name. Default:
    /// the environment's `HOSTLER_NODE_NAME`, which a pod gets from its own specification, else the host name in lower
    /// case.
    pub node_name: String,
    /// The driver's name, as device classes select it: a DNS subdomain of at most 63 lower-case characters.
    pub driver: String,
    /// The binary that the hooks of containers run, as the container runtime sees it. Default: this binary.
    pub hook: PathBuf,
    /// Folder of the host into which a daemon that runs in a container copies itself, for the hooks of containers; it
    /// has the same path on both sides. `hook` is then not used.
    pub hook_dir: Option<PathBuf>,
    /// Folders of the daemon and of the programs that it works with.
    pub paths: PathsConfig,
    /// Source of claims.
    pub cluster: ClusterConfig,
    /// Export of the node's topology to topology-aware schedulers.
    pub topology_export: TopologyExportConfig,
    /// The services that the kubelet calls.
    pub kubelet: KubeletConfig,
    /// Times of hardware scans.
    pub inventory: InventoryConfig,
    /// Content and format of the log.
    pub log: LogConfig,
    /// Addresses of metrics.
    pub metrics: MetricsConfig,
    /// Plugging into the container runtime.
    pub nri: NriConfig,
    /// Audit of the CPUs and NUMA nodes that containers are bound to.
    pub audit: AuditConfig,
    /// The socket that tells which pod holds what.
    pub pod_resources: PodResourcesConfig,
    /// The kinds of hardware to look after.
    #[serde(skip_deserializing)]
    pub backends: BackendsConfig,
}

/// `[paths]`: folders, absolute.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PathsConfig {
    /// Claim records; must survive a reboot.
    pub state: PathBuf,
    /// The admin socket and the lock; may be emptied by a reboot.
    pub run: PathBuf,
    /// CDI files of claims, in one of the folders that the container runtime reads.
    pub cdi: PathBuf,
    /// The kubelet's root folder (`--root-dir`).
    pub kubelet: PathBuf,
    /// The root of the tree whose `sys`, `proc` and `dev` describe the hardware.
    pub root: PathBuf,
}

/// `[cluster]`: the source of claims.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ClusterConfig {
    /// The source of claims.
    pub mode: ClusterMode,
    /// Folder with ResourceClaim manifests, for `mode = "standalone"`.
    pub manifests: PathBuf,
    /// Kubeconfig of the daemon, for `mode = "kubernetes"`. Default: the service account of the pod that it runs in.
    pub kubeconfig: Option<PathBuf>,
    /// True if pods that use a device are evicted when it turns unhealthy. Otherwise the device only gets no new pods.
    pub evict_unhealthy: bool,
    /// True if attributes with several values are published. The API server refuses them unless its feature gate
    /// DRAListTypeAttributes is on.
    pub list_attributes: bool,
    /// Names under which devices publish what they take of the node's own resources (feature gate
    /// DRANodeAllocatableResources): those of Kubernetes 1.36 or of 1.37, or none.
    pub node_allocatable: NodeAllocatableNames,
    /// True if the daemon writes the outcome of a claim into its `status.devices`.
    pub claim_status: bool,
    /// True if failures that a user can mend become Events of the claim.
    pub events: bool,
    /// True if containers find the attributes of their devices in a file (KEP-5304).
    pub device_metadata: bool,
    /// True if the pods of this node are watched, where the API server allows it: they tell who uses which claim, and
    /// which claims can be read before the kubelet asks.
    pub watch_pods: bool,
    /// True if the hardware of this node is reported in a NodeHardware, where the API server has the CRD.
    pub node_hardware: bool,
    /// True if cards that a fabric manager attaches to this node are given to claims, and taken back, as FabricAttachments
    /// say. Nothing changes where the API server has no such kind.
    pub fabric: bool,
    /// Time for which a claim must have been gone from the API server before it is taken back without the kubelet.
    #[serde(with = "duration")]
    pub release_after: Duration,
}

/// Names under which devices publish what they take of the node's own resources.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum NodeAllocatableNames {
    /// None: devices do not publish it.
    #[default]
    #[serde(rename = "off")]
    Off,
    /// `nodeAllocatableResourceMappings`.
    #[serde(rename = "1.36")]
    V1_36,
    /// `nodeAllocatableResources`.
    #[serde(rename = "1.37")]
    V1_37,
}

/// Source of claims.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterMode {
    /// Manifests in a folder; no API server is needed.
    #[default]
    Standalone,
    /// The API server.
    Kubernetes,
}

/// `[kubelet]`: the services that the kubelet calls.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct KubeletConfig {
    /// True if the services are offered. A host without a kubelet loses nothing by it.
    pub enabled: bool,
    /// Calls of the kubelets of Kubernetes 1.26 to 1.31 that are answered.
    pub classic: ClassicCalls,
}

/// Calls of the kubelets of Kubernetes 1.26 to 1.31 that are answered.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClassicCalls {
    /// All of them. Kubelets of 1.28 to 1.30 and those of 1.31 make one call alike; its content shows which of them
    /// called.
    #[default]
    Auto,
    /// As `auto`, but such a call is taken for one of 1.28 to 1.30, and its content says what was allocated.
    Handles,
    /// As `auto`, but such a call is taken for one of 1.31, and the allocation is read from the API server.
    Claims,
    /// None.
    Off,
}

/// `[inventory]`: the times of hardware scans.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct InventoryConfig {
    /// Source of hardware events.
    pub uevents: UeventMode,
    /// Time after which hardware is scanned that no event told of.
    #[serde(with = "duration")]
    pub rescan: Duration,
    /// Time for which the start, and callers that request a scan, wait for one backend. A later answer is taken when it
    /// comes.
    #[serde(with = "duration")]
    pub answer_within: Duration,
    /// Time without events before a scan: one plugged card sends dozens.
    #[serde(with = "duration")]
    pub quiet: Duration,
    /// Longest delay of a scan by a stream of events.
    #[serde(with = "duration")]
    pub quiet_limit: Duration,
}

/// Source of events about changes of the hardware.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UeventMode {
    /// udevd where it runs, else the kernel; no source where `paths.root` is not `/`, since the kernel's events are
    /// about this machine and not about a captured one.
    #[default]
    Auto,
    /// udevd.
    Udev,
    /// The kernel.
    Kernel,
    /// No source: the timed scan notices changes.
    Off,
}

/// `[metrics]`: the addresses of metrics.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct MetricsConfig {
    /// `unix:/path`, a loopback address with a port, or `off`. Serves `/metrics`, `/healthz` and `/readyz`. Default:
    /// `metrics.sock` in `paths.run`.
    pub listen: Option<ListenAddress>,
    /// An address for readers on other hosts, such as `0.0.0.0:9464`. Serves `/metrics` over TLS, to clients with a
    /// token that the API server lets read it; only in Kubernetes mode. Default: none.
    pub scrape: Option<ScrapeAddress>,
}

/// `[backends.*]`: the kinds of hardware to look after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BackendsConfig {
    /// CPUs; on by default.
    pub cpu: BackendSection<hostler_cpu::CpuBackendConfig>,
    /// Memory and huge pages; on by default.
    pub memory: BackendSection<hostler_memory::MemoryBackendConfig>,
    /// FPGAs; on by default.
    pub fpga: BackendSection<hostler_fpga::FpgaBackendConfig>,
    /// CXL accelerators and memory; on by default.
    pub cxl: BackendSection<hostler_cxl::CxlBackendConfig>,
    /// Made-up devices for tests and demonstrations; off by default.
    pub fake: BackendSection<hostler_fake::FakeBackendConfig>,
}

impl DaemonConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// When the file cannot be read, or with every mistake in it.
    pub fn load(path: &Path) -> Result<Self, ConfigErrors> {
        let text = read_argument(path, MOST_BYTES).map_err(|error| ConfigErrors::unreadable(path, &error.source))?;
        Self::parse(&text).map_err(|problems| ConfigErrors { path: Some(path.to_owned()), problems })
    }

    /// Reads and checks the file that is named, else the [`DEFAULT_FILE`] if there is one, else takes the defaults.
    ///
    /// # Errors
    /// As [`load`](Self::load); a file that is named and missing is an error.
    pub fn load_or_default(path: Option<&Path>) -> Result<Self, ConfigErrors> {
        match path {
            Some(path) => Self::load(path),
            None if Path::new(DEFAULT_FILE).exists() => Self::load(Path::new(DEFAULT_FILE)),
            None => Self::default().checked(),
        }
    }

    /// Reads and checks the text of a file.
    ///
    /// # Errors
    /// Every mistake, in the order of the text.
    pub fn parse(text: &str) -> Result<Self, Vec<ConfigMistake>> {
        let (config, mut problems, lines) = read::read(text);
        for problem in check::problems(&config) {
            let line = lines.of(&problem.key);
            // One report per key is enough: a socket path and another made from it are too long together.
            if !problems.iter().any(|known: &ConfigMistake| known.key == problem.key) {
                problems.push(ConfigMistake { line, ..problem });
            }
        }
        problems.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    fn checked(self) -> Result<Self, ConfigErrors> {
        let problems = check::problems(&self);
        if problems.is_empty() { Ok(self) } else { Err(ConfigErrors { path: None, problems }) }
    }

    /// The socket of the command line.
    pub fn admin_socket(&self) -> PathBuf {
        self.paths.run.join("admin.sock")
    }

    /// The socket of probes, which only the daemon's user can connect to.
    pub fn probe_socket(&self) -> PathBuf {
        // As long as the name of the admin socket, whose path is checked.
        self.paths.run.join("probe.sock")
    }

    /// The address at which metrics are served.
    pub fn metrics_listen(&self) -> ListenAddress {
        self.metrics.listen.clone().unwrap_or_else(|| ListenAddress::Unix(self.paths.run.join("metrics.sock")))
    }

    /// The sockets that the kubelet calls.
    pub fn kubelet_sockets(&self) -> KubeletSocketPaths {
        KubeletSocketPaths::new(&self.driver, &self.paths.kubelet)
    }
}

impl Default for DaemonConfig {
    fn default() -> Self {
        Self {
            node_name: node_name(),
            driver: "hostler.dev".to_owned(),
            // An empty path is no valid one: the check then asks for the key.
            hook: std::env::current_exe().unwrap_or_default(),
            hook_dir: None,
            paths: PathsConfig::default(),
            cluster: ClusterConfig::default(),
            topology_export: TopologyExportConfig::default(),
            kubelet: KubeletConfig::default(),
            inventory: InventoryConfig::default(),
            log: LogConfig::default(),
            metrics: MetricsConfig::default(),
            nri: NriConfig::default(),
            audit: AuditConfig::default(),
            pod_resources: PodResourcesConfig::default(),
            backends: BackendsConfig::default(),
        }
    }
}

fn node_name() -> String {
    let given = std::env::var("HOSTLER_NODE_NAME").ok().filter(|name| !name.is_empty());
    given.unwrap_or_else(|| {
        let host = nix::unistd::gethostname();
        host.map_or_else(|_| "localhost".to_owned(), |name| name.to_string_lossy().to_lowercase())
    })
}

impl Default for PathsConfig {
    fn default() -> Self {
        Self {
            state: "/var/lib/hostler".into(),
            run: "/run/hostler".into(),
            cdi: "/var/run/cdi".into(),
            kubelet: "/var/lib/kubelet".into(),
            root: "/".into(),
        }
    }
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            mode: ClusterMode::default(),
            manifests: "/etc/hostler/claims".into(),
            kubeconfig: None,
            evict_unhealthy: false,
            list_attributes: false,
            node_allocatable: NodeAllocatableNames::default(),
            claim_status: true,
            events: true,
            device_metadata: true,
            watch_pods: true,
            node_hardware: true,
            fabric: true,
            release_after: Duration::from_secs(300),
        }
    }
}

impl Default for KubeletConfig {
    fn default() -> Self {
        Self { enabled: true, classic: ClassicCalls::default() }
    }
}

impl Default for InventoryConfig {
    fn default() -> Self {
        let QuietPeriod { quiet, limit } = QuietPeriod::default();
        Self {
            uevents: UeventMode::default(),
            rescan: Duration::from_secs(60),
            // The largest machines that were seen take a second. A start waits twice at most, for a scan and for
            // recovery; systemd allows it 90 s.
            answer_within: Duration::from_secs(10),
            quiet,
            quiet_limit: limit,
        }
    }
}

impl Default for BackendsConfig {
    fn default() -> Self {
        Self {
            cpu: BackendSection::on(),
            memory: BackendSection::on(),
            fpga: BackendSection::on(),
            cxl: BackendSection::on(),
            fake: BackendSection::off(),
        }
    }
}

#[cfg(test)]
mod tests;
