//! Types of the admin socket, both ways. JSON; a field may be added, none changes its meaning.

mod events;
mod pods;

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use hostler_api::{ClaimState, Quantity};
use serde::{Deserialize, Serialize};

pub use crate::{
    offer::ClaimFit,
    standalone::{CreateClaim, CreateDevice, UnallocatedClaim},
    usage::holders::{DeviceDrain, HeldAmount, MachineUsage},
};
pub use events::{AdminEvent, AdminEventSubject, AdminEvents};
pub use pods::{AdminPod, AdminPodClaim, AdminPodContainer, AdminPodDevice};

/// Body of every answer that is not a success.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdminError {
    /// The whole chain of causes.
    pub error: String,
}

/// `GET /v1/status`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdminStatus {
    /// Version of hostler.
    pub version: String,
    /// Name of the node.
    pub node: String,
    /// Name of the driver.
    pub driver: String,
    /// Source of allocations: `standalone` (manifests) or `kubernetes` (the API server).
    pub mode: String,
    /// Seconds since the daemon started.
    pub uptime_seconds: u64,
    /// The kernel's id of this boot.
    pub boot_id: String,
    /// Resident memory of the daemon, bytes.
    pub rss_bytes: u64,
    /// Answer of `/readyz`: empty when ready, else what is missing.
    pub not_ready: Vec<String>,
    /// The kubelet's side; absent where it is switched off.
    pub kubelet: Option<AdminKubelet>,
    /// The container runtime's side; absent where it is switched off.
    #[serde(default)]
    pub nri: Option<AdminNri>,
    /// The devices in the API; absent where none are published.
    #[serde(default)]
    pub publication: Option<AdminPublication>,
    /// The pods of this node; absent where they are not watched.
    #[serde(default)]
    pub pods: Option<AdminPods>,
    /// The export of the topology; absent where it is switched off.
    #[serde(default)]
    pub topology: Option<AdminTopology>,
    /// The report of the node's hardware; absent where it is switched off.
    #[serde(default)]
    pub hardware: Option<AdminHardware>,
    /// One entry per backend.
    pub backends: Vec<AdminBackend>,
    /// Claims by state.
    pub claims: AdminClaimCounts,
    /// Hardware that could not be understood.
    pub warnings: Vec<String>,
}

/// The connection with the kubelet.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdminKubelet {
    /// The kubelet's last answer: true, false, or none yet.
    pub registered: Option<bool>,
    /// True if the kubelet has a connection to the socket that it calls.
    #[serde(default)]
    pub connected: bool,
    /// Reason of the kubelet's refusal.
    pub error: Option<String>,
    /// The registration socket, which the kubelet finds by itself.
    pub registration_socket: PathBuf,
    /// The service socket, which the kubelet calls.
    pub service_socket: PathBuf,
}

/// The connection with the container runtime.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdminNri {
    /// Name and version of the runtime; absent while there is no connection.
    pub runtime: Option<String>,
    /// Reason of the end of the last connection.
    pub error: Option<String>,
    /// Socket on which the runtime listens for plugins.
    pub socket: PathBuf,
    /// Number of containers that the runtime has told of.
    pub containers: usize,
    /// Containers that are left as they are, by id, with the reason.
    pub quarantined: BTreeMap<String, String>,
    /// The CPUs of containers without a claim for CPUs, as a list; absent where these are left alone.
    pub shared_pool: Option<String>,
}

/// The devices as the cluster sees them.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdminPublication {
    /// True if the API server has what the inventory says.
    pub synced: bool,
    /// Reason why not, if there is a fault.
    pub error: Option<String>,
    /// Number of slices.
    pub slices: usize,
    /// Fields that the API server does not store, with their feature gates.
    pub dropped: Vec<String>,
    /// Devices that cannot be published, and why.
    pub left_out: Vec<String>,
}

