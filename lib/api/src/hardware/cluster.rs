//! ClusterHardware: the devices of all nodes together, as the leading controller reports them. One object, named
//! `cluster`.

use serde::{Deserialize, Serialize};

use super::{Condition, DeviceTotals};
use crate::core::ObjectMeta;

/// The hardware of the cluster.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ClusterHardware {
    /// Metadata with the name [`CLUSTER_HARDWARE_NAME`](super::CLUSTER_HARDWARE_NAME).
    pub metadata: ObjectMeta,
    /// Report of the controller.
    pub status: ClusterHardwareStatus,
}

/// Report of the controller on the cluster.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterHardwareStatus {
    /// One condition for each thing that the controller can do in this cluster, or cannot and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Number of nodes that report.
    pub nodes: ClusterNodeCounts,
    /// Devices by DeviceClass, sorted by name. A device that several classes select is counted with each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClusterClassCounts>,
    /// Time at which any part of this was last changed, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_change_time: Option<String>,
}

/// Nodes that have a NodeHardware, by the age of the report.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterNodeCounts {
    /// Nodes that gave signs of life.
    pub reporting: u32,
    /// Nodes that missed two signs of life.
    pub stale: u32,
    /// Nodes that missed three: nothing is known of their devices.
    pub unknown: u32,
}

/// The devices of a class.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterClassCounts {
    /// Name of the DeviceClass.
    pub name: String,
    /// Number of devices in each state.
    #[serde(flatten)]
    pub devices: DeviceTotals,
}
