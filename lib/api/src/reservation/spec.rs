//! Spec of a Reservation, which users write.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    PRE_ALLOCATABLE, ParseTtlError, ReplacedPod, ReservationMode, ReservationOwner, ReservationPreemptionPolicy,
    parse_ttl,
};
use crate::{
    core::{PodTemplateSpec, Taint},
    names::{is_dns_label, is_subdomain},
    resource::ResourceClaimSpec,
};

/// Lifetime of a Reservation that names none.
pub const DEFAULT_TTL: Duration = Duration::from_secs(24 * 3600);

/// Devices to keep, their owners, and the time.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservationSpec {
    /// A pod (PodTemplateSpec) whose devices are kept: those of the claims that it gets from ResourceClaimTemplates
    /// in metadata.namespace. The devices are where the pod could run.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub template: Value,
    /// Devices that are kept beside those of the template, as a claim asks for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_claims: Vec<NamedDeviceClaim>,
    /// Mode: devices are closed to all others (Fence), or in claims that pods name (SharedClaim).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ReservationMode>,
    /// Number of pods of this kind; each keeps its own devices, and they may be on different nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Owners, whose pods may have the devices: a pod that one of these matches. All fields of one entry must match.
    pub owners: Vec<ReservationOwner>,
    /// Lifetime from creation, such as 30m; for ever where it is 0. It does not count where expires is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
    /// End of the lifetime, RFC 3339; no other ttl may be written beside it than 0 and the default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Keeps devices that pods of the owners have now, for those that come after them; until they are free the
    /// Reservation is Waiting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pre_allocation: Option<bool>,
    /// Selection of those pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pre_allocation_policy: Option<PreAllocationPolicy>,
    /// Policy for the eviction of pods of lower priority than the template's where no free device fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption_policy: Option<ReservationPreemptionPolicy>,
    /// A running pod that shall be moved: devices are kept on another node than its own, and once they are, and not
    /// before, it is evicted. The pod that is made in its place is one of the owners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaces: Option<ReplacedPod>,
    /// If true, the Reservation ends once an owner has taken devices (for each of the replicas one); true where it is
    /// not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocate_once: Option<bool>,
    /// Policy for other devices that owners take beside those that are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocate_policy: Option<ReservationAllocatePolicy>,
    /// Resources, named as in status.allocatable, that Restricted is about; all that are kept where none is named. Of
    /// other resources owners may take more than is kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restricted_resources: Vec<String>,
    /// If true, no new pod is led to the Reservation; kept devices stay kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unschedulable: Option<bool>,
    /// Taints: only pods that tolerate them in their reservation affinity are led to the Reservation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Devices that were planned for the Reservation when it was made. They are kept if all of them are still free and
    /// serve the template; else others are chosen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub planned_devices: Vec<PlannedDevice>,
}

/// A device that was planned for a Reservation.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlannedDevice {
    /// Node of the pod that gets the device.
    pub node_name: String,
    /// Driver.
    pub driver: String,
    /// Pool.
    pub pool: String,
    /// Name in the pool.
    pub device: String,
}

/// Devices that are kept without a pod that asks for them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamedDeviceClaim {
    /// Name of the claim, unique in the Reservation and different from those of the template's claims.
    pub name: String,
    /// Requests, as in a ResourceClaim.
    pub spec: ResourceClaimSpec,
}

/// Policy for other devices that owners take beside those that are kept for them.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum ReservationAllocatePolicy {
    /// Owners may take others: those that are kept first, then others.
    #[default]
    Aligned,
    /// Owners may not, for requests of which devices are kept.
    Restricted,
}

/// Pods whose devices are kept while the pods still have them.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PreAllocationPolicy {
    /// Pods that are considered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<PreAllocationMode>,
    /// If true, devices of several pods may be kept; of one only where it is not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_multiple: Option<bool>,
}

/// Pods that are considered for devices to keep.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum PreAllocationMode {
    /// Pods of the owners.
    #[default]
    Default,
    /// Pods of the whole cluster whose labels permit it (`hostler.dev/pre-allocatable: "true"`).
    Cluster,
}

/// Error: the spec of a Reservation cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template is no PodTemplateSpec.
    #[error("spec.template is no PodTemplateSpec; write metadata and spec of a pod into it")]
    Template(#[source] serde_json::Error),
    /// The template names a ResourceClaimTemplate, but no namespace for it.
    #[error(
        "spec.template.metadata.namespace is missing; write the namespace of ResourceClaimTemplate {template} into it"
    )]
    Namespace {
        /// Name of the ResourceClaimTemplate.
        template: String,
    },
    /// The template names a claim that exists: the devices of such a claim are kept by the claim itself.
    #[error(
        "spec.template.spec.resourceClaims[{index}] names ResourceClaim {claim}, which keeps its own devices; name a \
         ResourceClaimTemplate, or write what is to be kept into spec.deviceClaims"
    )]
    NamedClaim {
        /// Index of the claim in the template.
        index: usize,
        /// The claim.
        claim: String,
    },
    /// `replaces` names a pod that cannot exist.
    #[error("spec.replaces.{field} is {value:?}, which no pod has; write the {field} of the pod that shall be moved")]
    Replaces {
        /// The field.
        field: &'static str,
        /// Value of the field.
        value: String,
    },
    /// The spec asks for nothing.
    #[error(
        "nothing is asked for; name a ResourceClaimTemplate in spec.template.spec.resourceClaims, write spec.deviceClaims, or \
         requests into the template's containers"
    )]
    NoDevices,
    /// Two claims have one name.
    #[error("spec.deviceClaims has {name}, as has another claim; give each claim another name")]
    SameName {
        /// The name.
        name: String,
    },
    /// The text is no duration.
    #[error("spec.ttl cannot be understood")]
    Ttl(#[source] ParseTtlError),
}

