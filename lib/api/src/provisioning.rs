//! `autoscaling.x-k8s.io`, as far as it is spoken here: ProvisioningRequest, by which a batch system asks whether pods
//! would fit before it makes them. The kind is Cluster Autoscaler's; it is read and answered here, and installed by
//! others.
//!
//! Types have the names of the API's own, and fields that are not known are let through.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    core::{ObjectMeta, PodTemplateSpec},
    hardware::{Condition, ConditionStatus},
};

/// API group of the kind.
pub const GROUP: &str = "autoscaling.x-k8s.io";
/// Versions that say the same in the same words, the best first.
pub const VERSIONS: [&str; 2] = ["v1", "v1beta1"];
/// Name of the kind.
pub const PROVISIONING_REQUEST_KIND: &str = "ProvisioningRequest";
/// Plural of the kind.
pub const PROVISIONING_REQUESTS: &str = "provisioningrequests";

/// Annotations with which a pod names the request that it consumes: today's key first, then the one that was used
/// before.
pub const CONSUME_ANNOTATIONS: [&str; 2] = [
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
];

/// Sets of pods in a request.
pub const MAX_POD_SETS: usize = 32;
/// Pods of a set. The kind's own schema knows no limit; the proposal does.
pub const MAX_PODS_OF_A_SET: i64 = 16_384;
/// Bytes of a value in `provisioningClassDetails`, and of a condition's message.
pub const MAX_DETAIL_BYTES: usize = 32_768;
/// Characters of a value in `parameters`.
pub const MAX_PARAMETER_CHARS: usize = 255;

/// A request for capacity.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct ProvisioningRequest {
    /// Name and identity.
    pub metadata: ObjectMeta,
    /// Pods that are asked for; immutable.
    pub spec: ProvisioningRequestSpec,
    /// Answers to the request.
    pub status: ProvisioningRequestStatus,
}

/// ProvisioningRequestSpec: pods that are asked for.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestSpec {
    /// Pods that are to fit together.
    #[serde(deserialize_with = "or_default")]
    pub pod_sets: Vec<ProvisioningPodSet>,
    /// Class, which names the controller that is asked, and its procedure.
    pub provisioning_class_name: String,
    /// Further parameters for that controller.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

/// PodSet: pods that are alike.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningPodSet {
    /// Template of the pods.
    pub pod_template_ref: PodTemplateReference,
    /// Number of pods.
    pub count: i64,
}

/// Reference: a PodTemplate of the request's namespace.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct PodTemplateReference {
    /// Name of the PodTemplate.
    pub name: String,
}

/// ProvisioningRequestStatus: answers to a request.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestStatus {
    /// Progress of the request; each type once.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Details for the party that makes the pods.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub provisioning_class_details: BTreeMap<String, String>,
}

/// A PodTemplate of the core group.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PodTemplate {
    /// Name and identity.
    pub metadata: ObjectMeta,
    /// Template of the pods.
    pub template: PodTemplateSpec,
}

/// The conditions of a request.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ProvisioningConditionType {
    /// A controller has taken up the request.
    Accepted,
    /// The capacity is there.
    Provisioned,
    /// The capacity will never be there.
    Failed,
    /// The capacity is not booked for the request any more.
    BookingExpired,
    /// A promised device is lost and not replaced. Kueue deactivates the workload.
    CapacityRevoked,
    /// The name that the proposal of the check class has for today's `Provisioned`.
    CapacityAvailable,
}

impl ProvisioningConditionType {
    /// All types that are written here.
    pub const ALL: [Self; 6] = [
        Self::Accepted,
        Self::Provisioned,
        Self::Failed,
        Self::BookingExpired,
        Self::CapacityRevoked,
        Self::CapacityAvailable,
    ];

    /// Returns the type as it stands in the object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Provisioned => "Provisioned",
            Self::Failed => "Failed",
            Self::BookingExpired => "BookingExpired",
            Self::CapacityRevoked => "CapacityRevoked",
            Self::CapacityAvailable => "CapacityAvailable",
        }
    }
}

/// Reason for the status of a request's condition, in Cluster Autoscaler's word where it has one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProvisioningReason {
    /// The request was taken up.
    Accepted,
    /// There is room for all pods.
    CapacityIsFound,
    /// There is not enough room.
    CapacityIsNotFound,
    /// There is room, and its devices are being closed to others; not one of Cluster Autoscaler's reasons.
    BookingCapacity,
    /// A device that was kept is lost, and another one is looked for; not one of Cluster Autoscaler's reasons.
    ReplacingCapacity,
    /// A device that was kept is lost, and there is none in its place; not one of Cluster Autoscaler's reasons.
    CapacityLost,
    /// Another device is kept in the place of one that was lost; not one of Cluster Autoscaler's reasons.
    CapacityReplaced,
    /// The check failed: the answer is not known.
    FailedToCheckCapacity,
    /// The pods of the request cannot be made.
    FailedToCreatePods,
    /// The booking cannot be looked after any more: a template is gone.
    FailedToBookCapacity,
    /// The request has expired.
    Expired,
    /// The time of the booking is over.
    CapacityReservationTimeExpired,
    /// All pods of the request have their node.
    CapacityBookingConsumed,
}

