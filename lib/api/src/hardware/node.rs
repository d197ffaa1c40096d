//! NodeHardware: the devices of a node and their state, as its daemon reports them. One object for each node, with the
//! node's name; and, where hostler's controller allocates, one for each source of devices that several nodes can use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AmountCounts, Condition, DeviceCounts, DeviceTotals, HardwareConditionType, NodeGrant};
use crate::{core::ObjectMeta, fabric::SystemUuid};

/// The hardware of a node.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct NodeHardware {
    /// Has the name of the node, which owns the object.
    pub metadata: ObjectMeta,
    /// Node of the report, and the controller's part.
    pub spec: NodeHardwareSpec,
    /// Report of the daemon.
    pub status: NodeHardwareStatus,
}

/// Node of a NodeHardware, and the controller's part.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeHardwareSpec {
    /// The node. Without a node, the devices that the status offers are on the network: their slices say which nodes
    /// can use them.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// Devices of the node that claims were given where hostler's controller allocates (Kubernetes 1.26 to 1.31), as
    /// that controller says; by UID of the claim.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, NodeGrant>,
    /// Devices of the node that are held, as hostler's controller says; each device once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<NodeHold>,
    /// True if devices that draw on one counter set are held each for itself, as hostler's controller says. Else they
    /// are held all together and for one only, or not at all, since schedulers without the fix of kubernetes#140436
    /// refuse the others to every claim.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub holds_partitions: bool,
}

/// A device of the node that is kept: a claim that does not tolerate the taint with this value is not given the device.
#[derive(Clone, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeHold {
    /// Pool of the device.
    pub pool: String,
    /// Name of the device.
    pub device: String,
    /// Value of the taint, which names the holder.
    pub value: String,
}

/// Report of a daemon on its node.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeHardwareStatus {
    /// DRA driver as which the daemon publishes devices.
    pub driver: String,
    /// Version of the daemon.
    pub hostler_version: String,
    /// Release of the node's kernel.
    pub kernel_version: String,
    /// Identity of the boot, another one after each boot.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// UUID of the node's system board, by which fabric managers know the node; absent where the board tells none that
    /// can be used.
    #[serde(rename = "systemUUID", skip_serializing_if = "Option::is_none")]
    pub system_uuid: Option<SystemUuid>,
    /// All devices of all backends that are known.
    pub devices: DeviceTotals,
    /// Backends, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<BackendHardware>,
    /// Slices that the node offers where hostler's controller allocates (Kubernetes 1.26 to 1.31): each has what the
    /// spec of a ResourceSlice has in later releases. A pool of which a slice is missing is not offered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Value>,
    /// Generation of the spec whose holds are in the node's ResourceSlices, as the API server has them; absent where
    /// there was never anything to hold. The condition HoldsPublished names devices that are not held all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds_generation: Option<i64>,
    /// Conditions: whether the report can be relied on, and all is well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Time at which anything but the times was last changed, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_change_time: Option<String>,
    /// Time of the daemon's last report, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_report_time: Option<String>,
}

/// The hardware of one kind: the devices that one backend of the daemon looks after. Its pool is `<node>/<name>`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendHardware {
    /// Name of the backend.
    pub name: String,
    /// Degree to which the following fields can be relied on.
    pub knowledge: BackendKnowledge,
    /// Reason for a lower degree.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Devices that claims have and that are missing, or not known to be there. They are counted nowhere else.
    #[serde(skip_serializing_if = "is_none")]
    pub missing: u32,
    /// Devices of the backend, by the class that selects them; empty where it has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassHardware>,
}

/// Degree to which the devices of a backend are known.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum BackendKnowledge {
    /// The last scan succeeded.
    Known,
    /// The last scan failed or is late: the report on the devices is older.
    Stale,
    /// No scan has succeeded since the daemon started. The absence of devices is not known either.
    #[default]
    #[serde(other)]
    Unknown,
}

/// The devices of a backend that one DeviceClass of hostler's own selects.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassHardware {
    /// Name of the DeviceClass.
    pub name: String,
    /// Counts by NUMA node; devices on no single one come last.
    pub zones: Vec<ZoneHardware>,
}

/// Devices of one class on one NUMA node.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneHardware {
    /// The NUMA node; absent for devices that are on no single one, or do not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Number of devices in each state.
    #[serde(flatten)]
    pub devices: DeviceCounts,
    /// Amounts of each capacity that several claims can share, by its name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub amounts: BTreeMap<String, AmountCounts>,
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

impl NodeHardwareStatus {
    /// The condition of this type, if the daemon reported one.
    pub fn condition(&self, kind: HardwareConditionType) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind.as_str())
    }

    /// Every row of counts.
    pub fn zones(&self) -> impl Iterator<Item = &ZoneHardware> {
        self.backends.iter().flat_map(|backend| &backend.classes).flat_map(|class| &class.zones)
    }
}

impl BackendKnowledge {
    /// Returns the degree as one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Known => "Known",
            Self::Stale => "Stale",
            Self::Unknown => "Unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_later_versions_say_is_let_through_and_what_is_not_understood_is_unknown() {
        let object = serde_json::json!({
            "apiVersion": "hostler.dev/v1alpha1", "kind": "NodeHardware",
            "metadata": {"name": "a", "uid": "u", "managedFields": []},
            "spec": {"nodeName": "a", "later": 1},
            "status": {
                "bootID": "b", "later": {},
                "devices": {"capacity": 1, "free": 1},
                "backends": [{"name": "cpu", "knowledge": "Guessed", "classes": [{"name": "c", "zones": [
                    {"capacity": 1, "allocatable": 1, "amounts": {"cpus": {"capacity": "8", "allocatable": "8", "allocated": "0", "free": "8"}}},
                ]}]}],
                "conditions": [{"type": "Ready", "status": "Perhaps", "reason": "r", "lastTransitionTime": "t"}],
            },
        });
        let read: NodeHardware = serde_json::from_value(object).unwrap();
        let status = &read.status;
        assert_eq!((read.spec.node_name.as_str(), status.boot_id.as_str()), ("a", "b"));
        assert_eq!(status.backends[0].knowledge, BackendKnowledge::Unknown);
        assert_eq!(status.zones().map(|zone| zone.devices.free()).collect::<Vec<_>>(), [1]);
        let ready = status.condition(HardwareConditionType::Ready).unwrap();
        assert!(!ready.is_true() && ready.status == super::super::ConditionStatus::Unknown);
        assert!(status.condition(HardwareConditionType::Healthy).is_none());
    }

    #[test]
    fn an_object_that_says_nothing_yet_can_be_read() {
        let read: NodeHardware = serde_json::from_str(r#"{"metadata":{"name":"a"},"spec":{"nodeName":"a"}}"#).unwrap();
        assert_eq!(read.status, NodeHardwareStatus::default());
    }
}
