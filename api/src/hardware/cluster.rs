//! ClusterHardware: what all nodes together have, as the controller that leads says. One object, named `cluster`.

use serde::{Deserialize, Serialize};

use super::{Condition, DeviceTotals};
use crate::core::ObjectMeta;

/// The hardware of the cluster.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ClusterHardware {
    /// Its name is [`CLUSTER_HARDWARE_NAME`](super::CLUSTER_HARDWARE_NAME).
    pub metadata: ObjectMeta,
    /// What the controller says.
    pub status: ClusterHardwareStatus,
}

/// What the controller says of the cluster.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterHardwareStatus {
    /// One for each thing that the controller can do in this cluster, or cannot and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// How many nodes report.
    pub nodes: ClusterNodeCounts,
    /// Devices by DeviceClass, sorted by name. A device that several classes select is counted with each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClusterClassCounts>,
    /// When anything of this was last changed, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_change_time: Option<String>,
}

/// Nodes that have a NodeHardware, by how fresh it is.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterNodeCounts {
    /// They gave signs of life.
    pub reporting: u32,
    /// They missed two.
    pub stale: u32,
    /// They missed three: nothing is known of their devices.
    pub unknown: u32,
}

/// The devices of a class.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterClassCounts {
    /// Name of the DeviceClass.
    pub name: String,
    /// How many are in which state.
    #[serde(flatten)]
    pub devices: DeviceTotals,
}