/// `GET /v1/changes?after=VERSION&timeout=30s`: answered as soon as what is known of devices and claims has another
/// version.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct AdminChange {
    /// Version of the present state; it can only be compared with another.
    pub version: String,
}

/// State of the knowledge about this node's pods.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdminPods {
    /// True if the API server has told of all pods, and is heard.
    pub known: bool,
    /// Number of pods now, or when the API server was last heard.
    pub pods: usize,
    /// Reason why the pods are not known, or not up to date.
    pub error: Option<String>,
}

/// The export of what is free on each NUMA node.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdminTopology {
    /// True if the object is up to date.
    pub exported: bool,
    /// Reason why not, if there is a fault.
    pub error: Option<String>,
}

/// The report of the node's hardware.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdminHardware {
    /// True if the NodeHardware is up to date.
    pub reported: bool,
    /// Reason why not, if there is a fault.
    pub error: Option<String>,
}

/// A backend.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdminBackend {
    /// Name of the backend.
    pub name: String,
    /// Name of the backend's pool.
    pub pool: String,
    /// Number of devices.
    pub devices: usize,
    /// Number of healthy devices.
    pub healthy: usize,
    /// Number of drained devices, there or not.
    #[serde(default)]
    pub drained: usize,
    /// Reason why the devices are not up to date, if the last scan failed or has not answered.
    pub stale: Option<String>,
    /// True if nothing at all is known of the backend's devices: `devices` says nothing then.
    #[serde(default)]
    pub unknown: bool,
    /// Time since which the backend has not answered, seconds since 1970, if it is longer than callers wait.
    #[serde(default)]
    pub unanswered_since: Option<u64>,
}

/// A device: `GET /v1/devices` gives a list of these. `PUT` and `DELETE /v1/devices/{name}/drain` give one; `{name}` is
/// `backend/device` with the slash encoded, or the name of the device where only one backend has it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdminDevice {
    /// Name of the device.
    pub name: String,
    /// Backend of the device.
    pub backend: String,
    /// Pool of the device; empty if that is not known any more.
    pub pool: String,
    /// `Healthy`, `Unhealthy`, `Unknown`, or `Absent` for one that is not there.
    pub health: String,
    /// Reason why the device is not healthy.
    pub health_reason: Option<String>,
    /// Drain of the device, if it is out of service.
    pub drained: Option<DeviceDrain>,
    /// `namespace/name` of the claims that hold it; the UID where the name is not known.
    pub holders: Vec<String>,
    /// `Exclusive` or `Shared`; absent for one that is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<String>,
    /// Amounts of each of the device's capacities.
    #[serde(default)]
    pub amounts: BTreeMap<String, HeldAmount>,
    /// True if no claim holds the device and it cannot be had all the same, as others hold what they share with it.
    #[serde(default)]
    pub blocked: bool,
}

impl AdminDevice {
    /// True if several claims may hold parts of the device.
    pub fn is_shared(&self) -> bool {
        self.sharing.as_deref() == Some("Shared")
    }
}

/// A device with what can be asked of it: `GET /v1/devices/{name}`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdminDeviceDetails {
    /// The device as in the list.
    #[serde(flatten)]
    pub device: AdminDevice,
    /// Attributes as in the inventory; empty for one that is not there.
    #[serde(default)]
    pub attributes: BTreeMap<String, serde_json::Value>,
    /// Capacities as in the inventory.
    #[serde(default)]
    pub capacity: BTreeMap<String, serde_json::Value>,
}

/// `PUT /v1/devices/{name}/drain`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DrainDevice {
    /// Reason, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True if pods that use the device shall go.
    #[serde(default)]
    pub evict: bool,
}

/// Stage of an order: one in each line of the answer of `POST /v1/devices/{name}/operate`, for clients that accept
/// [`ORDER_LINES`].
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "stage")]
pub enum AdminOrderLine {
    /// The order waits; a client that breaks the connection withdraws it.
    Waiting {
        /// Obstacles, in words.
        obstacles: Vec<String>,
    },
    /// The hardware is being changed. The order runs to its end.
    UnderWay,
    /// The hardware is changed, or as far as that went, and scanned.
    Scanned,
    /// The last line of an order that was carried out.
    Done(AdminOperated),
    /// The last line of an order that was not carried out.
    Failed {
        /// The status that a single answer has.
        status: u16,
        /// The whole chain of causes.
        error: String,
    },
}

