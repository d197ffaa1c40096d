//! The calls: what the API server has of a claim's devices, and what it shall have.

use hostler_api::ClaimRef;
use k8s_openapi::api::resource::v1::AllocatedDeviceStatus;
use kube::{
    api::{GetParams, Patch, PatchParams},
    core::Request,
};
use serde::Deserialize;
use serde_json::json;

use super::devices::{Known, is_same};
use crate::kubernetes::{ApiFailure, Cluster, claims_path};

/// How a write ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Applied {
    /// The API server has it.
    Kept,
    /// The API server took it and kept nothing.
    Dropped,
    /// The claim is gone, or it is another one of the same name.
    Gone,
}

/// The part of a claim that matters here.
#[derive(Deserialize)]
struct Claim {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    uid: String,
    generation: Option<i64>,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    devices: Vec<AllocatedDeviceStatus>,
}

/// What the API server has of `claim`.
pub(super) async fn read(cluster: &Cluster, claim: &ClaimRef) -> Result<Known, ApiFailure> {
    let path = claims_path(cluster.version().await?, &claim.namespace);
    let request = Request::new(path).get(&claim.name, &GetParams::default());
    let gone = Known::gone();
    match cluster.fetch::<Claim>(format!("get ResourceClaim {}", claim.full_name()), request).await {
        Ok(found) if found.metadata.uid != claim.uid.as_str() => Ok(gone),
        Ok(found) => Ok(Known::new(found.status.devices, found.metadata.generation, cluster.driver())),
        Err(failure) if is_gone(&failure) => Ok(gone),
        Err(failure) => Err(failure),
    }
}

/// Has the API server keep exactly `devices` of what this driver says about `claim`.
pub(super) async fn apply(
    cluster: &Cluster,
    claim: &ClaimRef,
    devices: &[AllocatedDeviceStatus],
) -> Result<Applied, ApiFailure> {
    let version = cluster.version().await?;
    let body = json!({
        "apiVersion": version.group_version(),
        "kind": "ResourceClaim",
        // With the UID the API server refuses to write to a later claim of the same name.
        "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid},
        "status": {"devices": devices},
    });
    // Nobody else has anything to say about these fields, so a conflict can only be with an earlier name of this driver.
    let params = PatchParams::apply(cluster.driver()).force();
    let request = Request::new(claims_path(version, &claim.namespace)).patch_subresource(
        "status",
        &claim.name,
        &params,
        &Patch::Apply(&body),
    );
    match cluster.fetch::<Claim>(format!("write the status of ResourceClaim {}", claim.full_name()), request).await {
        Ok(kept) => {
            let has = |wanted: &AllocatedDeviceStatus| kept.status.devices.iter().any(|known| is_same(known, wanted));
            Ok(if devices.iter().all(has) { Applied::Kept } else { Applied::Dropped })
        }
        Err(failure) if is_gone(&failure) => Ok(Applied::Gone),
        Err(failure) => Err(failure),
    }
}

/// Not found, or a conflict: the only thing that this driver's writes can conflict with is another UID.
fn is_gone(failure: &ApiFailure) -> bool {
    match failure.code() {
        Some(404) => !failure.is_unknown_resource(),
        code => code == Some(409),
    }
}
