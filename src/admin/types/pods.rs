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
    /// Who tells of it: `api`, `runtime`, `note` or `reservation`, the best of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_by: Option<String>,
    /// Its containers; of a pod that the API server tells of also those that hold nothing.
    #[serde(default)]
    pub containers: Vec<AdminPodContainer>,
    /// Claims of which no container is known that uses them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<AdminPodClaim>,
}

/// A container with what it holds.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdminPodContainer {
    /// Name; empty where nobody tells it.
    pub name: String,
    /// The id that its runtime has for it; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The claims that it has, or requests of them.
    #[serde(default)]
    pub claims: Vec<AdminPodClaim>,
}

/// What a container has by a claim.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdminPodClaim {
    /// Namespace; empty if it is not known.
    pub namespace: String,
    /// Name; empty if it is not known.
    pub name: String,
    /// Identity.
    pub uid: String,
    /// How far it is.
    pub state: ClaimState,
    /// Its devices, or those of the requests that the container uses.
    pub devices: Vec<AdminPodDevice>,
}

/// What a container has of a device.
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
    /// Which share of it, where it is shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_id: Option<String>,
    /// CDI ids; empty unless the claim is prepared.
    pub cdi_ids: Vec<String>,
    /// CPUs that nobody else has, as a list.
    pub cpus: String,
    /// Bytes of memory, by kind: `memory` or `hugepages-<size>`.
    pub memory: BTreeMap<String, u64>,
    /// NUMA nodes of the device, as a list; empty where they are not known.
    pub nodes: String,
}
