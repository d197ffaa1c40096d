//! NodeHardware: what a node has, and how it is, as its daemon says. One object for each node, with the node's name; and,
//! where hostler's controller allocates, one for each source of devices that several nodes can use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AmountCounts, Condition, DeviceCounts, DeviceTotals, HardwareConditionType};
use crate::{classic::NodeGrant, core::ObjectMeta};

/// The hardware of a node.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct NodeHardware {
    /// Has the name of the node, which owns the object.
    pub metadata: ObjectMeta,
    /// Of whom it is.
    pub spec: NodeHardwareSpec,
    /// What the daemon says.
    pub status: NodeHardwareStatus,
}

/// Of whom a NodeHardware is.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeHardwareSpec {
    /// The node. Without one, what the status offers is on the network: which nodes can use it, its slices say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// What claims were given of its devices where hostler's controller allocates (Kubernetes 1.26 to 1.31), as that controller
    /// says; by UID of the claim.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, NodeGrant>,
    /// Its devices that are kept for somebody, as hostler's controller says; each device once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<NodeHold>,
    /// Whether devices that draw on one counter set are held each for itself, as hostler's controller says. Else they are held all
    /// together and for one only, or not at all, since schedulers without the fix of kubernetes#140436 refuse the others to everybody.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub holds_partitions: bool,
}

/// A device of the node that is kept for somebody: who does not tolerate the taint with this value is not given it.
#[derive(Clone, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeHold {
    /// Pool of the device.
    pub pool: String,
    /// Name of the device.
    pub device: String,
    /// Value of the taint, which says for whom.
    pub value: String,
}

/// What a daemon says of its node.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeHardwareStatus {
    /// As which DRA driver it publishes devices.
    pub driver: String,
    /// Version of the daemon.
    pub hostler_version: String,
    /// Release of the node's kernel.
    pub kernel_version: String,
    /// Another one after each boot.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// All devices of all backends that are known.
    pub devices: DeviceTotals,
    /// By name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<BackendHardware>,
    /// What it offers where hostler's controller allocates (Kubernetes 1.26 to 1.31): each has what spec of a ResourceSlice
    /// has in later releases. A pool of which one is missing is not there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Value>,
    /// Generation of the spec whose holds the node's ResourceSlices say, as the API server has them; absent where there was never
    /// anything to hold. The condition HoldsPublished names what is not held all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds_generation: Option<i64>,
    /// Whether this can be relied on, and all is well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// When anything but the times was last changed, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_change_time: Option<String>,
    /// When the daemon last said that this is so, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_report_time: Option<String>,
}

/// The hardware of one kind: what one backend of the daemon looks after. Its pool is `<node>/<name>`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendHardware {
    /// Name of the backend.
    pub name: String,
    /// How far what follows can be relied on.
    pub knowledge: BackendKnowledge,
    /// Why no further.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Devices that claims have and that are not there, or not known to be. They are counted nowhere else.
    #[serde(skip_serializing_if = "is_none")]
    pub missing: u32,
    /// Its devices, by the class that they are asked for by; empty where it has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassHardware>,
}

/// Whether it is known what a backend has.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum BackendKnowledge {
    /// Its last scan succeeded.
    Known,
    /// Its last scan failed or is late: what is said of its devices was true before.
    Stale,
    /// No scan of it has succeeded since the daemon started. That it has no devices is not known either.
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
    /// By NUMA node; what is on no single one comes last.
    pub zones: Vec<ZoneHardware>,
}

/// Devices of one class on one NUMA node.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneHardware {
    /// The NUMA node; absent for devices that are on no single one, or do not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// How many are in which state.
    #[serde(flatten)]
    pub devices: DeviceCounts,
    /// What there is of each capacity that several claims can share, by its name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub amounts: BTreeMap<String, AmountCounts>,
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

impl NodeHardwareStatus {
    /// The condition of this type, if the daemon said anything of it.
    pub fn condition(&self, kind: HardwareConditionType) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind.as_str())
    }

    /// Every row of counts.
    pub fn zones(&self) -> impl Iterator<Item = &ZoneHardware> {
        self.backends.iter().flat_map(|backend| &backend.classes).flat_map(|class| &class.zones)
    }
}

impl BackendKnowledge {
    /// In one word.
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
