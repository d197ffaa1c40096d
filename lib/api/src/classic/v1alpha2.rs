//! Kubernetes 1.27 to 1.30; what 1.26 has too is used from here.

use serde::{Deserialize, Serialize};

use super::ClassicMeta;
use crate::{core::NodeSelector, resource::or_empty};

/// Class that claims name: the driver, and the parameters that all its claims have.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClass {
    /// Name.
    pub metadata: ClassicMeta,
    /// The driver that allocates.
    pub driver_name: String,
    /// Parameters of the class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters_ref: Option<ClassicParametersReference>,
    /// The only nodes that can have such devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suitable_nodes: Option<NodeSelector>,
    /// True if the scheduler allocates, and no controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_parameters: Option<bool>,
}

/// Reference to an object with parameters. The object of a claim is in the namespace of the claim.
#[derive(Clone, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassicParametersReference {
    /// Group of the kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Namespace of the object; only a class names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// A claim.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ResourceClaimV1Alpha2 {
    /// Name and identity.
    pub metadata: ClassicMeta,
    /// Request of the claim.
    pub spec: ResourceClaimSpecV1Alpha2,
    /// Allocation and consumers of the claim.
    pub status: ResourceClaimStatusV1Alpha2,
}

/// Request of a claim.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimSpecV1Alpha2 {
    /// Name of the class.
    pub resource_class_name: String,
    /// Parameters of the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters_ref: Option<ClassicParametersReference>,
    /// Moment of the allocation.
    pub allocation_mode: AllocationMode,
}

/// Moment at which a claim is allocated.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum AllocationMode {
    /// As soon as the claim exists, wherever devices are available.
    Immediate,
    /// As soon as a pod needs it, on a node that suits the pod.
    #[default]
    #[serde(other)]
    WaitForFirstConsumer,
}

/// Allocation and consumers of a claim.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimStatusV1Alpha2 {
    /// The driver that allocated.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver_name: String,
    /// Allocation by the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationResultV1Alpha2>,
    /// Consumers that may use the claim.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub reserved_for: Vec<ClassicConsumer>,
    /// True if the allocation is to be taken back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deallocation_requested: bool,
}

/// Allocation by a driver.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationResultV1Alpha2 {
    /// Messages of drivers to their nodes.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub resource_handles: Vec<ResourceHandle>,
    /// Nodes on which the claim can be used; any node where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_on_nodes: Option<NodeSelector>,
    /// True if several pods can use the claim at the same time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shareable: bool,
}

/// Message of a driver to its nodes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceHandle {
    /// The driver; that of the status where it is empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver_name: String,
    /// Message, in the driver's own terms.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub data: String,
}

/// Consumer that may use a claim.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassicConsumer {
    /// Empty for pods.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// `pods`.
    pub resource: String,
    /// Name, in the namespace of the claim.
    pub name: String,
    /// Identity.
    pub uid: String,
}

impl ClassicConsumer {
    /// A pod as consumer.
    pub fn of_pod(name: impl Into<String>, uid: impl Into<String>) -> Self {
        Self { api_group: String::new(), resource: "pods".to_owned(), name: name.into(), uid: uid.into() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_is_read_with_what_later_versions_add_to_it() {
        let claim: ResourceClaimV1Alpha2 = serde_json::from_value(json!({
            "metadata": {"name": "c", "uid": "u", "resourceVersion": "7", "finalizers": null, "managedFields": []},
            "spec": {"resourceClassName": "fpga", "allocationMode": "Immediate",
                "parametersRef": {"apiGroup": "hostler.dev", "kind": "ClaimParameters", "name": "p"}},
            "status": {"driverName": "hostler.dev", "reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}],
                "allocation": {"resourceHandles": [{"data": "x", "structuredData": {}}], "shareable": true}},
        }))
        .unwrap();
        assert_eq!(claim.spec.allocation_mode, AllocationMode::Immediate);
        assert_eq!(claim.spec.parameters_ref.unwrap().kind, "ClaimParameters");
        assert_eq!(claim.status.reserved_for, [ClassicConsumer::of_pod("p", "1")]);
        assert_eq!(claim.status.allocation.unwrap().resource_handles[0].data, "x");
    }

    #[test]
    fn a_claim_waits_for_a_pod_unless_it_says_otherwise() {
        for written in [json!({}), json!({"allocationMode": "WaitForFirstConsumer"}), json!({"allocationMode": "New"})]
        {
            let spec: ResourceClaimSpecV1Alpha2 = serde_json::from_value(written).unwrap();
            assert_eq!(spec.allocation_mode, AllocationMode::WaitForFirstConsumer);
        }
    }
}