/// The media type of [`AdminOrderLine`]s.
pub const ORDER_LINES: &str = "application/x-ndjson";

/// Longest wait of an order for claims, unless the order says otherwise.
pub const ORDER_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest that an order may wait.
pub const LONGEST_ORDER_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Answer of `POST /v1/devices/{name}/operate?timeout=60s`, whose body is a
/// [`DeviceOperation`](hostler_backend::DeviceOperation); to clients that accept no lines. The time is that for which
/// the order waits until it is under way.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct AdminOperated {
    /// Name of the backend.
    pub backend: String,
    /// Name of the device.
    pub device: String,
    /// Result of the order, in words.
    pub done: String,
}

/// Claims by state.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct AdminClaimCounts {
    /// Claims that are ready.
    pub prepared: usize,
    /// Claims that are being prepared, or whose preparing has failed.
    pub preparing: usize,
    /// Claims whose record is not understood.
    pub quarantined: usize,
}

/// A claim: `GET /v1/claims` gives a list of these, the others one.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdminClaim {
    /// Namespace; empty if it is not known.
    pub namespace: String,
    /// Name; empty if it is not known.
    pub name: String,
    /// Identity.
    pub uid: String,
    /// State of the claim.
    pub state: AdminClaimState,
    /// Time at which the claim came onto record, seconds since 1970; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<u64>,
    /// Problem of the claim, if any.
    pub problem: Option<String>,
    /// Container of the claim that is not bound as the claim says, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degraded: Option<String>,
    /// Containers of the claim of which that cannot be told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unaudited: Vec<String>,
    /// The work that is under way on the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<AdminBusyClaim>,
    /// Devices that the claim holds.
    pub devices: Vec<AdminClaimDevice>,
    /// Notes on what is given otherwise than requested: in the answer to the request that creates the claim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The containers that run with the claim, where one claim is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<AdminContainer>,
    /// The claim's manifest, record and CDI file and the folder of notes about its containers, as far as they are there,
    /// where one claim is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<PathBuf>,
}

/// State of a claim.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AdminClaimState {
    /// A claim that is allocated in a manifest and not prepared yet.
    Allocated,
    /// A file that is no manifest of a claim.
    Invalid,
    /// State according to the record.
    #[serde(untagged)]
    OnRecord(ClaimState),
}

impl fmt::Display for AdminClaimState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allocated => "allocated",
            Self::Invalid => "invalid",
            Self::OnRecord(state) => state.as_str(),
        })
    }
}

/// Work that is under way on a claim.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct AdminBusyClaim {
    /// `prepare`, `unprepare`, `describe` or, after a start, `recover`.
    pub operation: String,
    /// Time at which the work began, seconds since 1970.
    pub since: u64,
}

/// A container that runs with a claim.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdminContainer {
    /// Id of the container, as its runtime calls it.
    pub id: String,
    /// First process of the container; absent if that is not known.
    pub pid: Option<u32>,
    /// Cgroup of the container, as a path of the host; absent if that is not known.
    pub cgroup: Option<PathBuf>,
}

/// A device of a claim.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdminClaimDevice {
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// Request, with subrequest.
    pub request: String,
    /// CDI ids; empty unless the claim is prepared.
    pub cdi_ids: Vec<String>,
    /// CPUs that containers are bound to, as a list.
    pub cpus: String,
    /// NUMA nodes that containers are bound to, as a list.
    pub mems: String,
    /// Parts of capacities taken.
    pub consumed: BTreeMap<String, Quantity>,
    /// Preferences that could not be met, with the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmet: Vec<String>,
}