impl ProvisioningReason {
    /// Returns the reason as it stands in the object.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::CapacityIsFound => "CapacityIsFound",
            Self::CapacityIsNotFound => "CapacityIsNotFound",
            Self::BookingCapacity => "BookingCapacity",
            Self::ReplacingCapacity => "ReplacingCapacity",
            Self::CapacityLost => "CapacityLost",
            Self::CapacityReplaced => "CapacityReplaced",
            Self::FailedToCheckCapacity => "FailedToCheckCapacity",
            Self::FailedToCreatePods => "FailedToCreatePods",
            Self::FailedToBookCapacity => "FailedToBookCapacity",
            Self::Expired => "Expired",
            Self::CapacityReservationTimeExpired => "CapacityReservationTimeExpired",
            Self::CapacityBookingConsumed => "CapacityBookingConsumed",
        }
    }
}

impl ProvisioningRequestStatus {
    /// The condition of this type, if there is one.
    pub fn condition(&self, kind: ProvisioningConditionType) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind.as_str())
    }

    /// True if the condition of this type holds.
    pub fn is(&self, kind: ProvisioningConditionType) -> bool {
        self.condition(kind).is_some_and(Condition::is_true)
    }

    /// True if the condition says that the capacity is unknown: Cluster Autoscaler never touches such a request again.
    pub fn is_unknown(&self) -> bool {
        let provisioned = self.condition(ProvisioningConditionType::Provisioned);
        provisioned.is_some_and(|condition| condition.status == ConditionStatus::Unknown)
    }
}

/// The request that a pod consumes, in its own namespace.
pub fn consumed_request(pod: &ObjectMeta) -> Option<&str> {
    let named = CONSUME_ANNOTATIONS.iter().find_map(|key| pod.annotations.get(*key));
    named.map(String::as_str).filter(|name| !name.is_empty())
}

/// Reads `null` as the default: Go writes a list or a map that was never made as `null`.
fn or_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Kueue writes it, with what the API server adds.
    const REQUEST: &str = r#"{
        "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
        "metadata": {
            "name": "job-train-6f1a-prov-1", "namespace": "team-a", "uid": "0f1e", "resourceVersion": "81",
            "generation": 1, "creationTimestamp": "2026-11-20T10:00:00Z",
            "labels": {"kueue.x-k8s.io/managed": "true"},
            "ownerReferences": [{"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "name": "job-train-6f1a",
                "uid": "77", "controller": true, "blockOwnerDeletion": true}]
        },
        "spec": {
            "provisioningClassName": "check-capacity.hostler.dev",
            "parameters": {"ValidUntilSeconds": "86400"},
            "podSets": [{"podTemplateRef": {"name": "ppt-job-train-6f1a-prov-1-main"}, "count": 4}]
        },
        "status": {"conditions": null, "provisioningClassDetails": null}
    }"#;

    #[test]
    fn a_request_is_read_as_batch_systems_write_it() {
        let request: ProvisioningRequest = serde_json::from_str(REQUEST).unwrap();
        assert_eq!(request.spec.pod_sets[0].pod_template_ref.name, "ppt-job-train-6f1a-prov-1-main");
        assert_eq!(request.spec.pod_sets[0].count, 4);
        assert_eq!(request.spec.parameters["ValidUntilSeconds"], "86400");
        assert_eq!(request.metadata.creation_timestamp.as_deref(), Some("2026-11-20T10:00:00Z"));
        assert_eq!(request.status, ProvisioningRequestStatus::default());
    }

    #[test]
    fn a_status_is_written_with_the_names_of_the_api() {
        let condition = Condition {
            kind: ProvisioningConditionType::Provisioned.as_str().to_owned(),
            status: ConditionStatus::False,
            reason: ProvisioningReason::CapacityIsNotFound.as_str().to_owned(),
            message: "m".to_owned(),
            last_transition_time: "2026-11-20T10:00:00Z".to_owned(),
        };
        let details = [("nodes".to_owned(), "n1".to_owned())].into();
        let status = ProvisioningRequestStatus { conditions: vec![condition], provisioning_class_details: details };
        assert_eq!(
            serde_json::to_value(&status).unwrap(),
            serde_json::json!({
                "conditions": [{
                    "type": "Provisioned", "status": "False", "reason": "CapacityIsNotFound", "message": "m",
                    "lastTransitionTime": "2026-11-20T10:00:00Z",
                }],
                "provisioningClassDetails": {"nodes": "n1"},
            })
        );
        assert!(!status.is(ProvisioningConditionType::Provisioned));
        assert!(!status.is_unknown());
    }

    #[test]
    fn pods_consume_by_either_key_and_todays_goes_first() {
        let pod = |keys: &[(&str, &str)]| ObjectMeta {
            annotations: keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..ObjectMeta::default()
        };
        let [new, old] = CONSUME_ANNOTATIONS;
        assert_eq!(consumed_request(&pod(&[(old, "a")])), Some("a"));
        assert_eq!(consumed_request(&pod(&[(old, "a"), (new, "b")])), Some("b"));
        assert_eq!(consumed_request(&pod(&[(new, "")])), None);
        assert_eq!(consumed_request(&pod(&[])), None);
    }
}