impl ReservationSpec {
    /// Returns the pod, with claims that can be kept.
    ///
    /// # Errors
    /// When the template is no pod, or asks for no devices that can be kept.
    pub fn pod_template(&self) -> Result<PodTemplateSpec, TemplateError> {
        let template = if self.template.is_null() {
            PodTemplateSpec::default()
        } else {
            serde_json::from_value(self.template.clone()).map_err(TemplateError::Template)?
        };
        if let Some(ReplacedPod { namespace, name, .. }) = &self.replaces {
            for (field, value, is_good) in
                [("namespace", namespace, is_dns_label(namespace)), ("name", name, is_subdomain(name, 253))]
            {
                if !is_good {
                    return Err(TemplateError::Replaces { field, value: value.clone() });
                }
            }
        }
        let claims = &template.spec.resource_claims;
        if claims.is_empty() && self.device_claims.is_empty() && !self.asks_for_place() {
            return Err(TemplateError::NoDevices);
        }
        for (index, claim) in claims.iter().enumerate() {
            if let Some(claim) = claim.resource_claim_name.clone() {
                return Err(TemplateError::NamedClaim { index, claim });
            }
            if let Some(template_name) = claim.resource_claim_template_name.clone()
                && template.metadata.namespace.is_empty()
            {
                return Err(TemplateError::Namespace { template: template_name });
            }
        }
        let names: Vec<&String> =
            claims.iter().map(|it| &it.name).chain(self.device_claims.iter().map(|it| &it.name)).collect();
        match names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
            Some((_, name)) => Err(TemplateError::SameName { name: (*name).clone() }),
            None => Ok(template),
        }
    }

    /// Number of pods.
    pub fn replicas(&self) -> u32 {
        self.replicas.unwrap_or(1)
    }

    /// Lifetime where `expires` does not say the end; `None`: for ever.
    ///
    /// # Errors
    /// When the text is no duration.
    pub fn lasts(&self) -> Result<Option<Duration>, TemplateError> {
        let Some(text) = &self.ttl else { return Ok(Some(DEFAULT_TTL)) };
        let ttl = parse_ttl(text).map_err(TemplateError::Ttl)?;
        Ok(Some(ttl).filter(|ttl| !ttl.is_zero()))
    }

    /// True if the Reservation ends once owners have taken devices.
    pub fn is_once(&self) -> bool {
        self.allocate_once.unwrap_or(true)
    }

    /// True if the Reservation keeps devices that pods have now.
    pub fn is_pre_allocation(&self) -> bool {
        self.pre_allocation.unwrap_or(false)
    }

    /// True if the Reservation may keep devices of several pods.
    pub fn takes_multiple(&self) -> bool {
        self.pre_allocation_policy.as_ref().and_then(|it| it.enable_multiple).unwrap_or(false)
    }

    /// Returns which pods the Reservation may wait for.
    pub fn pre_allocation_mode(&self) -> PreAllocationMode {
        self.pre_allocation_policy.as_ref().and_then(|it| it.mode).unwrap_or_default()
    }

    /// True if the Reservation may keep devices that this pod has now: a pod of the owners, or, with mode Cluster, a pod
    /// whose labels permit it.
    pub fn may_wait_for(&self, pod: &super::OwnerCandidate<'_>) -> bool {
        match self.pre_allocation_mode() {
            PreAllocationMode::Default => self.is_owned_by(pod),
            PreAllocationMode::Cluster => pod.labels.get(PRE_ALLOCATABLE).is_some_and(|value| value == "true"),
        }
    }

    /// True if owners get this resource, named as in status.allocatable, from what is kept alone.
    pub fn restricts(&self, resource: &str) -> bool {
        let is_named = || self.restricted_resources.iter().any(|name| name == resource);
        self.allocate_policy == Some(ReservationAllocatePolicy::Restricted)
            && (self.restricted_resources.is_empty() || is_named())
    }

    /// True if the Reservation evicts pods of lower priority.
    pub fn preempts(&self) -> bool {
        self.preemption_policy == Some(ReservationPreemptionPolicy::PreemptLowerPriority)
    }

    /// Namespace of owners that name none: the template's, or else `default`.
    pub fn home(&self) -> &str {
        let named = self.template["metadata"]["namespace"].as_str();
        named.filter(|name| !name.is_empty()).unwrap_or("default")
    }

    /// True if one of the owners is this pod. Every tenant can write labels and names: an entry without a namespace
    /// and without the UID of a pod is about pods of the template's namespace alone.
    pub fn is_owned_by(&self, pod: &super::OwnerCandidate<'_>) -> bool {
        let is_at_home = |owner: &ReservationOwner| owner.is_somewhere() || pod.namespace == self.home();
        self.owners.iter().any(|owner| owner.matches(pod) && is_at_home(owner))
    }
}
