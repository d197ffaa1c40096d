//! Writes of ResourceClaims, for modules that keep devices in them or give them to pods. Decisions are made elsewhere.
//!
//! Each write but the first one names the version that it was decided on, and fails where there is another one by now.

use std::collections::BTreeMap;

use hostler_api::{
    ObjectKey,
    resource::{AllocationResult, ApiVersion, ResourceClaimConsumerReference, ResourceClaimSpec},
    well_known::CONTROLLER_FIELD_MANAGER,
};
use hostler_cluster::{ApiClient, ApiFailure, Collection, ObjectVersion};
use serde_json::{Value, json};

/// The finalizer that keeps a claim as long as it has devices. A writer of an allocation adds it before, and takes it
/// away after.
pub(crate) const DELETE_PROTECTION: &str = "resource.kubernetes.io/delete-protection";

/// A write of a claim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClaimWrite {
    /// The claim is made. An existing one of its name is a conflict.
    Create(Box<NewClaim>),
    /// The claim has these finalizers, and no others.
    Finalizers(ClaimVersion, Vec<String>),
    /// The claim has these devices, or none, and these consumers.
    Status(ClaimVersion, Box<WrittenClaimStatus>),
    /// The claim has these consumers, and what it has of devices.
    Consumers(ClaimVersion, Vec<ResourceClaimConsumerReference>),
    /// The claim is deleted, if it is this one in this version.
    Delete(ClaimVersion),
}

/// Identity and version of a claim that is written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ClaimVersion {
    pub(crate) key: ObjectKey,
    pub(crate) uid: String,
    /// The resourceVersion.
    pub(crate) version: String,
}

/// A claim that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NewClaim {
    pub(crate) key: ObjectKey,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) spec: ResourceClaimSpec,
}

/// Devices of a claim, and its consumers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WrittenClaimStatus {
    /// The allocation. Once it is there the API server lets it go as a whole only. From 1.36 on one without
    /// `allocationTimestamp` keeps pods from being bound that are not in `reserved_for`.
    pub(crate) allocation: Option<AllocationResult>,
    pub(crate) reserved_for: Vec<ResourceClaimConsumerReference>,
}

impl ClaimWrite {
    /// Returns the claim's namespace and name.
    pub(crate) fn key(&self) -> &ObjectKey {
        match self {
            Self::Create(claim) => &claim.key,
            Self::Finalizers(claim, _) | Self::Status(claim, _) | Self::Consumers(claim, _) | Self::Delete(claim) => {
                &claim.key
            }
        }
    }

    /// Returns the kind of the write, in one word.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Self::Create(_) => "claim",
            Self::Finalizers(..) => "claim_finalizers",
            Self::Status(..) | Self::Consumers(..) => "claim_status",
            Self::Delete(_) => "claim_deletion",
        }
    }

    /// Sends the write to the server, which serves claims in `version`; returns the claim as it is then, if there is
    /// one.
    pub(crate) async fn send(&self, client: &ApiClient, version: ApiVersion) -> Result<Option<Value>, ApiFailure> {
        let ObjectKey { namespace, name } = self.key();
        let claims = Collection::resource(version, "ResourceClaim", "resourceclaims").of(namespace);
        match self {
            Self::Create(claim) => client.create(&claims, name, &object(claim, version)?).await.map(Some),
            // A patch would have the server write parameters of drivers anew, and then refuse it since they have
            // changed.
            Self::Finalizers(claim, finalizers) => {
                let change = (&*claim.version, &**finalizers);
                client.replace_finalizers(&claims, name, CONTROLLER_FIELD_MANAGER, change).await.map(Some)
            }
            Self::Status(claim, status) => {
                let patch = json!({
                    "metadata": {"uid": claim.uid, "resourceVersion": claim.version},
                    // A null field goes, in a merge patch; a list is replaced as a whole.
                    "status": {"allocation": status.allocation, "reservedFor": status.reserved_for},
                });
                client.change_status(&claims, name, CONTROLLER_FIELD_MANAGER, &patch).await.map(Some)
            }
            Self::Consumers(claim, consumers) => {
                let patch = json!({
                    "metadata": {"uid": claim.uid, "resourceVersion": claim.version},
                    "status": {"reservedFor": consumers},
                });
                client.change_status(&claims, name, CONTROLLER_FIELD_MANAGER, &patch).await.map(Some)
            }
            Self::Delete(claim) => {
                let version = ObjectVersion { uid: claim.uid.clone(), resource_version: claim.version.clone() };
                client.delete(&claims, name, &version).await.map(|()| None)
            }
        }
    }
}

fn object(claim: &NewClaim, version: ApiVersion) -> Result<Value, ApiFailure> {
    if version == ApiVersion::V1Beta1 {
        let step = format!("create ResourceClaim {}", claim.key);
        return Err(ApiFailure::unusable(step, "claims are made from resource.k8s.io/v1beta2 on (Kubernetes 1.33)"));
    }
    let NewClaim { key, labels, annotations, spec } = claim;
    Ok(json!({
        "apiVersion": version.group_version(), "kind": "ResourceClaim",
        "metadata": {"namespace": key.namespace, "name": key.name, "labels": labels, "annotations": annotations},
        "spec": spec,
    }))
}
