//! Pods with what they hold.

use std::collections::BTreeMap;

use hostler_api::ClaimState;
use serde::{Deserialize, Serialize};

/// A pod with what it holds: `GET /v1/pods` gives a list of these.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct AdminPod {
    /// Namespace.
    pub namespace: String,
    /// Name; empty in the entry of those claims that no pod is known to use.
    pub name: String,
    /// Best source of the pod: `api`, `runtime`, `note` or `reservation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_by: Option<String>,
    /// Containers of the pod; for a pod that the API server tells of, also those that hold nothing.
    #[serde(default)]
    pub containers: Vec<AdminPodContainer>,
    /// Claims of which no container is known that uses them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<AdminPodClaim>,
}

/// A container with what it holds.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdminPodContainer {
    /// Name; empty where no source tells it.
    pub name: String,
    /// The id that its runtime has for it; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The claims that the container has, or requests of them.
    #[serde(default)]
    pub claims: Vec<AdminPodClaim>,
}

/// A claim as a container has it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdminPodClaim {
    /// Namespace; empty if it is not known.
    pub namespace: String,
    /// Name; empty if it is not known.
    pub name: String,
    /// Identity.
    pub uid: String,
    /// State of the claim.
    pub state: ClaimState,
    /// Devices of the claim, or those of the requests that the container uses.
    pub devices: Vec<AdminPodDevice>,
}

/// A device as a container has it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdminPodDevice {
    /// Backend.
    pub backend: String,
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// Top-level request.
    pub request: String,
    /// Share of the device, where it is shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_id: Option<String>,
    /// CDI ids; empty unless the claim is prepared.
    pub cdi_ids: Vec<String>,
    /// Exclusive CPUs, as a list.
    pub cpus: String,
    /// Bytes of memory, by kind: `memory` or `hugepages-<size>`.
    pub memory: BTreeMap<String, u64>,
    /// NUMA nodes of the device, as a list; empty where they are not known.
    pub nodes: String,
}
